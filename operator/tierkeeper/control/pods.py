"""What a pool's pods say of themselves. Pure: pod dicts in, counts and causes out."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from tierkeeper.api.conditions import ConditionReason
from tierkeeper.ports import Object
from tierkeeper.render.pod import CONTAINER


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


OPENS_A_GATE = "whoever set it opens it; see the queue and its quota"


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of the pool, in the operator's own terms."""

    name: str
    phase: PodPhase
    ip: str | None = None
    reason: ConditionReason | None = None
    """Why it does not serve; None while it does or is simply starting."""
    message: str = ""
    hopeless: bool = False
    """Waiting does not mend it: a person has to change what the message names."""
    gated: bool = False
    """It has no node because somebody else, such as Kueue, has not let it in yet."""
    lost: bool = False
    """It was Ready since its container started, and is not any more."""
    unmade: bool = False
    """It has a node and no container yet: its image is pulled, or its volumes are mounted."""
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

    @property
    def unmade(self) -> int:
        return sum(pod.unmade for pod in self.of(PodPhase.STARTING))

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

    @property
    def kept_from_a_node_by(self) -> str:
        """The first such pod's cause, and whose it is: the scheduler's, or a gate's; empty where there is none."""
        told = next((pod for pod in self.of(PodPhase.UNSCHEDULABLE) if pod.message), None)
        if told is None:
            return ""
        return f"{told.message}: {OPENS_A_GATE}" if told.gated else f"scheduler: {told.message}"


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


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a pod does not serve."""

    reason: ConditionReason | None
    text: str
    hopeless: bool = True


_NO_CAUSE = _Cause(None, "", hopeless=False)


def _view(pod: Object, nudge_annotation: str) -> PodView:
    meta, status = pod["metadata"], pod.get("status") or {}
    phase, cause = _classify(pod)
    return PodView(
        name=meta["name"],
        phase=phase,
        ip=status.get("podIP"),
        reason=cause.reason,
        message=cause.text,
        hopeless=cause.hopeless,
        gated=phase is PodPhase.UNSCHEDULABLE and bool(_gates(pod)),
        lost=_lost(status),
        unmade=_unmade(pod),
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
    containers, since = status.get("containerStatuses") or (), _ready_changed_at(status)
    return bool(containers) and all(_was_ready(one, since) for one in containers)


def _unmade(pod: Object) -> bool:
    """An init container that runs (a sidecar that does is ready) keeps the others waiting by itself."""
    status = pod.get("status") or {}
    if any("running" in (one.get("state") or {}) and not one.get("ready") for one in _first(pod)):
        return False
    waiting = [(one.get("state") or {}).get("waiting") or {} for one in status.get("containerStatuses") or ()]
    return any(one.get("reason") in ("ContainerCreating", "PodInitializing") for one in waiting)


def _first(pod: Object) -> Sequence[Mapping[str, Any]]:
    """Init containers that have their work still before them, and sidecars, whose work is never done."""
    inits = (pod.get("spec") or {}).get("initContainers") or ()
    sidecars = {one["name"] for one in inits if one.get("restartPolicy") == "Always"}
    told = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return [one for one in told if one["name"] in sidecars or not _done(one)]


def _was_ready(container: Mapping[str, Any], since: str | None) -> bool:
    return _ready_in((container.get("state") or {}).get("running") or {}, since)


def _ready_in(run: Mapping[str, Any], since: str | None) -> bool:
    """Whether its pod has been Ready in that run: a pod is made not Ready before its container starts, so one that has
    become Ready or lost it at a later time (``since``) was in between.

    Times are RFC 3339 in UTC and whole seconds, which compare as text.
    """
    began = run.get("startedAt")
    return bool(since and began and began < since)


def _classify(pod: Object) -> tuple[PodPhase, _Cause]:
    meta, status = pod["metadata"], pod.get("status") or {}
    if meta.get("deletionTimestamp"):
        return PodPhase.TERMINATING, _NO_CAUSE
    if status.get("phase") in ("Failed", "Succeeded"):
        return PodPhase.GONE, _Cause(None, _ended(meta, status), hopeless=False)
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    containers = [*_first(pod), *(status.get("containerStatuses") or ())]
    if (cause := _first_trouble(containers, since=_ready_changed_at(status))) is not None:
        return PodPhase.FAILING, replace(cause, text=f"pod {meta['name']}: {cause.text}")
    if conditions.get("Ready", {}).get("status") == "True":
        return PodPhase.READY, _NO_CAUSE
    if (said := _why_without_a_node(pod, conditions.get("PodScheduled", {}))) is not None:
        return PodPhase.UNSCHEDULABLE, _Cause(ConditionReason.UNSCHEDULABLE, said, hopeless=False)
    return PodPhase.STARTING, _NO_CAUSE


def _why_without_a_node(pod: Object, scheduled: Mapping[str, Any]) -> str | None:
    """What keeps a pod from a node; None where nothing does, or the scheduler has not looked yet.

    A gate is somebody's queue for quota, such as Kueue's: whether it opens is as open as whether a node comes. The
    condition outlives the last gate until the scheduler looks.
    """
    if scheduled.get("status") != "False":
        return None
    if scheduled.get("reason") == "SchedulingGated":
        gates = ", ".join(gate["name"] for gate in _gates(pod))
        return f"pod {pod['metadata']['name']} waits at its scheduling gate {gates}" if gates else None
    return str(scheduled.get("message", "")) if scheduled.get("reason") == "Unschedulable" else None


def _gates(pod: Object) -> Sequence[Mapping[str, Any]]:
    return (pod.get("spec") or {}).get("schedulingGates") or ()


def _done(init: Mapping[str, Any]) -> bool:
    """An init container (a webhook's: ours has none) has done its work, be it at a second try or once more after its
    node was started anew. An engine, in contrast, never ends well."""
    state, last = init.get("state") or {}, init.get("lastState") or {}
    ended = (last if "running" in state else state).get("terminated")
    return ended is not None and ended.get("exitCode") == 0


def _ended(meta: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """A pod that has ended and is not started again. Its ReplicaSet has replaced it: it is no replica any more."""
    why = status.get("reason") or status.get("phase", "")
    return f"pod {meta['name']} ended: {why} {status.get('message', '')}".strip()


BACK_OFF_FORGOTTEN_SECONDS = 600.0
"""A container that ran for so long is started at once when it ends: twice the kubelet's longest pause."""

LOOP_RESTARTS = 2
"""Restarts from which a container that runs and is not Ready is between two crashes. The kubelet starts it at once
after its first end and makes the first pause, ``CrashLoopBackOff``, after the second: what runs then is restart 2."""

_NEVER_RAN = "1970-"
"""A container that could not be started (StartError) began at the epoch."""

_NO_ACCESS = re.compile(r"GatedRepo|gated repo|RepositoryNotFound|(401|403) Client Error|is restricted", re.IGNORECASE)
"""What the model hub's client prints last where the token may not read the model."""

_PULL = (
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "RegistryUnavailable",
    "ImageInspectError",
    "SignatureValidationFailed",
)
_BACK_OFF = re.compile(r'Back-off pulling image "[^"]*"(: \w+: )?')
"""What the kubelet puts before the cause while it pauses between two tries."""
_MISSING = re.compile(r"(secret|configmap) .*not found|couldn't find key", re.IGNORECASE)
"""Of what keeps the kubelet from configuring a container: what a person has to create."""
_UNMAKEABLE = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
)
_NOT_STARTED = ("StartError", "ContainerCannotRun")

