"""Why a tier burns, or that it does not: one finding a tick, with the figures it rests on."""

from __future__ import annotations

from enum import StrEnum

from tierkeeper.engine.latency import Profile, prefill_share
from tierkeeper.scaling.memory import Memory, lengths
from tierkeeper.scaling.model import PoolState, serving
from tierkeeper.scaling.reach import misses_alone
from tierkeeper.scaling.wording import count, duration, milliseconds, times
from tierkeeper.slo.evaluate import quantile_of
from tierkeeper.slo.model import Assessment, SignalState, Sli, SloAssessment, Traffic
from tierkeeper.tier import TierSpec
from tierkeeper.values import value

#: A queue counts once it has been too long for this many seconds: two looks at a 5 s tick, one at the default 15 s plus
#: the next. A blip that one look catches is gone at the second.
QUEUE_PERSISTS_SECONDS = 10.0

#: TTFT is queue time where half of it or more is spent waiting to be scheduled.
QUEUE_SHARE = 0.5

#: TPOT is blamed on prefill from this share of the step time. On the Azure conversation trace at its SLO capacity the
#: share is 0.32 and long TPOTs come from prefill; at a fifth, decoding itself is four fifths of the step.
PREFILL_SHARE = 0.2

#: Fewer misses than this in the window are chance: at a P99 objective "burn above 1" needs 3 bad of 100 for 95 %
#: confidence (Wilson), and one bad request in ten is not a page.
MINIMUM_MISSES = 3.0

#: KV pressure: the cache is as good as full, and requests are thrown out of the batch more often than 6 times a minute
#: in a pod. Full alone is efficient, and a single preemption is harmless.
KV_FULL = 0.9
PREEMPTIONS_PER_POD_SECOND = 0.1


class Diagnosis(StrEnum):
    UNKNOWN = "Unknown"
    IDLE = "Idle"
    HEALTHY = "Healthy"
    QUEUE_BOUND = "QueueBound"
    PREFILL_BOUND = "PrefillBound"
    TPOT_PREFILL = "TpotPrefill"
    TPOT_BATCH = "TpotBatch"
    KV_PRESSURE = "KvPressure"
    INFEASIBLE = "Infeasible"


@value(frozen=True, slots=True)
class Finding:
    diagnosis: Diagnosis
    cause: str
    """A clause with figures: "TTFT burns 8.1x its budget over 1 min and 6.4x over 5 min, 12 requests wait"."""
    from_windows: bool = False
    """Rests on look-back windows alone: after a change they still show the time before it for a minute."""
    sli: Sli | None = None

    @property
    def calm(self) -> bool:
        return self.diagnosis in _CALM

    @property
    def presses(self) -> bool:
        """Something burns that more replicas may mend."""
        return self.diagnosis not in _NO_PRESS


_CALM = frozenset({Diagnosis.HEALTHY, Diagnosis.IDLE})
_NO_PRESS = _CALM | {Diagnosis.UNKNOWN, Diagnosis.INFEASIBLE}


def queue_too_long(spec: TierSpec, traffic: Traffic) -> bool:
    """Whether a request that arrives now would wait too long, judged by gauges: a stuck queue yields no TTFT sample.

    With a TTFT objective the predicted wait is held against the target; without one a queue is too long when it never
    emptied for a minute.
    """
    target = spec.objective.ttft_seconds if spec.objective else None
    if target is None:
        return traffic.waiting_floor > 0
    return traffic.waiting > 0 and predicted_wait_seconds(traffic) > target


def predicted_wait_seconds(traffic: Traffic) -> float:
    """Seconds until those who wait now have left the queue: waiting / rate of requests that leave the pool."""
    if traffic.waiting <= 0:
        return 0.0
    leaving = max(traffic.finished_per_second, traffic.requests_per_second)
    return traffic.waiting / leaving if leaving > 0 else float("inf")


def hot(slo: SloAssessment | None, *, unchanged_seconds: float) -> bool:
    """Whether an SLO burns now, and not only in the echo of what has been mended.

    Some control pair is above its factor; the last minute still spends faster than the budget allows; and the misses
    that count come from after the last change or backlog, ``unchanged_seconds`` ago.
    """
    if slo is None or slo.state is not SignalState.OK or not slo.burning:
        return False
    minute = slo.window(60)
    evidence = slo.window(300) if unchanged_seconds >= 300 else minute
    if minute is None or evidence is None:
        return False
    burns = minute.burn.point >= 1.0 and evidence.burn.point >= 1.0
    return burns and evidence.ratio.point * evidence.total >= MINIMUM_MISSES - 1e-6


