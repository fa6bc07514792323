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

import math
from dataclasses import dataclass
from functools import lru_cache

#: How fast misses grow with strain. Simulated 8B replicas on the Azure conversation trace: 20 % more load made them 11
#: times as many at a cap of 16 (exponent 13) and 2.4 times at 64 (exponent 5).
STEEPNESS = 14.0

#: Places of the cliff, as multiples of the model's limit, 4 % apart: 0.25 to 2.9.
CLIFFS = tuple(0.25 * 1.04**k for k in range(63))
FLOORS = (0.0, 0.3, 1.0, 3.0, 10.0)
"""Share that misses at any load, in budgets. The floors above 1 are the hopeless tiers."""
_FLOOR_PRIOR = (0.80, 0.08, 0.05, 0.04, 0.03)

#: Spread of the cliff before anything was seen, in ln: the model is within 20 % two times in three.
PRIOR_SPREAD = 0.15

#: Evidence halves in about an hour and a half: prompts, caches and engines change within a day.
MEMORY_SECONDS = 7200.0

#: Misses come in bunches: a minute is worth at most this many independent requests, however many it held.
WORTH = 60.0

#: A minute may go wrong for a reason that is not load (a node hiccup, a stuck pod): one in fifty.
ODD_MINUTES = 0.02


@dataclass(frozen=True, slots=True)
class Belief:
    """Log-weights of the hypotheses, and what follows from them."""

    weights: tuple[float, ...]
    cliff: float
    """The strain at which the budget is spent exactly, on the safe side of what is not known."""
    floor: float
    """Expected share of misses at any load, in budgets."""
    minutes: float = 0.0
    """Minutes of evidence that count."""


@lru_cache(maxsize=1)
def fresh() -> Belief:
    """What is believed before the pool has shown anything: the model, on the safe side."""
    return _belief(_prior(), 0.0)


def learn(belief: Belief, *, strain: float, misses: float, total: float, budget: float, seconds: float) -> Belief:
    """The belief after ``seconds`` in which ``misses`` of ``total`` requests were bad at ``strain``."""
    kept = math.exp(-seconds / MEMORY_SECONDS)
    worth = total / (1.0 + total / WORTH)
    bad = min(misses / total, 1.0) * worth if total > 0 else 0.0
    chances = _log_chances(strain, bad, worth, budget) if worth > 0 and strain > 0 else (0.0,) * len(belief.weights)
    weights = tuple(
        kept * w + (1.0 - kept) * p + c for w, p, c in zip(belief.weights, _prior(), chances, strict=True)
    )
    return _belief(weights, kept * belief.minutes + (seconds / 60.0 if worth > 0 else 0.0))


def strain_for(belief: Belief, *, share: float) -> float:
    """The strain at which ``share`` of the budget (0.5: half of it) is spent, floor included.

    Where the floor alone spends more, replicas cannot help: the strain at which load adds a third of the share.
    """
    load_share = max(share - belief.floor, share / 3.0)
    return float(belief.cliff * load_share ** (1.0 / STEEPNESS))


@lru_cache(maxsize=1)
def _prior() -> tuple[float, ...]:
    return tuple(
        math.log(p) - 0.5 * (math.log(c) / PRIOR_SPREAD) ** 2 for p in _FLOOR_PRIOR for c in CLIFFS
    )


def _log_chances(strain: float, bad: float, worth: float, budget: float) -> list[float]:
    """ln of the probability of these misses under each hypothesis, floors first."""
    odd = ODD_MINUTES / (worth + 1.0)
    ways = math.lgamma(worth + 1) - math.lgamma(bad + 1) - math.lgamma(worth - bad + 1)
    good, by_load = worth - bad, [budget * (strain / c) ** STEEPNESS for c in CLIFFS]
    found = []
    for floor in FLOORS:
        base = floor * budget
        for load in by_load:
            share = min(max(base + load, 1e-7), _MOST)
            chance = math.exp(ways + bad * math.log(share) + good * math.log1p(-share))
            found.append(math.log((1.0 - ODD_MINUTES) * chance + odd))
    return found


_MOST = 0.98
"""Even a hopeless minute lets some request through."""


def _belief(weights: tuple[float, ...], minutes: float) -> Belief:
    top = max(weights)
    masses = [math.exp(w - top) for w in weights]
    total = sum(masses)
    by_cliff = [sum(masses[k :: len(CLIFFS)]) for k in range(len(CLIFFS))]
    expected = sum(m * inverse for m, inverse in zip(by_cliff, _INVERSE, strict=True)) / total
    per_floor = len(CLIFFS)
    floor = sum(f * sum(masses[k * per_floor : (k + 1) * per_floor]) for k, f in enumerate(FLOORS)) / total
    return Belief(tuple(w - top for w in weights), expected ** (-1.0 / STEEPNESS), floor, minutes)


_INVERSE = tuple(c**-STEEPNESS for c in CLIFFS)
"""Expected misses at a strain are budget * strain ** STEEPNESS * the mean of these: the doubt counts by what it costs."""
