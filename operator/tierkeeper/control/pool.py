"""One pool as the cluster shows it, read from its objects. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tierkeeper.control.pods import PodCensus, take_census
from tierkeeper.engine.flags import live_resize
from tierkeeper.engine.limits import NUDGE_ANNOTATION, parse_limits
from tierkeeper.ports import Object
from tierkeeper.render.names import START_ANNOTATION
from tierkeeper.render.pool import start_value
from tierkeeper.scaling.levers import starting_levers
from tierkeeper.scaling.model import Levers, PoolState
from tierkeeper.tier import TierSpec

APPLY_MANAGER = "tierkeeper"
"""Field manager of the children and of the status."""
SCALE_MANAGER = "tierkeeper-scale"
"""Field manager of ``spec.replicas`` alone: a manager that stops sending a field lets go of it, so one that applies the
template must never have sent the replicas."""

AUTOSCALER_MANAGER = "kube-controller-manager"
"""Writes replicas only as the HorizontalPodAutoscaler, through the scale subresource; KEDA works through one."""

_A_POD = re.compile(r'^pods "[^"]*" is forbidden: ')
"""How a refusal begins: with the name of a pod that never was, another one at each try."""

_QUOTA = "exceeded quota"


@dataclass(frozen=True, slots=True)
class PoolView:
    """What the pool's objects say."""

    exists: bool
    """Whether there is a Deployment."""
    levers: Levers
    """What is set: ``spec.replicas`` and the limit ConfigMap; where the tier starts as long as there are none."""
    start_moved: bool = False
    """The spec's starting limits are not those of the last write: a user wants them now."""
    census: PodCensus = field(default_factory=PodCensus)
    rolling_out: bool = False
    stuck: str = ""
    """The deployment controller's words on a rollout that makes no progress."""
    quota: str = ""
    """The API server's words on pods that a ResourceQuota forbids, and what to do."""
    refused: str = ""
    """The same for pods refused for any other reason."""
    external_scaler: str | None = None
    replicas_set_by: str = ""
    """Field managers other than our own that own ``spec.replicas``."""
    unscaled: bool = False
    """Nobody has ever set ``spec.replicas``: the 1 in it is the API server's default, and the pool is half made."""

    @property
    def missing(self) -> int:
        """Replicas for which there is no pod at all."""
        alive = self.census.ready + self.census.starting + self.census.unschedulable + self.census.failing
        return max(0, self.levers.replicas - alive)

    @property
    def unschedulable(self) -> int:
        """Pods without a node, and those that were refused, by a quota for instance: waiting brings none for either."""
        return self.census.unschedulable + (self.missing if self.quota or self.refused else 0)


def view_pool(
    spec: TierSpec,
    *,
    deployment: Object | None,
    limits: Object | None,
    pods: Iterable[Object],
    rollout_generation: int = 0,
) -> PoolView:
    """Read the pool. Before ``rollout_generation`` the Deployment's status does not know of the latest rollout."""
    start = starting_levers(spec)
    live = parse_limits((limits or {}).get("data"))
    tokens = live.max_num_batched_tokens if live else start.max_num_batched_tokens
    body = (deployment or {}).get("spec") or {}
    status = (deployment or {}).get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    failure = conditions.get("ReplicaFailure", {})
    refused = _with_remedy(spec, str(failure.get("message", ""))) if failure.get("status") == "True" else ""
    quota = _QUOTA in refused
    return PoolView(
        exists=deployment is not None,
        levers=Levers(
            replicas=body.get("replicas", 1) if deployment else start.replicas,
            max_num_seqs=live.max_num_seqs if live else start.max_num_seqs,
            max_num_batched_tokens=tokens,
        ),
        start_moved=_start_moved(spec, limits),
        census=take_census(pods, deployment=spec.pool_name, nudge_annotation=NUDGE_ANNOTATION),
        rolling_out=_rolling_out(status, rollout_generation),
        stuck=_stuck(conditions.get("Progressing", {})),
        quota=refused if quota else "",
        refused="" if quota else refused,
        external_scaler=external_scaler(deployment or {}),
        replicas_set_by=", ".join(name for name, _ in _replica_managers(deployment or {}) if name != SCALE_MANAGER),
        unscaled=not _replica_managers(deployment or {}),
    )


