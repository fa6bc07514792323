"""One promised SLO of one tier: its error ratios over the windows, what burns, and whether it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tierkeeper.slo import messages
from tierkeeper.slo.burn import Windows, budget_left, evident, optimistic, pair_burns, point
from tierkeeper.slo.histogram import ErrorRatio, quantile, top_finite_edge
from tierkeeper.slo.model import Histogram, SignalState, Sli, SloAssessment, WindowSli
from tierkeeper.slo.readings import FAMILIES, Problem, Readings, WindowHistogram
from tierkeeper.tier import Objective

SECONDS_PER_DAY = 86400


def thresholds(objective: Objective | None) -> dict[Sli, float]:
    """The promised SLIs with their thresholds in seconds; empty where the tier promises nothing."""
    if objective is None:
        return {}
    promised = {Sli.TTFT: objective.ttft_seconds, Sli.TPOT: objective.tpot_seconds}
    return {sli: seconds for sli, seconds in promised.items() if seconds is not None}


def evaluate(
    *,
    sli: Sli,
    threshold: float,
    objective: Objective,
    readings: Readings,
    idle: bool,
    starting: bool,
    previous: SloAssessment | None,
    windows: Windows,
) -> SloAssessment:
    """The state of one SLO of a tier whose traffic signals can be believed.

    ``idle``: the count and queue series say that there is no request; no histogram can contradict that. ``starting``:
    the pool became Ready so recently that missing series are expected. The two fastest windows decide whether the SLO
    can be judged; a slower one that is missing or broken is left out.
    """
    histograms = readings.histograms(sli, control=windows.seconds)
    slo = _Slo(
        sli=sli,
        threshold=threshold,
        objective=objective,
        previous=previous,
        windows=windows,
        period=histograms.get(objective.window_days * SECONDS_PER_DAY),
    )
    fast = [histograms[s] for s in (windows.rate, windows.evidence) if s in histograms]
    slis = slo.window_slis(histograms)
    if idle:
        return slo.quiet(fast, slis, f"No traffic: {messages.no_requests(sli, windows.evidence)}")
    evidence = histograms.get(windows.evidence)
    if evidence is None:
        return slo.no_series(starting=starting)
    for window in fast:
        if window.problem is not None:
            return slo.unusable(window.metric, window.problem)
    histogram = evidence.histogram
    if histogram is None or histogram.total <= 0:
        return slo.quiet(fast, slis, messages.no_requests(sli, windows.evidence))
    measured = evidence.error_ratio(threshold)
    if measured is None:
        return slo.unmeasurable(evidence.metric, top_finite_edge(histogram) or 0.0)
    return slo.judged(evidence.metric, histogram, measured, slis)


@dataclass(slots=True)
class _Slo:
    """What every outcome of one SLO shares."""

    sli: Sli
    threshold: float
    objective: Objective
    previous: SloAssessment | None
    windows: Windows
    period: WindowHistogram | None
    """The histogram over the budget's period."""

    def window_slis(self, histograms: Mapping[int, WindowHistogram]) -> tuple[WindowSli, ...]:
        """The control windows with requests in them that can be measured, ascending."""
        budget = self.objective.error_budget
        found = [
            histograms[seconds].sli(seconds, threshold=self.threshold, budget=budget)
            for seconds in self.windows.seconds
            if seconds in histograms
        ]
        return tuple(one for one in found if one is not None)

    def quiet(self, fast: Sequence[WindowHistogram], slis: tuple[WindowSli, ...], message: str) -> SloAssessment:
        """Known, with nothing to judge: no request in the evidence window."""
        slower = tuple(w for w in slis if w.seconds > self.windows.evidence)
        metric = fast[0].metric if fast else None
        return self._result(SignalState.NO_TRAFFIC, "NoTraffic", message, metric=metric, windows=slower)

    def no_series(self, *, starting: bool) -> SloAssessment:
        """The pods report, but none has this histogram over the evidence window."""
        if starting:
            message = f"{self.sli} waits for its second sample: a rate needs two."
            return self._result(SignalState.NO_DATA, "WaitingForSamples", message)
        tried = ", ".join(FAMILIES[self.sli])
        return self._result(
            SignalState.NO_DATA, "NoSeries", f"The pods report, but have no {self.sli} histogram; names tried: {tried}."
        )

    def unusable(self, metric: str, problem: Problem) -> SloAssessment:
        """A histogram that is none."""
        text = f"{self.sli}: in {metric} {problem.message}: not used."
        return self._result(SignalState.AMBIGUOUS, problem.reason, text, metric=metric)

    def unmeasurable(self, metric: str, top: float) -> SloAssessment:
        """A target above every edge is neither met nor missed."""
        text = messages.unmeasurable(sli=self.sli, threshold=self.threshold, top=top, metric=metric)
        return self._result(SignalState.AMBIGUOUS, "TargetUnmeasurable", text, metric=metric)

    def judged(
        self, metric: str, histogram: Histogram, measured: ErrorRatio, slis: tuple[WindowSli, ...]
    ) -> SloAssessment:
        """Figures that can be believed: the evidence window's histogram and error ratio, and all windows."""
        evidence = next(w for w in slis if w.seconds == self.windows.evidence)
        p99, neighbours = quantile(histogram, 0.99), measured.neighbours
        message = messages.slo(sli=self.sli, window=evidence, p99=p99, threshold=self.threshold, neighbours=neighbours)
        budget, pairs = self.objective.error_budget, self.windows.pairs
        spends = any(w.ratio.point > budget for w in slis)  # no pair asks for less than the budget
        return SloAssessment(
            sli=self.sli,
            threshold_seconds=self.threshold,
            state=SignalState.OK,
            reason="Ok",
            message=message,
            metric=metric,
            windows=slis,
            p50=quantile(histogram, 0.5),
            p95=quantile(histogram, 0.95),
            p99=p99,
            boundary_aligned=measured.aligned,
            nearest_aligned_seconds=neighbours,
            period_requests=self._period_requests(),
            budget_left=self._budget_left(),
            burning=spends and any(pair_burns(pair, slis, budget=budget, reading=point) for pair in pairs),
            urgent=spends and pair_burns(pairs[0], slis, budget=budget, reading=optimistic),
            met=self._met(evidence),
        )

    def _met(self, window: WindowSli) -> bool | None:
        """Kept while the share is within budget, missed once more than chance exceeds it; in between as it was."""
        budget = self.objective.error_budget
        if window.ratio.point <= budget:
            return True
        if evident(window.ratio.point, window.total, above=budget):
            return False
        return self.previous.met if self.previous else None

    def _budget_left(self) -> float | None:
        """Budget left by the period's own counts; the last known figure while they cannot tell."""
        histogram = self.period.histogram if self.period else None
        measured = self.period.error_ratio(self.threshold) if self.period else None
        if histogram is None or measured is None:
            return self.previous.budget_left if self.previous else None
        return budget_left(error_ratio=measured.ratio.point, total=histogram.total, budget=self.objective.error_budget)

    def _period_requests(self) -> float | None:
        """How many requests the figure above rests on; like it, the last known number while they cannot be read."""
        histogram = self.period.histogram if self.period else None
        if histogram is None:
            return self.previous.period_requests if self.previous else None
        return histogram.total

    def _result(
        self,
        state: SignalState,
        reason: str,
        message: str,
        *,
        metric: str | None = None,
        windows: tuple[WindowSli, ...] = (),
    ) -> SloAssessment:
        return SloAssessment(
            sli=self.sli,
            threshold_seconds=self.threshold,
            state=state,
            reason=reason,
            message=message,
            metric=metric,
            windows=windows,
            budget_left=self._budget_left(),
            period_requests=self._period_requests(),
        )
