"""One promised SLO of one tier: its error ratios over the windows, what burns, and whether it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tierkeeper.slo import messages
from tierkeeper.slo.burn import BurnPair, Windows, budget_left, evident, pair_burns
from tierkeeper.slo.histogram import ErrorRatio, quantile, top_finite_edge
from tierkeeper.slo.model import (
    Histogram,
    Quantile,
    Sentence,
    SignalState,
    Sli,
    SloAssessment,
    WindowSli,
)
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
    period = histograms.get(objective.window_days * SECONDS_PER_DAY)
    slo = _Slo(sli, threshold, objective, objective.error_budget, previous, windows, period)
    minute, evidence = histograms.get(windows.rate), histograms.get(windows.evidence)
    fast = [window for window in (minute, evidence) if window is not None]
    slis = slo.window_slis(histograms)
    if idle:
        return slo.quiet(fast, slis, f"No traffic: {messages.no_requests(sli, windows.evidence)}")
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


def quantile_of(slo: SloAssessment, q: float) -> Quantile | None:
    """Another quantile than P99, None where there is none. A tick seldom decides by one: it is read for who asks."""
    return None if slo.histogram is None else quantile(slo.histogram, q)


@dataclass(slots=True)
class _Slo:
    """What every outcome of one SLO shares."""

    sli: Sli
    threshold: float
    objective: Objective
    budget: float
    """The objective's share of requests that may miss."""
    previous: SloAssessment | None
    windows: Windows
    period: WindowHistogram | None
    """The histogram over the budget's period."""

    def window_slis(self, histograms: Mapping[int, WindowHistogram]) -> tuple[WindowSli, ...]:
        """The control windows with requests in them that can be measured, ascending."""
        threshold, budget, found = self.threshold, self.budget, []
        for seconds in self.windows.seconds:
            shown = histograms.get(seconds)
            if shown is not None and (one := shown.sli(seconds, threshold, budget)) is not None:
                found.append(one)
        return tuple(found)

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
        seconds = self.windows.evidence
        (evidence,) = [w for w in slis if w.seconds == seconds]
        p99, neighbours = quantile(histogram, 0.99), measured.neighbours
        fastest, *slower = self.windows.pairs
        # No pair asks for less than the budget, and most tiers are within it.
        spends = max([w.ratio.point for w in slis]) > self.budget
        fast = spends and self._burns(fastest, slis)
        return SloAssessment(
            sli=self.sli,
            threshold_seconds=self.threshold,
            state=SignalState.OK,
            reason="Ok",
            said=Sentence(messages.slo, (self.sli, evidence, p99, self.threshold, neighbours)),
            metric=metric,
            windows=slis,
            p99=p99,
            boundary_aligned=measured.aligned,
            nearest_aligned_seconds=neighbours,
            period_requests=self._period_requests(),
            budget_left=self._budget_left(),
            burning=fast or (spends and any(self._burns(pair, slis) for pair in slower)),
            met=self._met(evidence, burns=fast),
            histogram=histogram,
        )

    def _burns(self, pair: BurnPair, slis: tuple[WindowSli, ...]) -> bool:
        return pair_burns(pair, slis, budget=self.budget)

    def _met(self, window: WindowSli, *, burns: bool) -> bool | None:
        """Kept while the share is within budget, missed once more than chance exceeds it; in between as it was. What
        ``burns`` exceeds a multiple of the budget by more than chance."""
        if window.ratio.point <= self.budget:
            return True
        if burns or evident(window.ratio.point, window.total, above=self.budget):
            return False
        return self.previous.met if self.previous else None

    def _budget_left(self) -> float | None:
        """Budget left by the period's own counts; the last known figure while they cannot tell."""
        histogram = self.period.histogram if self.period else None
        measured = self.period.error_ratio(self.threshold) if self.period else None
        if histogram is None or measured is None:
            return self.previous.budget_left if self.previous else None
        return budget_left(error_ratio=measured.ratio.point, total=histogram.total, budget=self.budget)

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
        said: str,
        *,
        metric: str | None = None,
        windows: tuple[WindowSli, ...] = (),
    ) -> SloAssessment:
        return SloAssessment(
            sli=self.sli,
            threshold_seconds=self.threshold,
            state=state,
            reason=reason,
            said=said,
            metric=metric,
            windows=windows,
            budget_left=self._budget_left(),
            period_requests=self._period_requests(),
        )
