"""Readings in, one Assessment a tier out: what may be believed, what is kept, what burns. Time is an argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from math import inf, isnan

from tierkeeper.slo import messages
from tierkeeper.slo.burn import CONTROL_WINDOWS, Windows
from tierkeeper.slo.evaluate import evaluate, thresholds
from tierkeeper.slo.model import Assessment, Sentence, SignalState, Sli, SloAssessment, Traffic
from tierkeeper.slo.readings import Figures, Problem, Readings, value_problem
from tierkeeper.slo.signals import LARGEST, LEAST, SignalKind, Stat
from tierkeeper.tier import Objective, TierKey

SCRAPES_TO_FIRST_SAMPLES = 4
"""Scrapes after the first pod became Ready within which missing series are expected and not an error."""

SCRAPES_TO_STALE = 3
"""Scrapes without a new sample after which a pod's figures are too old to act on."""

_GAUGES = (SignalKind.RUNNING, SignalKind.WAITING, SignalKind.WAITING_FLOOR, SignalKind.KV_CACHE_USAGE)
_COUNTED = (
    SignalKind.REQUESTS,
    SignalKind.FINISHED,
    SignalKind.PROMPT_TOKENS,
    SignalKind.GENERATION_TOKENS,
    SignalKind.REJECTED,
    SignalKind.PREEMPTIONS,
)
_MEANS = (
    SignalKind.QUEUE_TIME,
    SignalKind.PREFILL_TIME,
    SignalKind.TTFT_TIME,
    SignalKind.PROMPT_LENGTH,
    SignalKind.OUTPUT_LENGTH,
)
_SUM, _COUNT = Stat.SUM.value, Stat.COUNT.value
_SEVERITY = (
    SignalState.OK,
    SignalState.NO_TRAFFIC,
    SignalState.AMBIGUOUS,
    SignalState.STALE,
    SignalState.NO_DATA,
    SignalState.SOURCE_DOWN,
)


_Gauges = Mapping[SignalKind, Sequence[float]]
"""By kind, in the order of the observed pods."""


@dataclass(slots=True)
class _Verdict:
    """A state with its cause and one sentence."""

    state: SignalState
    reason: str
    said: str | Sentence


def assess(
    *,
    now: float,
    key: TierKey,
    objective: Objective | None,
    readings: Readings | None,
    live_pods: Collection[str],
    ready_since: float | None,
    previous: Assessment | None,
    scrape_interval_seconds: float,
    source_error: tuple[str, str] | None = None,
    windows: Windows = CONTROL_WINDOWS,
) -> Assessment:
    """What one snapshot says of one tier.

    ``now`` and ``ready_since`` (when the first of the present Ready pods became Ready) are monotonic seconds.
    ``live_pods`` names the Ready pods: gauges of other pods are ignored. ``source_error`` is (reason, message) of a
    snapshot that failed, in whole or in part; the readings are then not looked at. ``previous`` is the last
    assessment of this tier. Raises nothing: what cannot be used becomes a state with a reason.
    """
    live = frozenset(live_pods)
    tick = _Tick(now, key, objective, live, ready_since, previous, scrape_interval_seconds, windows)
    if source_error is not None:
        return tick.unknown(_Verdict(SignalState.SOURCE_DOWN, *source_error), readings=None)
    observed = tick.observed(readings) if readings else []
    missing = tick.missing(readings, observed)
    if missing is not None or readings is None:
        return tick.unknown(missing or tick.no_series(), readings=readings, observed=observed)
    return tick.known(readings, observed)