def diagnose(*, now: float, assessment: Assessment, pool: PoolState, memory: Memory, profile: Profile) -> Finding:
    """One finding for one tick. TPOT comes before the queue: where TPOT burns, a larger batch is no remedy."""
    traffic = assessment.traffic
    if not assessment.state.known:
        return Finding(Diagnosis.UNKNOWN, f"{assessment.reason}: {assessment.message}")
    every_pod_seen = traffic.observed_pods >= pool.ready  # one that is not seen may be busy
    if every_pod_seen and traffic.running <= 0 and traffic.waiting <= 0 and traffic.requests_per_second <= 0:
        return Finding(Diagnosis.IDLE, "nothing runs, waits or arrives")
    pods = serving(pool, traffic)
    usage = traffic.kv_cache_usage or 0.0
    if usage >= KV_FULL and traffic.preemptions_per_second >= PREEMPTIONS_PER_POD_SECOND * pods:
        cause = f"{traffic.preemptions_per_second:.1f} preemptions/s with {usage:.0%} of the KV cache in use"
        return Finding(Diagnosis.KV_PRESSURE, cause, from_windows=True)
    unchanged = float("inf") if memory.relieved_at is None else now - memory.relieved_at
    tpot = assessment.tpot
    if tpot is not None and hot(tpot, unchanged_seconds=unchanged):
        return _tpot(tpot, assessment, pods, profile)
    pressed = memory.queue_since is not None and now - memory.queue_since >= QUEUE_PERSISTS_SECONDS
    ttft = assessment.ttft if hot(assessment.ttft, unchanged_seconds=unchanged) else None
    if pressed or ttft is not None:
        return _ttft(ttft, assessment, pods=pods, queued=memory.queue_since is not None)
    return Finding(Diagnosis.HEALTHY, "no objective burns and no queue stands")


def _tpot(tpot: SloAssessment, assessment: Assessment, pods: int, profile: Profile) -> Finding:
    traffic = assessment.traffic
    cause = _burn(tpot)
    if _lone(tpot, assessment, pods):
        return Finding(Diagnosis.INFEASIBLE, cause, from_windows=True, sli=Sli.TPOT)
    median = quantile_of(tpot, 0.5)
    typical = median.seconds if median is not None else tpot.threshold_seconds
    share = prefill_share(
        profile,
        batch=traffic.running / pods,
        lengths=lengths(assessment),
        tpot_seconds=typical,
        prompt_tokens_per_second=traffic.prompt_tokens_per_second / pods,
    )
    if share >= PREFILL_SHARE:
        return Finding(Diagnosis.TPOT_PREFILL, f"{cause}, prefill takes {share:.0%} of the step", from_windows=True)
    running = f"each replica runs {count(traffic.running / pods, 'request')}"
    return Finding(Diagnosis.TPOT_BATCH, f"{cause}, {running}", from_windows=True)


def _ttft(ttft: SloAssessment | None, assessment: Assessment, *, pods: int, queued: bool) -> Finding:
    """Queue-bound or prefill-bound: by a queue that is too long now, then by where TTFT was spent.

    ``ttft`` is None unless it burns. A request or two that wait for the next step are no queue: at 50 ms a step and 3
    requests/s one look in seven sees them.
    """
    traffic = assessment.traffic
    burns = [_burn(ttft)] if ttft is not None else []
    if queued:
        parts = [*burns, f"{count(traffic.waiting, 'request')} wait{'s' if traffic.waiting == 1 else ''}"]
        return Finding(Diagnosis.QUEUE_BOUND, ", ".join([*parts, *_wait(traffic)]))
    if (share := _queue_share(traffic)) >= QUEUE_SHARE:
        cause = ", ".join([*burns, f"{share:.0%} of it is queue time"])
        return Finding(Diagnosis.QUEUE_BOUND, cause, from_windows=True)
    cause = ", ".join([*burns, "the queue is empty"])
    if _lone(ttft, assessment, pods):
        return Finding(Diagnosis.INFEASIBLE, cause, from_windows=True, sli=Sli.TTFT)
    return Finding(Diagnosis.PREFILL_BOUND, cause, from_windows=True)


def _wait(traffic: Traffic) -> list[str]:
    wait = predicted_wait_seconds(traffic)
    return [] if wait == float("inf") else [f"the queue is {duration(wait) if wait >= 1 else milliseconds(wait)} long"]


def _queue_share(traffic: Traffic) -> float:
    if traffic.mean_queue_seconds is None or not traffic.mean_ttft_seconds:
        return 0.0
    return traffic.mean_queue_seconds / traffic.mean_ttft_seconds


def _lone(slo: SloAssessment | None, assessment: Assessment, pods: int) -> bool:
    """Whether requests run (nearly) alone, now and on average over the last minute, and miss alone: then no lever makes
    them faster."""
    traffic, decoding = assessment.traffic, decoding_lately(assessment)
    if slo is None or traffic.running > pods or traffic.waiting > 0 or decoding > pods:
        return False
    return misses_alone(slo, traffic, pods=pods, decoding=decoding if slo.sli is Sli.TPOT else 0.0)


def decoding_lately(assessment: Assessment) -> float:
    """Sequences of the pool that decode, on average over the last minute. By Little's law: tokens per second x seconds
    per token. 0 where no TPOT is promised or known."""
    tpot = assessment.tpot
    median = quantile_of(tpot, 0.5) if tpot is not None else None
    return assessment.traffic.generation_tokens_per_second * (median.seconds if median is not None else 0.0)


def _burn(slo: SloAssessment) -> str:
    windows = [w for w in (slo.window(60), slo.window(300)) if w is not None]
    said = " and ".join(
        f"{times(w.burn.point)}{' its budget' if i == 0 else ''} over {w.seconds // 60} min"
        for i, w in enumerate(windows)
    )
    return f"{slo.sli} burns {said or 'its budget'}"
