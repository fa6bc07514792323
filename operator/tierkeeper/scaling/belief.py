"""How much the pool carries: what is believed of its capacity, learned from how much of the budget which load cost.

Load is measured as strain: the demand divided by what the ready replicas should carry by the model, so that 1 is the
model's own limit. The belief is a grid of hypotheses, each a place of the cliff (the strain at which exactly the error
budget is missed) and a floor (the share that misses at any load). Every minute weighs each hypothesis by how well it
foretells that minute's misses:

    misses(strain) = floor + budget * (strain / cliff) ** STEEPNESS

That one rule does what a learned margin must. Misses at a strain that everybody expects to hurt (a step in load, a
replica lost) say nothing new. A clean minute says only that the cliff is not below the strain that was carried, so the
margin shrinks as fast as evidence comes and no faster; misses where none were expected move it at once.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

from tierkeeper.values import value

#: How fast misses grow with strain. Simulated 8B replicas on the Azure conversation trace: 20 % more load made them 11
#: times as many at a cap of 16 (exponent 13) and 2.4 times at 64 (exponent 5).
STEEPNESS = 14.0

#: Places of the cliff, as multiples of the model's limit, 6 % apart: 0.3 to 2.6.
CLIFFS = tuple(0.3 * 1.06**k for k in range(38))
FLOORS = (0.0, 0.5, 2.0, 8.0)
"""Share that misses at any load, in budgets. The floors above 1 are the hopeless tiers."""
_FLOOR_PRIOR = (0.85, 0.07, 0.05, 0.03)

#: Spread of the cliff before anything was seen, in ln: the model is within an eighth two times in three (simulated 8B
#: and 70B replicas in pools of 1 to 12 miss their budget at 0.95 to 1.2 of it).
PRIOR_SPREAD = 0.12

#: Evidence halves in about an hour and a half: prompts, caches and engines change within a day.
MEMORY_SECONDS = 7200.0

#: Misses come in bunches: a minute is worth at most this many independent requests, however many it held.
WORTH = 60.0

#: No hypothesis is held for less likely than exp(-12) of the best: what an hour has taught, two bad minutes can undo.
DOUBT = -12.0

#: Before the first minute has told the tier's own error budget, costs are counted in that of a 99 % objective.
FRESH_BUDGET = 0.01

#: A minute may go wrong for a reason that is not load (a node hiccup, a stuck pod): one in fifty.
ODD_MINUTES = 0.02


@value(frozen=True, slots=True)
class Belief:
    """Log-weights of the hypotheses, and what follows from them."""

    weights: tuple[float, ...]
    costs: tuple[float, ...]
    """Budgets that load is expected to cost at each strain of CLIFFS: doubt counts by what it may cost."""
    floor: float
    """Expected share of misses at any load, in budgets."""
    minutes: float = 0.0
    """Minutes of evidence that count."""


@lru_cache(maxsize=1)
def fresh() -> Belief:
    """What is believed before the pool has shown anything: the model, on the safe side, at FRESH_BUDGET.

    The first minute that is learned from weighs it by the tier's own budget.
    """
    return _belief(_prior(), 0.0, FRESH_BUDGET)


def learn(belief: Belief, *, strain: float, misses: float, total: float, budget: float, seconds: float) -> Belief:
    """The belief after ``seconds`` in which ``misses`` of ``total`` requests were bad at ``strain``.

    ``total`` is above zero: only minutes with requests count. Time without any is not learned from, and nothing is
    forgotten in it. At a ``strain`` of zero there is only that: time in which older evidence fades.
    """
    kept = math.exp(-seconds / MEMORY_SECONDS)
    faded = 1.0 - kept
    worth = total / (1.0 + total / WORTH)
    bad = min(misses / total, 1.0) * worth
    chances = _log_chances(strain, bad, worth, budget) if strain > 0 else [0.0] * len(belief.weights)
    weights = [kept * w + faded * p + c for w, p, c in zip(belief.weights, _prior(), chances, strict=True)]
    return _belief(weights, kept * belief.minutes + seconds / 60.0, budget)


def strain_for(belief: Belief, *, share: float) -> float:
    """The strain at which ``share`` of the budget (0.5: half of it) is spent, floor included.

    Where the floor alone spends more, replicas cannot help: the strain at which load adds a third of the share.
    """
    return _strain_at(belief.costs, max(share - belief.floor, share / 3.0))


def _strain_at(costs: tuple[float, ...], share: float) -> float:
    """The strain whose cost is ``share``, between two of CLIFFS on the logarithm of both."""
    place = bisect_left(costs, share)
    if place == 0:
        return CLIFFS[0]
    if place == len(costs):
        return CLIFFS[-1]
    low, high = costs[place - 1], costs[place]
    part = math.log(share / low) / math.log(high / low) if high > low > 0 else 0.0
    return float(CLIFFS[place - 1] * (CLIFFS[place] / CLIFFS[place - 1]) ** part)


@lru_cache(maxsize=1)
def _prior() -> tuple[float, ...]:
    return tuple(math.log(p) - 0.5 * (math.log(c) / PRIOR_SPREAD) ** 2 for p in _FLOOR_PRIOR for c in CLIFFS)


def _log_chances(strain: float, bad: float, worth: float, budget: float) -> list[float]:
    """ln of the probability of these misses under each hypothesis, floors first."""
    odd = ODD_MINUTES / (worth + 1.0)
    ways = math.lgamma(worth + 1) - math.lgamma(bad + 1) - math.lgamma(worth - bad + 1)
    good, scale = worth - bad, budget * strain**STEEPNESS
    by_load = [scale * inverse for inverse in _INVERSE]
    log, usual = math.log, 1.0 - ODD_MINUTES
    sums = [at_any + load for at_any in [floor * budget for floor in FLOORS] for load in by_load]
    shares = [(share if share < _MOST else _MOST) or 1e-7 for share in sums]
    chances = [ways + good * one for one in map(log, [1.0 - share for share in shares])]
    if bad > 0.0:  # most minutes are clean: a logarithm less for each of the hypotheses
        chances = [chance + bad * one for chance, one in zip(chances, map(log, shares), strict=True)]
    return list(map(log, [usual * chance + odd for chance in map(math.exp, chances)]))


_INVERSE = tuple(c**-STEEPNESS for c in CLIFFS)


_MOST = 0.98
"""Even a hopeless minute lets some request through."""


def _belief(weights: Sequence[float], minutes: float, budget: float) -> Belief:
    top, count = max(weights), len(CLIFFS)
    least = top + DOUBT
    kept = tuple([w - top if w > least else DOUBT for w in weights])
    masses = list(map(math.exp, kept))
    total = sum(masses)
    by_floor = [masses[start : start + count] for start in range(0, len(masses), count)]
    by_cliff = [sum(column) / total for column in zip(*by_floor, strict=True)]
    costs = tuple(expected_costs(by_cliff, budget))
    floor = sum([f * sum(row) for f, row in zip(FLOORS, by_floor, strict=True)]) / total
    return Belief(kept, costs, floor, minutes)


def expected_costs(by_cliff: Sequence[float], budget: float) -> list[float]:
    """Budgets that a strain at each place costs, where ``by_cliff`` is how likely the cliff is at each: a cliff ``n``
    places below costs ``_RISE ** n``, but never more than all, 1 / budget.

    From the highest place down, so that each follows from the one above: one step each, where adding up all cliffs for
    each place would take 38 (60 us a minute and tier).
    """
    places, most = len(by_cliff), 1.0 / budget
    reach = math.ceil(math.log(most) / math.log(_RISE))  # from so many places below on, all is missed
    beyond = list(itertools.accumulate(by_cliff, initial=0.0))
    rising = sum([by_cliff[j] * _RISE ** (places - j) for j in range(max(places - reach + 1, 0), places)])
    costs = []
    for lowest in range(places - reach, -reach, -1):  # of the cliffs that do not cost all: each place has its own
        rising /= _RISE
        if lowest >= 0:
            rising += by_cliff[lowest] * _RISE ** (reach - 1)
        costs.append(rising + most * beyond[max(lowest, 0)])
    return costs[::-1]


_RISE = (CLIFFS[1] / CLIFFS[0]) ** STEEPNESS
"""Misses at a strain one place higher."""