@dataclass(slots=True)
class _Tick:
    """The arguments of one ``assess`` call, so that its steps need not hand them on one by one."""

    now: float
    key: TierKey
    objective: Objective | None
    live_pods: frozenset[str]
    ready_since: float | None
    previous: Assessment | None
    scrape_interval: float
    windows: Windows

    def missing(self, readings: Readings | None, observed: list[str]) -> _Verdict | None:
        """Why there is nothing to look at: no pod, no series, or series that stand still. None where there is."""
        if not self.live_pods:
            return _Verdict(
                SignalState.NO_DATA, "WaitingForSamples", "No pod is Ready yet, so there is nothing to measure."
            )
        if readings is None or not (observed or self._reporting(readings)):
            return self.no_series()
        if self._frozen(readings):
            return _Verdict(
                SignalState.STALE,
                "EvaluationFrozen",
                f"Prometheus has given the same evaluation time for {self.now - self._moved_at(readings):.0f} s: "
                "its answers are repeated, not measured.",
            )
        if not observed:
            age = min(self._age(readings, pod) for pod in self._reporting(readings))
            return _Verdict(
                SignalState.STALE,
                "SamplesTooOld",
                f"The newest sample is {age:.0f} s old by Prometheus' own clock, more than {SCRAPES_TO_STALE} scrapes "
                f"of {self.scrape_interval:g} s: is the pool still scraped?",
            )
        requests, windows = SignalKind.REQUESTS, self.windows
        if readings.rate(requests, windows.rate) is None or readings.rate(requests, windows.evidence) is None:
            return self.no_series()
        return None

    def no_series(self) -> _Verdict:
        """Ready pods without series: expected at first, and a fault after that."""
        grace = SCRAPES_TO_FIRST_SAMPLES * self.scrape_interval
        count = messages.count(len(self.live_pods), "pod")
        if self.ready_since is None or self.now - self.ready_since <= grace:
            return _Verdict(
                SignalState.NO_DATA,
                "WaitingForSamples",
                f"{count} Ready; the first samples are due within {grace:.0f} s of readiness.",
            )
        return _Verdict(
            SignalState.NO_DATA,
            "NoSeries",
            f"{count} Ready, but Prometheus has no usable series of this tier: check that a PodMonitor selects the "
            "pods and that the tier, namespace and pod labels of the operator's settings match.",
        )

    def observed(self, readings: Readings) -> list[str]:
        """Live pods with series young enough to act on, sorted."""
        limit = SCRAPES_TO_STALE * self.scrape_interval
        ages = readings.pods.get(SignalKind.SAMPLE_AGE, {})
        return [pod for pod in self._reporting(readings) if ages.get(pod, inf) <= limit]  # NaN is never young

    def known(self, readings: Readings, observed: list[str]) -> Assessment:
        """There are fresh series: read the traffic, then each promised SLO."""
        gauges = {kind: _of_pods(readings.pods.get(kind), observed) for kind in _GAUGES}
        problem = self._traffic_problem(readings, observed, gauges)
        if problem is not None:
            return self.unknown(
                _Verdict(SignalState.AMBIGUOUS, problem.reason, f"{problem.message}: not used."),
                readings=readings,
                observed=observed,
            )
        traffic = self._traffic(readings, observed, gauges)
        idle = (
            traffic.observed_pods == traffic.live_pods
            and not traffic.running
            and not traffic.waiting
            and not traffic.requests_5m
        )
        slos = {
            sli: evaluate(
                sli=sli,
                threshold=threshold,
                objective=self.objective,
                readings=readings,
                idle=idle,
                starting=self._starting,
                previous=self._previous_slo(sli),
                windows=self.windows,
            )
            for sli, threshold in thresholds(self.objective).items()
            if self.objective is not None
        }
        unknown = [s for s in slos.values() if not s.state.known]
        if unknown:
            worst = max(unknown, key=lambda s: _SEVERITY.index(s.state))
            verdict = _Verdict(worst.state, worst.reason, worst.said)
        elif idle:
            said = Sentence(messages.idle, (traffic, self.windows.evidence))
            verdict = _Verdict(SignalState.NO_TRAFFIC, "NoTraffic", said)
        else:
            said = Sentence(messages.traffic, (traffic, self.windows.evidence))
            verdict = _Verdict(SignalState.OK, "Ok", said)
        return self._assessment(verdict, slos=slos, traffic=traffic, readings=readings)

    def unknown(self, verdict: _Verdict, *, readings: Readings | None, observed: Sequence[str] = ()) -> Assessment:
        """Nothing can be said of any SLO. The budget left is a figure of weeks: an outage does not erase it."""
        slos = {
            sli: SloAssessment(
                sli=sli,
                threshold_seconds=threshold,
                state=verdict.state,
                reason=verdict.reason,
                said=verdict.said,
                budget_left=before.budget_left if (before := self._previous_slo(sli)) else None,
                period_requests=before.period_requests if before else None,
            )
            for sli, threshold in thresholds(self.objective).items()
        }
        traffic = Traffic(
            observed_pods=len(observed),
            live_pods=len(self.live_pods),
            unobserved=tuple(sorted(self.live_pods.difference(observed))),
        )
        return self._assessment(verdict, slos=slos, traffic=traffic, readings=readings)

    @property
    def _starting(self) -> bool:
        grace = SCRAPES_TO_FIRST_SAMPLES * self.scrape_interval
        return self.ready_since is None or self.now - self.ready_since <= grace

    def _previous_slo(self, sli: Sli) -> SloAssessment | None:
        return self.previous.slos.get(sli) if self.previous else None

    def _reporting(self, readings: Readings) -> list[str]:
        """Live pods that have the two queue series, however old."""
        running = readings.pods.get(SignalKind.RUNNING, {})
        waiting = readings.pods.get(SignalKind.WAITING, {})
        return sorted(self.live_pods.intersection(running, waiting))

    def _age(self, readings: Readings, pod: str) -> float:
        """Seconds since the pod's last sample; without that series (or with a NaN) endless."""
        age = readings.pods.get(SignalKind.SAMPLE_AGE, {}).get(pod, inf)
        return inf if isnan(age) else age

    def _moved_at(self, readings: Readings | None) -> float:
        """When Prometheus' evaluation time last moved, in monotonic seconds: now, unless it repeats itself."""
        before = self.previous
        if before is None or before.evaluation_moved_at is None:
            return self.now
        moved = readings is not None and readings.evaluated_at != before.evaluated_at
        return self.now if moved else before.evaluation_moved_at

    def _frozen(self, readings: Readings) -> bool:
        return self.now - self._moved_at(readings) > SCRAPES_TO_STALE * self.scrape_interval

    def _traffic_problem(self, readings: Readings, observed: list[str], gauges: _Gauges) -> Problem | None:
        rates = map(dict.values, readings.rates.values())
        # Nearly always all is well, which this shows without a step in Python for each figure. A NaN fails it.
        everything = [*chain.from_iterable([*rates, *gauges.values()])]
        if sum(everything) <= LARGEST and min(everything, default=0.0) >= 0.0:
            return None
        for kind, shown in gauges.items():
            for pod, value in zip(observed, shown, strict=True):
                if not 0.0 <= value <= LARGEST:
                    return value_problem(value, f"{kind} of pod {pod}")
        for signal, stats in readings.rates.items():
            for value in stats.values():
                if not 0.0 <= value <= LARGEST:
                    return value_problem(value, str(signal))
        return None

    def _traffic(self, readings: Readings, observed: list[str], gauges: _Gauges) -> Traffic:
        window, evidence, rates = self.windows.rate, self.windows.evidence, readings.rates.get
        requests, finished, prompt, generation, rejected, preemptions = [
            _single(rates((kind, window))) for kind in _COUNTED
        ]
        queue, prefill, ttft, prompt_length, output_length = [_mean(rates((kind, window))) for kind in _MEANS]
        running, waiting, floor, usage = gauges.values()
        return Traffic(
            running=sum(running),
            waiting=sum(waiting),
            waiting_floor=sum(floor),
            requests_per_second=requests,
            finished_per_second=finished,
            prompt_tokens_per_second=prompt,
            generation_tokens_per_second=generation,
            rejected_per_second=rejected,
            preemptions_per_second=preemptions,
            mean_queue_seconds=queue,
            mean_prefill_seconds=prefill,
            mean_ttft_seconds=ttft,
            mean_prompt_tokens=prompt_length,
            mean_output_tokens=output_length,
            kv_cache_usage=None if _none_of(readings.pods.get(SignalKind.KV_CACHE_USAGE), observed) else max(usage),
            requests_5m=_single(rates((SignalKind.REQUESTS, evidence))) * evidence,
            observed_pods=len(observed),
            live_pods=len(self.live_pods),
            unobserved=tuple(sorted(self.live_pods.difference(observed))),
        )

    def _assessment(
        self, verdict: _Verdict, *, slos: dict[Sli, SloAssessment], traffic: Traffic, readings: Readings | None
    ) -> Assessment:
        before = self.previous
        since = before.clean_since if before and before.clean_since is not None else self.now
        evaluated_at = readings.evaluated_at if readings else before.evaluated_at if before else None
        return Assessment(
            key=self.key,
            state=verdict.state,
            reason=verdict.reason,
            said=verdict.said,
            slos=slos,
            traffic=traffic,
            clean_since=since if verdict.state.known else None,
            evaluated_at=evaluated_at,
            evaluation_moved_at=self._moved_at(readings),
        )


def _of_pods(figures: Figures | None, pods: Sequence[str]) -> list[float]:
    """A gauge of these pods, 0 where one has no such series."""
    return list(map(figures.get, pods, repeat(0.0))) if figures else [0.0] * len(pods)


def _none_of(figures: Figures | None, pods: Sequence[str]) -> bool:
    """Whether none of these pods has such a series."""
    return not figures or figures.keys().isdisjoint(pods)


def _single(figures: Figures | None) -> float:
    """The rate of a signal with one figure, 0 where it has no series."""
    rate = figures.get("", 0.0) if figures else 0.0
    return rate if rate >= LEAST else 0.0


def _mean(figures: Figures | None) -> float | None:
    """Sum over count of a signal with both; None where there is nothing to divide."""
    if not figures or (count := figures.get(_COUNT, 0.0)) < LEAST:
        return None
    total = figures.get(_SUM)
    return None if total is None else total / count
