"""How fast the error budget may be spent now: it is there to be spent, evenly and never to the end."""

from __future__ import annotations

from collections.abc import Sequence

from tierkeeper.slo.evaluate import thresholds
from tierkeeper.slo.model import Assessment, WindowSli
from tierkeeper.tier import BudgetPolicy, Objective

#: At this share of the budget, spent over the last hours, no load is allowed to cost any more of it. What is left is
#: for what cannot be foreseen (steps, lost replicas), and for the freeze at 80 %.
FULL = 0.7

#: What load may cost at most and at least, in budgets: never more than is promised, however clean the past hours were;
#: and a quarter even when all is spent, since the last tenths cost as many replicas as all the rest.
MOST, LEAST = 1.0, 0.25

#: How steeply spending slows as it nears FULL.
SLOPE = 3.0

#: Before anything is known, the pool counts as having spent half of that over so many requests.
PRIOR_REQUESTS = 300.0

#: Half an hour counts half: a burst must slow the spending before it has passed into the six hours.
SHORT_SHARE = 0.5


def allowed_share(objective: Objective, assessment: Assessment) -> float:
    """The share of the budget that load may cost now, LEAST to MOST.

    The fixed point: at a steady 0.57 of the budget spent, 0.57 is allowed (3 x (1 - 0.57 / 0.7)).
    """
    hours, half = _windows(objective, assessment, 21600), _windows(objective, assessment, 1800)
    spent = max(_spent(objective, hours), SHORT_SHARE * _spent(objective, half))
    share = min(SLOPE * (1.0 - spent / FULL), MOST) * _caution(objective.budget, assessment, hours)
    return max(share, LEAST)


def overspent(objective: Objective, assessment: Assessment) -> bool:
    """Whether the last hours have spent more of the budget than there is for them."""
    return _spent(objective, _windows(objective, assessment, 21600)) >= 1.0


def _windows(objective: Objective, assessment: Assessment, seconds: int) -> list[WindowSli | None]:
    """Of the promises that are planned for: what cannot be kept spends nothing."""
    promised = thresholds(objective)
    return [slo.window(seconds) for sli, slo in assessment.slos.items() if sli in promised]


def _spent(objective: Objective, windows: Sequence[WindowSli | None]) -> float:
    """Budgets spent over a window, by all promises together."""
    misses, total = 0.0, 0.0
    for window in windows:
        if window is not None:
            requests = window.total
            misses += window.ratio.point * requests
            total = requests if requests > total else total
    prior = 0.5 * FULL * PRIOR_REQUESTS
    return (misses / objective.error_budget + prior) / (total + PRIOR_REQUESTS)


def _caution(policy: BudgetPolicy, assessment: Assessment, hours: Sequence[WindowSli | None]) -> float:
    """1 up to the warning, down to LEAST at the freeze: a period's budget that runs low is spent ever more slowly.

    That is for what the hours have forgotten. Of a period that has just begun they hold all there is, and two minutes
    of a quarter of an hour are no record of a month.
    """
    spent = assessment.budget_spent_percent
    if spent is None or spent <= policy.warn_percent:
        return 1.0
    frozen = spent >= policy.freeze_percent
    low = 1.0 if frozen else (spent - policy.warn_percent) / (policy.freeze_percent - policy.warn_percent)
    return 1.0 - (1.0 - LEAST) * low * _older(assessment, hours)


def _older(assessment: Assessment, windows: Sequence[WindowSli | None]) -> float:
    """Share of the period's requests that came before the last hours; 1 where that cannot be told."""
    period = max([slo.period_requests or 0.0 for slo in assessment.slos.values()], default=0.0)
    hours = max([window.total for window in windows if window is not None], default=0.0)
    return max(0.0, 1.0 - hours / period) if period > 0 else 1.0
