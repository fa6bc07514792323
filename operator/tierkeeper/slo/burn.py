"""How fast an error budget burns, over which windows, and when a burn is more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt

from tierkeeper.slo.model import Assessment, Ratio, WindowSli, find_window

SCRAPES_PER_WINDOW = 4
"""A rate needs two samples; four scrapes a window still leave two when one is lost and one falls outside."""

MIN_BAD_REQUESTS = 3
"""Fewer misses than this are noise in any window: one bad request in ten is no burn.

It is also the smallest count that shows "burn > 1" at a 1 % budget: 3 of 100 has a Wilson bound of 1.03 %.
"""

MAX_ERROR_RATIO_ASKED = 0.5
"""No pair asks for more than half of the requests to be bad: at a 90 % objective the ceiling of the burn is 10, so
6x would be 60 % and at an 80 % objective 6x could never be reached."""

_Z_95 = 1.96
"""Normal quantile of a two-sided 95 % interval."""


@dataclass(frozen=True, slots=True)
class BurnPair:
    """A burn counts when the short and the long window both exceed ``factor``: the long one is the evidence, the
    short one says that it still goes on (multi-window alerts of the SRE workbook, here with windows for control)."""

    short_seconds: int
    long_seconds: int
    factor: float

    def error_ratio(self, budget: float) -> float:
        """The share of bad requests above which this pair burns, at an error budget in (0, 1).

        6x at 1 % is 0.06; at 10 % it is 0.5 and not 0.6; at 60 % it is 0.6: never below the budget itself.
        """
        return max(budget, min(self.factor * budget, MAX_ERROR_RATIO_ASKED))


@dataclass(frozen=True)
class Windows:
    """The control windows, fastest pair first."""

    pairs: tuple[BurnPair, ...]

    @cached_property
    def seconds(self) -> tuple[int, ...]:
        """All distinct windows, ascending."""
        return tuple(sorted({s for pair in self.pairs for s in (pair.short_seconds, pair.long_seconds)}))

    @property
    def rate(self) -> int:
        """Window of rates and means, in seconds: the shortest one."""
        return self.pairs[0].short_seconds

    @property
    def evidence(self) -> int:
        """Window of quantiles and of the request count behind them, in seconds: 5 minutes by default."""
        return self.pairs[0].long_seconds

    def for_scrape_interval(self, seconds: int) -> Windows:
        """The same windows, stretched where the shortest holds fewer than four scrapes: 60 s scrapes give 240 s."""
        stretch = max(1.0, SCRAPES_PER_WINDOW * seconds / self.rate)
        return Windows(
            tuple(
                BurnPair(ceil(p.short_seconds * stretch), ceil(p.long_seconds * stretch), p.factor) for p in self.pairs
            )
        )


CONTROL_WINDOWS = Windows((BurnPair(60, 300, 6.0), BurnPair(300, 1800, 3.0), BurnPair(1800, 21600, 1.0)))
"""Paging windows are too slow to scale by: 14.4x over 1 h needs 8.6 minutes of total failure at a 1 % budget. 6x over
1 and 5 minutes needs 18 s (6 x 0.01 x 300 s), or 3 minutes at 10 % bad."""


def burn(ratio: Ratio, *, budget: float) -> Ratio:
    """Error ratio / error budget, bound by bound: 0.031 at a budget of 0.01 burns 3.1x."""
    return Ratio(lower=ratio.lower / budget, point=ratio.point / budget, upper=ratio.upper / budget)


def wilson_lower(bad: float, total: float) -> float:
    """Lower end of the Wilson 95 % interval of a share: 3 of 100 -> 0.0103, 11 of 100 -> 0.0625, 0 of n -> 0.

    E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22 (1927).
    """
    if total <= 0:
        return 0.0
    share, z2 = bad / total, _Z_95 * _Z_95
    center = share + z2 / (2 * total)
    spread = _Z_95 * sqrt(max(share * (1 - share), 0.0) / total + z2 / (4 * total * total))
    return max(0.0, (center - spread) / (1 + z2 / total))


def evident(share: float, total: float, *, above: float) -> bool:
    """Whether ``share`` of ``total`` requests being bad shows a true share above ``above``, and not chance."""
    bad = share * total
    return bad >= MIN_BAD_REQUESTS - 1e-6 and wilson_lower(bad, total) > above


def pair_burns(pair: BurnPair, windows: Sequence[WindowSli], *, budget: float) -> bool:
    """Whether both windows of a pair exceed its factor, the long one beyond chance. A missing window never burns."""
    asked, short = pair.error_ratio(budget), find_window(windows, pair.short_seconds)
    if short is None or short.ratio.point <= asked:
        return False
    long = find_window(windows, pair.long_seconds)
    return long is not None and long.ratio.point > asked and evident(long.ratio.point, long.total, above=asked)


def budget_left(*, error_ratio: float, total: float, budget: float) -> float | None:
    """Share of the period's error budget not yet spent: 1 - error ratio / budget; negative once overspent.

    None while so few requests were seen that three misses would not even fit the budget (300 at 1 %): a single bad
    request in a quiet month must not freeze a tier.
    """
    return 1.0 - error_ratio / budget if budget_tells(total=total, budget=budget) else None


def budget_tells(*, total: float, budget: float) -> bool:
    """Whether so many requests are enough to know how much of the budget is left."""
    return total * budget >= MIN_BAD_REQUESTS


def requests_to_tell(budget: float) -> int:
    """The fewest requests at which ``budget_tells``: 300 at 1 %."""
    return ceil(round(MIN_BAD_REQUESTS / budget, 6))


def budget_overdue(assessment: Assessment | None, *, budget: float) -> bool:
    """Whether an error budget is unknown though a shorter window holds all the requests that it takes to know it."""
    slos = assessment.slos.values() if assessment is not None else ()
    return any(
        slo.budget_left is None and any(budget_tells(total=w.total, budget=budget) for w in slo.windows) for slo in slos
    )
