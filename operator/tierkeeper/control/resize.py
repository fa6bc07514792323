"""Live limits: nudge the kubelets, read back from every Ready pod, and count the resize as done only then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tierkeeper.control.pods import PodPhase, PodView
from tierkeeper.control.pool import PoolView
from tierkeeper.control.record import Resize, Resized, TierRecord
from tierkeeper.engine.flags import HTTP_PORT
from tierkeeper.engine.limits import NUDGE_ANNOTATION, Limits, nudge_value
from tierkeeper.ports import AppliedLimits, Clock, EngineProbe, KubeApi

CONFIRM_SECONDS = 60.0
"""A resize that some pod has not shown by then is reported as not applied. With the nudge it takes under 5 s; the
kubelet's own refresh, without it, up to 90 s."""

FAST_SECONDS = 5.0
FAST_POLL_SECONDS = 0.25
SLOW_POLL_SECONDS = 1.0
LATE_POLL_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class LiveLimits:
    """Follows the pods of one pool through a change of their limits."""

    api: KubeApi
    probe: EngineProbe
    clock: Clock

    async def follow(self, record: TierRecord, view: PoolView, wanted: Limits) -> float | None:
        """Nudge and read back. Updates ``record``; returns seconds until to look again, None once all pods agree.

        Raises ApiError where a pod cannot be annotated.
        """
        ready = view.census.of(PodPhase.READY)
        names = {pod.name for pod in ready}
        record.shown = {name: limits for name, limits in record.shown.items() if name in names}
        if all(record.shown.get(pod.name) == wanted for pod in ready):
            self._finish(record, wanted, pods=len(ready))
            return None
        now = self.clock.monotonic()
        if record.resize is None or record.resize.wanted != wanted:
            record.resize = Resize(wanted, started_at=now, before=None)
        await self._nudge(ready, record, wanted, insist=record.resize.before is not None)
        await self._read_back(ready, record, wanted)
        waiting_for = tuple(pod.name for pod in ready if record.shown.get(pod.name) != wanted)
        if not waiting_for:
            self._finish(record, wanted, pods=len(ready))
            return None
        record.resize = replace(record.resize, waiting_for=waiting_for)
        return _poll_seconds(now - record.resize.started_at)

    async def _nudge(self, ready: Sequence[PodView], record: TierRecord, wanted: Limits, *, insist: bool) -> None:
        """A changed annotation makes the kubelet refresh the pod's volumes at once instead of within 90 s.

        A young pod mounted the present limits when it started: it is nudged only if it was asked once and disagreed.
        """
        value = nudge_value(wanted)
        asked = set(record.resize.waiting_for if record.resize else ())
        late = [
            pod
            for pod in ready
            if record.shown.get(pod.name) != wanted and pod.nudged != value and (insist or pod.name in asked)
        ]
        namespace = record.key.namespace
        await asyncio.gather(
            *(
                self.api.annotate_pod(namespace=namespace, name=pod.name, annotations={NUDGE_ANNOTATION: value})
                for pod in late
            )
        )

    async def _read_back(self, ready: Sequence[PodView], record: TierRecord, wanted: Limits) -> None:
        open_pods = [pod for pod in ready if pod.ip and record.shown.get(pod.name) != wanted]
        answers = await asyncio.gather(
            *(self.probe.limits(pod_ip=pod.ip, port=HTTP_PORT) for pod in open_pods if pod.ip)
        )
        agreed = {pod.name: wanted for pod, says in zip(open_pods, answers, strict=True) if obeys(says, wanted)}
        record.shown = {**record.shown, **agreed}

    def _finish(self, record: TierRecord, wanted: Limits, *, pods: int) -> None:
        resize, record.resize = record.resize, None
        if resize is not None and resize.before is not None and pods > 0:  # without a pod nothing was shown
            seconds = self.clock.monotonic() - resize.started_at
            record.resizes += 1
            record.resized = Resized(before=resize.before, after=wanted, pods=pods, seconds=seconds)


def overdue(resize: Resize, *, now: float) -> bool:
    """Whether a pod has had its time and still does not show the limits."""
    return now - resize.started_at > CONFIRM_SECONDS


def in_progress(resize: Resize | None, *, now: float) -> bool:
    """Whether a change of the limits is under way and may still succeed."""
    return resize is not None and resize.before is not None and not overdue(resize, now=now)


def obeys(says: AppliedLimits | None, wanted: Limits) -> bool:
    """Whether a pod has shown the wanted limits.

    The scheduler is not called while an engine is idle, so an idle pod that has seen the limits counts: they hold from
    its next step on.
    """
    if says is None or says.seen_max_num_seqs != wanted.max_num_seqs:
        return False
    tokens = wanted.max_num_batched_tokens
    if tokens is not None and says.seen_token_budget != tokens:
        return False
    if says.idle:
        return True
    if says.applied_max_num_seqs != wanted.max_num_seqs:
        return False
    return tokens is None or says.applied_token_budget == tokens


def _poll_seconds(elapsed: float) -> float:
    if elapsed < FAST_SECONDS:
        return FAST_POLL_SECONDS
    return SLOW_POLL_SECONDS if elapsed < CONFIRM_SECONDS else LATE_POLL_SECONDS
