"""What a pool's pods say of themselves. Pure: pod dicts in, counts and causes out."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tierkeeper.api.conditions import ConditionReason
from tierkeeper.ports import Object


class PodPhase(StrEnum):
    """Where a pod is between being asked for and being gone."""

    READY = "Ready"
    STARTING = "Starting"
    """Created and neither Ready nor hopeless: capacity to come."""
    UNSCHEDULABLE = "Unschedulable"
    FAILING = "Failing"
    TERMINATING = "Terminating"
    GONE = "Gone"
    """Ended for good (evicted, rejected by a node); its ReplicaSet makes another one."""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of the pool, in the operator's own terms."""

    name: str
    phase: PodPhase
    ip: str | None = None
    reason: ConditionReason | None = None
    """Why it does not serve; None while it does or is simply starting."""
    message: str = ""
    lost: bool = False
    """It was Ready since its container started, and is not any more."""
    startup_seconds: float | None = None
    """From created to Ready; None where it is not Ready, or its container has started more than once."""
    nudged: str = ""
    """Value of the annotation by which the kubelet was last asked to refresh the pod's volumes."""


@dataclass(frozen=True, slots=True)
class PodCensus:
    """All pods of one pool."""

    pods: tuple[PodView, ...] = ()

    def of(self, *phases: PodPhase) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.phase in phases)

    @property
    def ready(self) -> int:
        return len(self.of(PodPhase.READY))

    @property
    def starting(self) -> int:
        return len(self.of(PodPhase.STARTING))

    @property
    def unschedulable(self) -> int:
        return len(self.of(PodPhase.UNSCHEDULABLE))

    @property
    def failing(self) -> int:
        return len(self.of(PodPhase.FAILING))

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of the pods that served and do not now, for no cause that Kubernetes names."""
        return tuple(pod.name for pod in self.of(PodPhase.STARTING) if pod.lost)

    def startup_seconds(self, *, most: float) -> float | None:
        """The median start of the Ready pods; None where none tells. What took longer than ``most`` was no start: a pod
        that lost its readiness later on and has it back says when it came back. Nor was what ended before it began: the
        node's clock, which says when a pod is Ready, is behind the API server's."""
        told = [pod.startup_seconds for pod in self.of(PodPhase.READY) if pod.startup_seconds is not None]
        starts = [seconds for seconds in told if 0 <= seconds <= most]
        return statistics.median(starts) if starts else None

    @property
    def worst(self) -> PodView | None:
        """The pod that explains best why the pool is short: a failing one before one without a node."""
        return next(iter(self.of(PodPhase.FAILING) + self.of(PodPhase.UNSCHEDULABLE)), None)


def take_census(pods: Iterable[Object], *, deployment: str, nudge_annotation: str) -> PodCensus:
    """Classify the pods that the Deployment owns; others of the same labels are left out.

    Ownership without reading ReplicaSets: the deployment controller names a ReplicaSet ``<deployment>-<hash>`` and puts
    the same hash into the pod's ``pod-template-hash`` label.
    """
    mine = [pod for pod in pods if _owned_by(pod, deployment)]
    views = (_view(pod, nudge_annotation) for pod in mine)
    return PodCensus(tuple(sorted(views, key=lambda view: view.name)))


def _owned_by(pod: Object, deployment: str) -> bool:
    meta = pod["metadata"]
    expected = f"{deployment}-{(meta.get('labels') or {}).get('pod-template-hash', '')}"
    return any(
        owner.get("controller") and owner.get("kind") == "ReplicaSet" and owner.get("name") == expected
        for owner in meta.get("ownerReferences") or ()
    )


def _view(pod: Object, nudge_annotation: str) -> PodView:
    meta, status = pod["metadata"], pod.get("status") or {}
    phase, reason, message = _classify(meta, status)
    return PodView(
        name=meta["name"],
        phase=phase,
        ip=status.get("podIP"),
        reason=reason,
        message=message,
        lost=_lost(status),
        startup_seconds=_startup_seconds(meta, status) if phase is PodPhase.READY else None,
        nudged=(meta.get("annotations") or {}).get(nudge_annotation, ""),
    )


def _startup_seconds(meta: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    made, since = meta.get("creationTimestamp"), _ready_changed_at(status)
    again = any(one.get("restartCount", 0) > 0 for one in status.get("containerStatuses") or ())
    if not made or not since or again:
        return None
    return (datetime.fromisoformat(since) - datetime.fromisoformat(made)).total_seconds()


def _ready_changed_at(status: Mapping[str, Any]) -> str | None:
    return next((c.get("lastTransitionTime") for c in status.get("conditions") or () if c["type"] == "Ready"), None)


def _lost(status: Mapping[str, Any]) -> bool:
    """A pod is made not Ready before its container starts: not Ready since a later time means that it was in between.

    Times are RFC 3339 in UTC and whole seconds, which compare as text.
    """
    since = _ready_changed_at(status)
    running = [(one.get("state") or {}).get("running") or {} for one in status.get("containerStatuses") or ()]
    return any(since and one.get("startedAt") and one["startedAt"] < since for one in running)


_Verdict = tuple[PodPhase, ConditionReason | None, str]


def _classify(meta: Mapping[str, Any], status: Mapping[str, Any]) -> _Verdict:
    if meta.get("deletionTimestamp"):
        return PodPhase.TERMINATING, None, ""
    if status.get("phase") in ("Failed", "Succeeded"):
        return _ended(meta, status)
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    first = [one for one in status.get("initContainerStatuses") or () if not _done(one)]
    containers = [*first, *(status.get("containerStatuses") or ())]
    if (trouble := _first_trouble(containers)) is not None:
        reason, text = trouble
        return PodPhase.FAILING, reason, f"pod {meta['name']}: {text}"
    if conditions.get("Ready", {}).get("status") == "True":
        return PodPhase.READY, None, ""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return PodPhase.UNSCHEDULABLE, ConditionReason.UNSCHEDULABLE, str(scheduled.get("message", ""))
    return PodPhase.STARTING, None, ""


def _done(init: Mapping[str, Any]) -> bool:
    """An init container (a webhook's: ours has none) has done its work, be it at a second try or once more after its
    node was started anew. An engine, in contrast, never ends well."""
    ended = (init.get("state") or {}).get("terminated")
    return ended is not None and ended.get("exitCode") == 0


def _ended(meta: Mapping[str, Any], status: Mapping[str, Any]) -> _Verdict:
    """A pod that has ended and is not started again. Its ReplicaSet has replaced it: it is no replica any more."""
    why = status.get("reason") or status.get("phase", "")
    text = f"pod {meta['name']} ended: {why} {status.get('message', '')}".strip()
    return PodPhase.GONE, None, text


CRASHES = 2
"""Restarts from which a pod that is not Ready counts as failing between two crashes too, or its state would flicker."""

_NO_ACCESS = re.compile(r"GatedRepo|gated repo|RepositoryNotFound|(401|403) Client Error|is restricted", re.IGNORECASE)
"""What the model hub's client prints last where the token may not read the model."""

_PULL = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError")


def _first_trouble(containers: Sequence[Mapping[str, Any]]) -> tuple[ConditionReason, str] | None:
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if (trouble := _waiting_trouble(container, waiting)) is not None:
            return trouble
        ended = (container.get("state") or {}).get("terminated")
        if ended is not None and (container.get("restartCount", 0) > 0 or ended.get("exitCode", 0) != 0):
            return _exit_reason(ended), f"container {container['name']} {_exit_text(ended)}"
        if not container.get("ready") and container.get("restartCount", 0) >= CRASHES:
            return _crash(container)
    return None


def _waiting_trouble(container: Mapping[str, Any], waiting: Mapping[str, Any]) -> tuple[ConditionReason, str] | None:
    why, said, name = waiting.get("reason", ""), waiting.get("message", ""), container["name"]
    if why in _PULL:
        return ConditionReason.IMAGE_PULL, (
            f"container {name}: {why}: {said or container.get('image', '')}; "
            "check spec.engine.image and spec.pod.imagePullSecrets"
        )
    if why == "InvalidImageName":
        return ConditionReason.INVALID_IMAGE, f"container {name}: {said}; correct spec.engine.image"
    if why in _CONFIG:
        return ConditionReason.CONTAINER_CONFIG, f"container {name}: {said}; create it, or correct the name in the spec"
    return _crash(container) if why == "CrashLoopBackOff" else None


def _crash(container: Mapping[str, Any]) -> tuple[ConditionReason, str]:
    last = (container.get("lastState") or {}).get("terminated") or {}
    reason = _exit_reason(last)
    loop = reason if reason is ConditionReason.OUT_OF_MEMORY else ConditionReason.CRASH_LOOP
    return loop, f"container {container['name']} {_exit_text(last).rstrip('.')}; read `kubectl logs --previous`"


def _exit_reason(ended: Mapping[str, Any]) -> ConditionReason:
    if ended.get("reason") == "OOMKilled":
        return ConditionReason.OUT_OF_MEMORY
    return ConditionReason.ENGINE_EXITED


def _exit_text(ended: Mapping[str, Any]) -> str:
    if ended.get("reason") == "OOMKilled":
        return "was killed for using more memory than spec.resources.memory allows (OOMKilled)"
    text = f"ended with exit code {ended.get('exitCode', 'unknown')}"
    last_words = next(reversed(str(ended.get("message") or "").strip().splitlines()), "")[:300]
    if _NO_ACCESS.search(str(ended.get("message") or "")):
        return f"{text}: no access to the model; check the token of spec.model.tokenSecretRef ({last_words})"
    return f"{text}: {last_words}" if last_words else text
