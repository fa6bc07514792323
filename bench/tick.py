"""What one tick costs: assess, decide and arbitrate for many tiers on one core, without I/O.

    python -m bench.tick [--tiers 1000] [--ticks 12]

Eight simulated pools in different states (``bench.tick_pools``) supply the figures, after an hour in which their tiers
have learned from them. Then every tier of the fleet is like one of the eight, with samples of its own and a memory of
its own: nothing that is worked out for one tier can serve another. All are of one GPU class, so all compete. What it
costs to sort the samples by tier is told beside, because the fast windows' answers are sorted at each tick too. The
goal is shown, not enforced: how fast a core is differs from machine to machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import pickle
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from bench.tick_pools import STATES, TICK, Look, World
from tierkeeper.garbage import search_seldom
from tierkeeper.scaling.arbitrate import Claim, arbitrate
from tierkeeper.scaling.decide import decide
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Decision
from tierkeeper.sim.source import LABELS
from tierkeeper.slo.assess import assess
from tierkeeper.slo.model import Assessment
from tierkeeper.slo.readings import Readings, Share, join, sort
from tierkeeper.slo.signals import Signal
from tierkeeper.tier import TierKey, TierSpec

WARM_TICKS = 240
"""An hour: minutes, beliefs and histories are then as full as they get in a day."""

GOAL_SECONDS = 0.5

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiers", type=int, default=1000)
    parser.add_argument("--ticks", type=int, default=12, help="measured ticks, after a quarter as many that are not")
    args = parser.parse_args()
    spent, reasons = measure(args.tiers, args.ticks)
    print(f"tick of {args.tiers} tiers, CPU seconds over {len(spent)} ticks (goal {GOAL_SECONDS} for the decisions):")
    for what, seconds in (("sort", [one.sort for one in spent]), ("decide", [one.decide for one in spent])):
        spread = statistics.pstdev(seconds)
        print(
            f"  {what:<6}  best {min(seconds):.3f}, median {statistics.median(seconds):.3f}, worst {max(seconds):.3f}, "
            f"spread {spread:.3f}"
        )
    said = ", ".join(f"{reason} {count / len(spent):.0f}" for reason, count in reasons.most_common())
    print(f"  reasons a tick: {said}")


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds of one tick: to sort the new answers by tier, and to assess, decide and arbitrate."""

    sort: float
    decide: float


def measure(tiers: int, ticks: int) -> tuple[list[Spent], Counter[str]]:
    """The cost of each measured tick, and how often which reason was given in them."""
    world = World()
    small = Fleet([dataclasses.replace(state.spec, key=TierKey("llm", state.name)) for state in STATES])
    for _ in range(WARM_TICKS):
        small.tick(world.next_tick(small.keys))
        world.act(list(small.decisions.values()))
    fleet = small.grown(tiers)
    del small
    search_seldom()  # as the operator does; and the simulator's compiler is no part of it
    spent, reasons = [], Counter[str]()
    for number in range(-(ticks // 4), ticks):
        one = fleet.tick(world.next_tick(fleet.keys))
        world.act(list(fleet.decisions.values())[: len(STATES)])
        if number >= 0:
            spent.append(one)
            reasons.update(decision.reason.value for decision in fleet.decisions.values())
    return spent, reasons


@dataclass(slots=True)
class Fleet:
    """What the operator keeps of its tiers from tick to tick. Tier k is in state k modulo their number."""

    specs: Sequence[TierSpec]
    assessments: dict[TierKey, Assessment] = field(default_factory=dict)
    memories: dict[TierKey, Memory] = field(default_factory=dict)
    decisions: dict[TierKey, Decision] = field(default_factory=dict)
    shares: dict[Signal, Mapping[TierKey, Share]] = field(default_factory=dict)

    @property
    def keys(self) -> list[TierKey]:
        return [spec.key for spec in self.specs]

    def grown(self, tiers: int) -> Fleet:
        """A fleet of so many tiers, each like one of this one, with copies that share no object."""
        made = Fleet([])
        specs = []
        for number in range(tiers):
            like = self.specs[number % len(self.specs)]
            key = TierKey(like.key.namespace, f"{like.key.name}-{number}")
            specs.append(_copied(dataclasses.replace(like, key=key, uid=str(number))))
            made.memories[key] = _copied(self.memories[like.key])
            made.assessments[key] = _copied(dataclasses.replace(self.assessments[like.key], key=key))
        made.specs = specs
        return made

    def tick(self, look: Look) -> Spent:
        """One tick of all tiers, as ``control.slo_loop`` does it."""
        sorting = 0.0
        for signal, samples in look.answers:
            started = time.process_time()
            self.shares[signal] = sort(signal, samples, LABELS)
            sorting += time.process_time() - started
        started = time.process_time()
        readings = join(self.shares)
        joined = time.process_time()
        claims = dict(self._claims(look, readings))
        for key, (decision, memory) in arbitrate(look.now, claims).items():
            self.decisions[key], self.memories[key] = decision, memory
        return Spent(sorting + joined - started, time.process_time() - joined)

    def _claims(self, look: Look, readings: Mapping[TierKey, Readings]) -> Iterator[tuple[TierKey, Claim]]:
        for number, spec in enumerate(self.specs):
            seen = look.pools[number % len(look.pools)]
            assessment = assess(
                now=look.now,
                key=spec.key,
                objective=spec.objective,
                readings=readings.get(spec.key),
                live_pods=seen.live_pods,
                ready_since=0.0,
                previous=self.assessments.get(spec.key),
                scrape_interval_seconds=TICK,
            )
            memory = self.memories.get(spec.key) or Memory.fresh(look.now)
            decision, memory = decide(now=look.now, spec=spec, assessment=assessment, pool=seen.pool, memory=memory)
            self.assessments[spec.key] = assessment
            yield spec.key, Claim(spec, assessment, seen.pool, decision, memory)


def _copied(value: T) -> T:
    """A copy down to the last figure: what many tiers share would stay in the processor's caches."""
    return cast(T, pickle.loads(pickle.dumps(value)))  # noqa: S301  (what was pickled a moment ago)


if __name__ == "__main__":
    main()
