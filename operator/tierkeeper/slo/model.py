"""The values that flow from a metrics snapshot to an assessment. Seconds and plain counts throughout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import StrEnum

from tierkeeper.tier import TierKey
from tierkeeper.values import value


class Sli(StrEnum):
    """A service level indicator that a tier may promise."""

    TTFT = "TTFT"
    """Time to first token: arrival in the engine's front end to the first token, queueing included."""
    TPOT = "TPOT"
    """Time per output token of one request: decode time / (tokens - 1)."""


class SignalState(StrEnum):
    """Whether a signal may be believed. Only OK and NO_TRAFFIC may move anything; NO_TRAFFIC never scales up."""

    OK = "Ok"
    NO_TRAFFIC = "NoTraffic"
    NO_DATA = "NoData"
    STALE = "Stale"
    AMBIGUOUS = "Ambiguous"
    SOURCE_DOWN = "SourceDown"

    @property
    def known(self) -> bool:
        return self in _KNOWN


_KNOWN = frozenset({SignalState.OK, SignalState.NO_TRAFFIC})


@value(frozen=True, slots=True)
class Sentence:
    """What a sentence is written from, when it is read: most of a tick's never are, as a status is written once a
    minute."""

    write: Callable[..., str]
    figures: tuple[object, ...]

    def __str__(self) -> str:
        return self.write(*self.figures)


@value(frozen=True, slots=True)
class Sample:
    """One element of an instant vector: labels, value (may be NaN or infinite), evaluation time in Unix seconds."""

    labels: Mapping[str, str]
    value: float
    at: float


@value(frozen=True, slots=True)
class Histogram:
    """Edges in seconds, ascending, the last one infinite, and at each the cumulative count of observations.

    Two plain tuples and not one of buckets: a fleet has a hundred thousand buckets a tick, and all tiers of one engine
    share their edges.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def total(self) -> float:
        return self.counts[-1] if self.counts else 0.0


@value(frozen=True, slots=True)
class Ratio:
    """An error ratio with its bounds, each in [0, 1], ``lower <= point <= upper``.

    ``lower`` is the optimistic reading (misses counted from the next higher bucket edge), ``upper`` the pessimistic
    one. On an aligned threshold the three are equal.
    """

    lower: float
    point: float
    upper: float


@value(frozen=True, slots=True)
class Quantile:
    """A latency quantile in seconds. ``at_or_above`` means it lies in the open top bucket: at least this much."""

    seconds: float
    at_or_above: bool = False


@value(frozen=True, slots=True)
class WindowSli:
    """What one look-back window says about one SLO."""

    seconds: int
    total: float
    """Requests observed in the window."""
    ratio: Ratio
    burn: Ratio
    """Error ratio / error budget, same bounds: 1 spends the budget exactly over its period."""


def find_window(windows: Iterable[WindowSli], seconds: int) -> WindowSli | None:
    """The window of that length; None where it is missing."""
    for window in windows:  # asked a dozen times a tick of a tier: a generator would take twice as long
        if window.seconds == seconds:
            return window
    return None


@value(frozen=True, slots=True)
class SloAssessment:
    """One promised SLO: is it kept, how fast does its budget burn, and can the figures be believed."""

    sli: Sli
    threshold_seconds: float
    state: SignalState
    reason: str
    """CamelCase cause, e.g. NotANumber, NoSeries, WaitingForSamples, Timeout; the state's own name where it is Ok."""
    said: str | Sentence
    metric: str | None = None
    """Name of the histogram family in use."""
    windows: tuple[WindowSli, ...] = ()
    p99: Quantile | None = None
    boundary_aligned: bool = True
    nearest_aligned_seconds: tuple[float, ...] = ()
    """Where not aligned: the bucket edges around the threshold."""
    budget_left: float | None = None
    """Share of the period's error budget still unspent (negative once overspent); None until it is known."""
    period_requests: float | None = None
    """Requests of the period that are on record, which says how much that share rests on; None while not known."""
    burning: bool = False
    """True when some pair of control windows burns above its factor (point estimate)."""
    met: bool | None = None
    """None while the data cannot tell."""
    histogram: Histogram | None = None
    """What quantiles are read from: the evidence window's; None where it cannot be believed."""

    @property
    def message(self) -> str:
        return str(self.said)

    def window(self, seconds: int) -> WindowSli | None:
        return find_window(self.windows, seconds)

    @property
    def burns_now(self) -> bool:
        """Whether the last minute and the last five each missed more than the budget allows. What slower windows
        remember of a burn that is over does not count."""
        shown = (self.window(60), self.window(300))
        return all(window is not None and window.burn.point > 1.0 for window in shown)


@value(frozen=True, slots=True)
class Traffic:
    """What the pool is carrying, summed over its live pods. Rates are per second over the last minute unless named."""

    running: float = 0.0
    waiting: float = 0.0
    waiting_floor: float = 0.0
    """Lowest waiting count over the last minute: a queue that never emptied, not a blip."""
    requests_per_second: float = 0.0
    """First tokens per second: arrivals in a steady state; in overload read it beside ``waiting``."""
    finished_per_second: float = 0.0
    prompt_tokens_per_second: float = 0.0
    generation_tokens_per_second: float = 0.0
    rejected_per_second: float = 0.0
    preemptions_per_second: float = 0.0
    mean_queue_seconds: float | None = None
    mean_prefill_seconds: float | None = None
    mean_ttft_seconds: float | None = None
    mean_prompt_tokens: float | None = None
    mean_output_tokens: float | None = None
    kv_cache_usage: float | None = None
    """Highest share of KV blocks in use among the pods, in [0, 1]."""
    requests_5m: float = 0.0
    """Requests that got their first token within the last 5 minutes: the evidence behind a scale-down."""
    observed_pods: int = 0
    """Live pods with fresh series."""
    live_pods: int = 0
    """Ready pods by the cluster's account: ``observed_pods`` of ``live_pods`` report."""
    unobserved: tuple[str, ...] = ()
    """Names of the live pods without fresh series, sorted."""


@value(frozen=True, slots=True)
class Assessment:
    """Everything the loop knows of one tier at one tick."""

    key: TierKey
    state: SignalState
    """Worst state over the promised SLOs and the traffic signals."""
    reason: str
    said: str | Sentence
    slos: Mapping[Sli, SloAssessment] = field(default_factory=dict)
    traffic: Traffic = Traffic()
    clean_since: float | None = None
    """Monotonic seconds since when every tick was known (OK or NO_TRAFFIC); None while it is not."""
    evaluated_at: float | None = None
    """Prometheus' own clock at the last evaluation, in Unix seconds; only ever compared with itself."""
    evaluation_moved_at: float | None = None
    """Monotonic seconds of the tick at which ``evaluated_at`` last moved: a frozen source repeats itself."""

    @property
    def message(self) -> str:
        return str(self.said)

    @property
    def budget_spent_percent(self) -> float | None:
        """How much of the period's error budget is spent, of the promise that has spent most: above 100 once overspent;
        None until it is known of any."""
        left = [slo.budget_left for slo in self.slos.values() if slo.budget_left is not None]
        return 100.0 * (1.0 - min(left)) if left else None

    @property
    def ttft(self) -> SloAssessment | None:
        return self.slos.get(Sli.TTFT)

    @property
    def tpot(self) -> SloAssessment | None:
        return self.slos.get(Sli.TPOT)
