"""A queueing-model law as the SLO analyzer of llm-d's workload-variant-autoscaler: the rate that a replica carries
within mean TTFT and ITL targets, from parameters learned on line; replicas = ceil(rate / that).

Source: llm-d/llm-d-workload-variant-autoscaler, docs/developer-guide/slo-queuemodel.md (0.9), and the HPA that llm-d's
guide puts behind it (guides/workload-autoscaling, AverageValue 1, 120 s both ways). A decision every 15 s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tierkeeper.sim.peers.behavior import Behavior, Rate, Rule, Scale
from tierkeeper.sim.peers.figures import Figures
from tierkeeper.sim.peers.hpa import TOLERANCE, follow
from tierkeeper.sim.peers.queueing import Parameters, Queue, Request
from tierkeeper.sim.peers.tuner import Observation, Tuner

LOOP_SECONDS = 15.0
MEANS_SECONDS = 60

BEHAVIOR = Behavior(
    up=Rule((Rate(15.0, percent=100.0),), stabilization_seconds=120.0),
    down=Rule((Rate(15.0, percent=100.0),), stabilization_seconds=120.0),
)


@dataclass(frozen=True, slots=True)
class WvaSettings:
    """The published defaults, and two knobs to tune it by."""

    target_share: float = 1.0
    """Share of the tier's thresholds that is given as target: the law takes them for targets of means."""
    parameters: Parameters | None = None
    """Where its filter starts: an offline profile, as the releases of 2025 had it. None: it guesses from the first
    observation, as if the load were light."""
    slo_multiplier: float = 3.0
    """Where the tier does not promise both: utilization 1 - 1/3, see ``inferred_targets``."""
    max_queue: int = 100
    transient_seconds: float = 120.0
    """Not tuned for so long after a replica became ready."""
    tolerance: float = TOLERANCE
    behavior: Behavior = BEHAVIOR


@dataclass(slots=True)
class WvaLaw:
    """One variant. Without traffic, or where a target is out of reach of a lone request, it holds."""

    settings: WvaSettings = field(default_factory=WvaSettings)
    tuner: Tuner = field(init=False)
    """What it has learned."""
    _scale: Scale = field(init=False)
    _ready: int | None = None
    _grown_at: float = -math.inf

    def __post_init__(self) -> None:
        self._scale = Scale(self.settings.behavior)
        self.tuner = Tuner(self.settings.parameters)

    def desired(self, *, now: float, figures: Figures) -> int:
        if self._ready is not None and figures.ready > self._ready:
            self._grown_at = now
        self._ready = figures.ready
        seen = observation(figures) if figures.reachable else None
        if seen is not None and now >= self._grown_at + self.settings.transient_seconds:
            self.tuner.update(seen, max_batch=figures.max_num_seqs)
        wanted = self._sized(seen, figures)
        if wanted is None:
            return figures.replicas
        return follow(self._scale, wanted, now=now, replicas=figures.replicas, tolerance=self.settings.tolerance)

    def _sized(self, seen: Observation | None, figures: Figures) -> int | None:
        parameters = self.tuner.parameters
        if seen is None or parameters is None:
            return None
        queue = Queue(parameters, seen.request, figures.max_num_seqs, self.settings.max_queue)
        ttft, itl = self._targets(parameters, seen.request, figures)
        carried = queue.size(ttft=ttft, itl=itl)
        return None if carried is None else max(1, math.ceil(seen.rate * figures.ready / carried))

    def _targets(self, parameters: Parameters, request: Request, figures: Figures) -> tuple[float, float]:
        ttft, tpot = figures.ttft_target_seconds, figures.tpot_target_seconds
        if ttft is None or tpot is None:
            return inferred_targets(parameters, request, self.settings.slo_multiplier)
        return ttft * self.settings.target_share, tpot * self.settings.target_share


def observation(figures: Figures) -> Observation | None:
    """One average replica as it was lately; None where a figure is missing or nothing arrives."""
    means = figures.means(MEANS_SECONDS)
    rate, prompt, output = means.requests_per_second, means.prompt_tokens, means.output_tokens
    ttft, itl = means.ttft_seconds, means.itl_seconds
    if not rate or not prompt or not output or not ttft or not itl or figures.ready < 1:
        return None
    return Observation(rate=rate / figures.ready, request=Request(prompt, output), ttft=ttft, itl=itl)


def inferred_targets(parameters: Parameters, request: Request, multiplier: float) -> tuple[float, float]:
    """(TTFT, ITL) targets in seconds at the load where a step takes ``multiplier`` times alpha."""
    base = multiplier * parameters.alpha
    ttft = base + (parameters.beta + parameters.gamma) * request.prompt
    return ttft, base + parameters.beta + parameters.gamma * (request.prompt + (request.output + 1) / 2)
