"""Ours with one thing taken away, to see what that thing earns; the law itself is the shipped one.

A variant is what it may see (a tier's view is changed before the law reads it) and what it may remember (the memory is
changed before each tick). Nothing in the law knows of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tierkeeper.scaling import belief
from tierkeeper.scaling.memory import Memory
from tierkeeper.scaling.model import Levers
from tierkeeper.sim.policy import Ours, TierView
from tierkeeper.slo.model import Ratio, SloAssessment
from tierkeeper.tier import Bounds, TierKey


@dataclass(slots=True)
class Variant(Ours):
    """The shipped law behind blinkers."""

    see: Callable[[TierView], TierView] = lambda view: view
    remember: Callable[[Memory], Memory] = lambda memory: memory

    def decide(self, *, now: float, views: Mapping[TierKey, TierView]) -> Mapping[TierKey, Levers]:
        for key in views:
            self._memories[key] = self.remember(self._memories.get(key) or Memory.fresh(now))
        return Ours.decide(self, now=now, views={key: self.see(view) for key, view in views.items()})


def no_live_resize(view: TierView) -> TierView:
    """The live limits stay where the pool has them: the spec allows no others."""
    cap = view.pool.current.max_num_seqs
    scaling = dataclasses.replace(view.spec.scaling, max_num_seqs=Bounds(cap, cap), max_num_batched_tokens=None)
    spec = dataclasses.replace(view.spec, scaling=scaling)
    return dataclasses.replace(view, spec=spec, pool=dataclasses.replace(view.pool, live_resize=False))


def no_token_budget(view: TierView) -> TierView:
    """The token budget is the engine's own, as for a tier that bounds none."""
    scaling = dataclasses.replace(view.spec.scaling, max_num_batched_tokens=None)
    return dataclasses.replace(view, spec=dataclasses.replace(view.spec, scaling=scaling))


def no_burn(view: TierView) -> TierView:
    """No window shows a miss; latencies, traffic and queues are seen as they are."""
    slos = {sli: _clean(slo) for sli, slo in view.assessment.slos.items()}
    return dataclasses.replace(view, assessment=dataclasses.replace(view.assessment, slos=slos))


def _clean(slo: SloAssessment) -> SloAssessment:
    none = Ratio(0.0, 0.0, 0.0)
    windows = tuple(dataclasses.replace(window, ratio=none, burn=none) for window in slo.windows)
    left = None if slo.budget_left is None else 1.0
    return dataclasses.replace(slo, windows=windows, budget_left=left, burning=False)


def no_learning(memory: Memory) -> Memory:
    """What the pool carries is what the model says, whatever was missed or kept."""
    return dataclasses.replace(memory, knowledge=dataclasses.replace(memory.knowledge, belief=belief.fresh()))


def no_forecast(memory: Memory) -> Memory:
    """What arrives now is what is planned for: the two forecasts have lost for good."""
    before = memory.knowledge.forecaster
    lost = dataclasses.replace(before, losses=(before.losses[0], math.inf, math.inf))
    return dataclasses.replace(memory, knowledge=dataclasses.replace(memory.knowledge, forecaster=lost))


VARIANTS: Mapping[str, Callable[[], Variant]] = {
    "no-feedback": lambda: Variant("no-feedback", see=no_burn, remember=no_learning),
    "no-forecast": lambda: Variant("no-forecast", remember=no_forecast),
    "no-live-resize": lambda: Variant("no-live-resize", see=no_live_resize),
    "no-token-budget": lambda: Variant("no-token-budget", see=no_token_budget),
}