def pool_state(spec: TierSpec, view: PoolView, *, resizing: bool, contested: str | None = None) -> PoolState:
    """The same for the decision. Pods that a quota forbids are like pods without a node: waiting brings none.

    ``contested``: who else sets the replicas though no autoscaler's mark is on them.
    """
    census = view.census
    return PoolState(
        current=view.levers,
        ready=census.ready,
        unschedulable=view.unschedulable,
        unschedulable_message=(view.quota or view.refused or census.kept_from_a_node_by).rstrip("."),
        failing=census.failing,
        rolling_out=view.rolling_out,
        resizing=resizing,
        live_resize=live_resize(spec).supported,
        external_scaler=view.external_scaler or contested,
        startup_seconds=census.startup_seconds(most=float(spec.rollout.startup_seconds)),
    )


def external_scaler(deployment: Object) -> str | None:
    """What autoscaler sets this Deployment's replicas, None where there is none."""
    for manager, subresource in _replica_managers(deployment):
        if subresource == "scale" and manager == AUTOSCALER_MANAGER:
            return "HorizontalPodAutoscaler"
    return None


def _replica_managers(deployment: Object) -> list[tuple[str, str]]:
    """Field manager and subresource of everyone who owns ``spec.replicas``."""
    entries = deployment.get("metadata", {}).get("managedFields") or ()
    return [
        (str(entry.get("manager", "")), str(entry.get("subresource", "")))
        for entry in entries
        if "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
    ]


def _with_remedy(spec: TierSpec, said: str) -> str:
    """Why the API server makes no pod, without the name of a pod that never was, and what to do about it.

    The words are those of its admission plugins; whatever is not known is quoted with the general remedy.
    """
    said = _A_POD.sub("", said).rstrip(". ")
    pod, namespace = spec.pod, spec.key.namespace
    remedies = {
        "no PriorityClass with name": _create_or_correct("priorityClassName", pod.priority_class_name),
        "RuntimeClass": _create_or_correct("runtimeClassName", pod.runtime_class_name),
        "service account": _create_or_correct("serviceAccountName", pod.service_account_name or "default"),
        _QUOTA: f"raise the quota in namespace {namespace}, or lower spec.scaling.replicas or spec.resources",
        "violates PodSecurity": f"give namespace {namespace} a Pod Security level that allows what the message names",
    }
    general = "correct what it names in spec.pod, spec.resources or the cluster's policies"
    remedy = next((remedy for words, remedy in remedies.items() if words in said), general)
    return f"Pods are refused: {said}: {remedy}."


def _create_or_correct(name: str, value: str | None) -> str:
    return f"create {value}, or correct spec.pod.{name} ({value})"


def _start_moved(spec: TierSpec, limits: Object | None) -> bool:
    written = ((limits or {}).get("metadata", {}).get("annotations") or {}).get(START_ANNOTATION)
    return written is not None and written != start_value(spec)


def _rolling_out(status: Mapping[str, Any], rollout_generation: int) -> bool:
    """Some pod still runs an older template. A mere scale-up is no rollout: it has no old pods."""
    if status.get("observedGeneration", 0) < rollout_generation:
        return True
    return bool(status.get("replicas", 0) > status.get("updatedReplicas", 0))


def _stuck(progressing: Mapping[str, Any]) -> str:
    if progressing.get("status") == "False" and progressing.get("reason") == "ProgressDeadlineExceeded":
        return str(progressing.get("message", "no progress within the deadline"))
    return ""
