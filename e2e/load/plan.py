"""What to send, when, to whom."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.load.trace import Trace


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time with one rate.

    Exactly one of ``rate_per_s`` (mean requests a second) and ``speed`` (times the recording's own rate) is given. The
    gaps are the recording's, stretched. Lengths are the recording's times ``length_scale``, then capped.
    """

    duration_s: float
    rate_per_s: float | None = None
    speed: float | None = None
    length_scale: float = 1.0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a phase that says nothing or contradicts itself."""
        if (self.rate_per_s is None) == (self.speed is None):
            raise ValueError(f"phase {self.name!r}: give exactly one of rate_per_s and speed")
        if self.duration_s <= 0 or (self.rate_per_s or self.speed or 0) < 0 or self.length_scale <= 0:
            raise ValueError(
                f"phase {self.name!r}: duration_s and length_scale must be positive, the rate not negative"
            )

    def rate(self, trace: Trace) -> float:
        """Mean requests a second."""
        return self.rate_per_s if self.rate_per_s is not None else (self.speed or 0.0) * trace.mean_rate


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """One server. ``url`` is its root, ``model`` the served name."""

    name: str
    url: str
    model: str
    phases: Sequence[Phase]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to send ``at_s`` seconds after the start; lengths in tokens."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """All targets over one recording.

    ``max_in_flight``: what would exceed it, for each target, is counted as not sent. ``drain_s``: how long answers may
    take after the last arrival. ``any_address``: lifts the guard that only lets loopback and 198.18.0.0/15 be loaded.
    """

    trace: Trace
    targets: Sequence[TargetPlan]
    seed: int = 1
    max_in_flight: int = 2000
    drain_s: float = 60.0
    any_address: bool = False

    @property
    def duration_s(self) -> float:
        """The longest target's."""
        return max(sum(phase.duration_s for phase in target.phases) for target in self.targets)

    def arrivals(self, target: TargetPlan) -> list[Arrival]:
        """The target's requests in the order of time. Each target starts at another place in the recording.

        A gap that straddles two phases counts at each phase's own rate, so a phase of rate zero sends nothing and the
        expected number of requests is the sum over the phases of duration times rate.
        """
        points = self.trace.points
        offset = random.Random(f"{self.seed}/{target.name}").randrange(len(points))
        mean_gap = 1 / self.trace.mean_rate
        result: list[Arrival] = []
        index, start = offset, 0.0
        pending = points[index].gap_s / mean_gap  # what is left of the gap, in mean gaps
        for phase in target.phases:
            rate, clock, end = phase.rate(self.trace), start, start + phase.duration_s
            while rate > 0 and clock + pending / rate < end:
                clock += pending / rate
                point = points[index % len(points)]
                result.append(
                    Arrival(
                        clock,
                        _length(point.prompt_tokens, phase.length_scale, phase.max_prompt_tokens),
                        _length(point.output_tokens, phase.length_scale, phase.max_output_tokens),
                    )
                )
                index += 1
                pending = points[index % len(points)].gap_s / mean_gap
            pending -= (end - clock) * rate
            start = end
        return result


def _length(tokens: int, scale: float, cap: int | None) -> int:
    scaled = max(1, round(tokens * scale))
    return scaled if cap is None else min(scaled, cap)


def read_targets(path: Path) -> list[TargetPlan]:
    """From JSON: ``[{"name", "url", "model", "phases": [{"duration_s", "rate_per_s" | "speed", ...}]}]``.

    Raises ValueError naming the target and the key that is unknown or missing.
    """
    return [_target(entry, path) for entry in json.loads(path.read_text(encoding="utf-8"))]


def _target(entry: dict[str, Any], path: Path) -> TargetPlan:
    try:
        return TargetPlan(**{**entry, "phases": tuple(Phase(**phase) for phase in entry["phases"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path}: target {entry.get('name')!r}: {error}") from error