_NODE = "its node is to blame (container runtime, GPU driver), or spec.engine.image where every node says so"
_NOT_OURS = "see whoever adds this container to the tier's pods"


def _first_trouble(containers: Sequence[Mapping[str, Any]], *, since: str | None) -> _Cause | None:
    """The first container's that fails. ``since``: when the pod last became Ready or lost it."""
    for container in containers:
        state, restarts = container.get("state") or {}, container.get("restartCount", 0)
        if (trouble := _waiting_trouble(container, state.get("waiting") or {})) is not None:
            return trouble
        if (ended := state.get("terminated")) is not None:
            return _crash(container, ended, loop=restarts > 0 and _at_its_start(ended, since))
        last = (container.get("lastState") or {}).get("terminated") or {}
        between = restarts >= LOOP_RESTARTS and not container.get("ready") and not _was_ready(container, since)
        if between and _at_its_start(last, since):
            return _crash(container, last, loop=True)
    return None


def _waiting_trouble(container: Mapping[str, Any], waiting: Mapping[str, Any]) -> _Cause | None:
    why, said = waiting.get("reason", ""), waiting.get("message", "")
    if why in _PULL:  # said in the same words while the kubelet tries and while it pauses
        cause = _BACK_OFF.sub("", said) or f"cannot pull {container.get('image', '')}"
        remedy = "check spec.engine.image and spec.pod.imagePullSecrets"
        if why == "ErrImageNeverPull":
            remedy = "have the image on each node, or correct spec.engine.imagePullPolicy"
        return _Cause(ConditionReason.IMAGE_PULL, _said(container, cause, remedy))
    if why == "InvalidImageName":
        return _Cause(ConditionReason.INVALID_IMAGE, _said(container, said, "correct spec.engine.image"))
    if why == "CreateContainerConfigError" and _MISSING.search(said):
        remedy = "create it, or correct its name in the spec"
        if "secret" in said.lower():
            remedy += " (the model's token: spec.model.tokenSecretRef)"
        return _Cause(ConditionReason.CONTAINER_CONFIG, _said(container, said, remedy))
    if why in _UNMAKEABLE:  # some of it passes: a runtime that is overloaded, a cache that is not filled yet
        return _Cause(ConditionReason.CONTAINER_CREATE, _said(container, said or why, _NODE), hopeless=False)
    last = (container.get("lastState") or {}).get("terminated")
    if why == "CrashLoopBackOff":
        return _crash(container, last or {}, loop=True)
    if why == "RunContainerError":
        refused = last or {"reason": "StartError", "message": said}
        return _crash(container, refused, loop=container.get("restartCount", 0) > 0)
    return None


