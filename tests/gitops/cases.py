"""ServiceTiers in every state that their conditions can spell, and what GitOps tools are to think of each."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from tests.control.stage import GOLD, Stage, tier
from tests.control.test_slo_loop import failing, running_stage, ticks
from tests.control.test_trouble_is_named import waiting
from tierkeeper.api.conditions import ConditionReason, ConditionType
from tierkeeper.ports import Kind, MetricsErrorReason

Object = dict[str, Any]


class Case(NamedTuple):
    """A tier, and its health: by Argo CD's script, and by kstatus (Flux, `helm --wait` of Helm 4)."""

    name: str
    obj: Object
    argocd: str
    kstatus: str


#: A tier at rest that serves, is measured and keeps its promise.
FINE: Mapping[str, tuple[str, str]] = {
    "Ready": ("True", "PoolReady"),
    "Reconciling": ("False", "AsExpected"),
    "Stalled": ("False", "AsExpected"),
    "MetricsAvailable": ("True", "Ok"),
    "SLOMet": ("True", "ObjectivesMet"),
    "ScalingLimited": ("False", "AsExpected"),
    "Resizing": ("False", "Applied"),
    "BudgetFrozen": ("False", "BudgetLeft"),
}


def with_conditions(
    changed: Mapping[str, tuple[str, str] | None], *, mode: str = "Auto", generation: int = 3, observed: int = 3
) -> Object:
    """The tier at rest with some conditions replaced, or left out where None."""
    obj = tier(scaling={"mode": mode})
    obj["metadata"]["generation"] = generation
    conditions = [
        {
            "type": kind,
            "status": found[0],
            "reason": found[1],
            "message": f"{kind} says so",
            "lastTransitionTime": "2026-11-01T00:00:00Z",
            "observedGeneration": observed,
        }
        for kind in FINE
        if (found := changed.get(kind, FINE[kind])) is not None
    ]
    return obj | {"status": {"observedGeneration": observed, "conditions": conditions}}


_ARGOCD = {
    ("Ready", "False"): "Progressing",
    ("Ready", "Unknown"): "Progressing",
    ("Reconciling", "True"): "Progressing",
    ("Stalled", "True"): "Degraded",
    ("MetricsAvailable", "False"): "Degraded",
    ("MetricsAvailable", "Unknown"): "Progressing",
}
"""A condition alone that is no matter of deployment leaves a serving tier Healthy."""

_KSTATUS = {
    ("Ready", "False"): "InProgress",
    ("Ready", "Unknown"): "InProgress",
    ("Reconciling", "True"): "InProgress",
    ("Stalled", "True"): "Failed",
}


def one_condition_at_a_time() -> list[Case]:
    """Every condition in every status with every reason, the others at rest."""
    cases = []
    for kind, status, reason in itertools.product(ConditionType, ("True", "False", "Unknown"), ConditionReason):
        disobeyed = (kind, status, reason) == (ConditionType.RESIZING, "True", ConditionReason.NOT_APPLIED)
        cases.append(
            Case(
                f"{kind}={status} {reason}",
                with_conditions({kind.value: (status, reason.value)}),
                "Degraded" if disobeyed else _ARGOCD.get((kind.value, status), "Healthy"),
                _KSTATUS.get((kind.value, status), "Current"),
            )
        )
    return cases


STALLED = {"Stalled": ("True", "ImagePullBackOff"), "Ready": ("False", "ImagePullBackOff")}
STARTING = {"Ready": ("False", "PoolStarting"), "Reconciling": ("True", "PoolStarting")}
NO_METRICS = {"MetricsAvailable": ("False", "SourceDown")}


def _bare(status: Object) -> Object:
    obj = tier()
    obj["metadata"]["generation"] = 1
    return obj | {"status": status}


COMBINED = (
    Case("just applied", _bare({"observedGeneration": -1}), "Progressing", "InProgress"),
    Case("an old generation", with_conditions({}, generation=4), "Progressing", "InProgress"),
    Case("an old generation that was stalled", with_conditions(STALLED, generation=4), "Progressing", "InProgress"),
    Case("no word on metrics yet", with_conditions({"MetricsAvailable": None}), "Progressing", "Current"),
    Case("starting without metrics", with_conditions(STARTING | NO_METRICS), "Progressing", "InProgress"),
    Case("paused", with_conditions({}, mode="Paused"), "Suspended", "Current"),
    Case("paused without metrics", with_conditions(NO_METRICS, mode="Paused"), "Suspended", "Current"),
    Case("paused before it served", with_conditions(STARTING, mode="Paused"), "Suspended", "InProgress"),
    Case("paused and stalled", with_conditions(STALLED, mode="Paused"), "Degraded", "Failed"),
    Case("paused, not seen yet", with_conditions({}, mode="Paused", generation=4), "Progressing", "InProgress"),
    Case("fixed", with_conditions({}, mode="Fixed"), "Healthy", "Current"),
    Case("recommending", with_conditions({}, mode="Recommend"), "Healthy", "Current"),
)


def told_by_the_operator() -> list[Case]:
    """The same from objects as the operator itself writes them, around a fake API server."""
    return [asyncio.run(_told(name, *story)) for name, story in _STORIES.items()]


async def _told(name: str, play: Callable[[], Awaitable[Stage]], argocd: str, kstatus: str) -> Case:
    stage = await play()
    return Case(name, stage.get(Kind.SERVICE_TIER, "gold"), argocd, kstatus)


async def _served() -> Stage:
    stage = await running_stage()
    await ticks(stage, 4)
    return stage


async def _starting(**changes: object) -> Stage:
    stage = Stage()
    stage.kube.put(tier(**changes))
    await stage.reconciler.reconcile(GOLD)
    return stage


async def _refused() -> Stage:
    return await _starting(scaling={"replicas": {"min": 5, "max": 2}})


async def _edited() -> Stage:
    stage = await _served()
    stage.kube.put(tier(engine={"image": "vllm/vllm-openai:v0.33.0"}))
    return stage


async def _rolling() -> Stage:
    stage = await _edited()
    await stage.reconciler.reconcile(GOLD)
    return stage


async def _blind() -> Stage:
    stage = await _served()
    stage.source.answer = failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, 4)
    return stage


async def _without_image() -> Stage:
    stage = await _starting()
    stage.kube.run_deployments(ready=False)
    for (kind, _, _), obj in stage.kube.objects.items():
        if kind is Kind.POD:
            obj["status"] = waiting("ImagePullBackOff", "no such image")
    await stage.reconciler.reconcile(GOLD)
    return stage


_STORIES: Mapping[str, tuple[Callable[[], Awaitable[Stage]], str, str]] = {
    "serves and is measured": (_served, "Healthy", "Current"),
    "starts": (_starting, "Progressing", "InProgress"),
    "cannot be read": (_refused, "Degraded", "Failed"),
    "was edited, and the operator has not looked": (_edited, "Progressing", "InProgress"),
    "rolls out": (_rolling, "Progressing", "InProgress"),
    "lost Prometheus": (_blind, "Degraded", "Current"),
    "has no image": (_without_image, "Degraded", "Failed"),
}


def every_case() -> list[Case]:
    """About 2,300."""
    return [*one_condition_at_a_time(), *COMBINED, *told_by_the_operator()]