def _said(container: Mapping[str, Any], cause: str, remedy: str) -> str:
    """The kubelet's words and what to do: the spec says nothing of a container that a webhook adds."""
    return f"container {container['name']}: {cause.rstrip('. ')}; {remedy if _ours(container) else _NOT_OURS}"


def _ours(container: Mapping[str, Any]) -> bool:
    return bool(container["name"] == CONTAINER)


def _at_its_start(ended: Mapping[str, Any], since: str | None) -> bool:
    """Whether a run was over before its pod was Ready, however long it loaded, or soon after. One of which nothing is
    known was no start: its node went away."""
    began, over = ended.get("startedAt"), ended.get("finishedAt")
    if not began or not over:
        return False
    if began.startswith(_NEVER_RAN) or (since and not _ready_in(ended, since)):
        return True
    ran = datetime.fromisoformat(over) - datetime.fromisoformat(began)
    return ran.total_seconds() < BACK_OFF_FORGOTTEN_SECONDS


def _crash(container: Mapping[str, Any], ended: Mapping[str, Any], *, loop: bool) -> _Cause:
    """An end, and whether it is one of a row. In a row the words are the same while the container has just ended,
    waits for its next try, and runs for a moment: what is said of it does not flicker."""
    reason = _exit_reason(ended)
    if loop and reason is not ConditionReason.OUT_OF_MEMORY:
        reason = ConditionReason.CRASH_LOOP
    text = f"container {container['name']} {_exit_text(container, ended).rstrip('.')}"
    return _Cause(reason, "; ".join([text, *_after_an_end(container, ended, loop=loop)]), hopeless=loop)


def _after_an_end(container: Mapping[str, Any], ended: Mapping[str, Any], *, loop: bool) -> Iterator[str]:
    """Where to look. What never ran has no log; an engine that dies while it serves ends with code 0 and no word."""
    ours = _ours(container)
    if _not_started(ended):
        yield _NODE if ours else _NOT_OURS
    elif ours:
        if loop or ended.get("exitCode") == 0:
            yield "read `kubectl logs --previous`"
    else:
        if loop:
            yield f"read `kubectl logs --previous -c {container['name']}`"
        yield _NOT_OURS


def _not_started(ended: Mapping[str, Any]) -> bool:
    return ended.get("reason") in _NOT_STARTED


def _exit_reason(ended: Mapping[str, Any]) -> ConditionReason:
    if ended.get("reason") == "OOMKilled":
        return ConditionReason.OUT_OF_MEMORY
    return ConditionReason.ENGINE_EXITED


def _exit_text(container: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    if ended.get("reason") == "OOMKilled":
        limit = "spec.resources.memory allows" if _ours(container) else "its own limit"
        return f"was killed for using more memory than {limit} (OOMKilled)"
    text = f"ended with exit code {ended.get('exitCode', 'unknown')}"
    if _not_started(ended):
        text = "could not be started"
    elif ended.get("exitCode") == 0:
        text += ", and is to run as long as its pod"
    last_words = next(reversed(str(ended.get("message") or "").strip().splitlines()), "")[:300]
    if _NO_ACCESS.search(str(ended.get("message") or "")):
        return f"{text}: no access to the model; check the token of spec.model.tokenSecretRef ({last_words})"
    return f"{text}: {last_words}" if last_words else text
