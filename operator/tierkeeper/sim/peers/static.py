"""The peer that does not scale: as many replicas as the peak needs, all day long."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.peers.figures import Figures


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """As many replicas as somebody found right; ``peak_replicas`` finds them for a known traffic."""

    replicas: int


@dataclass(frozen=True, slots=True)
class StaticLaw:
    """Always the same number of replicas."""

    settings: StaticSettings

    def desired(self, *, now: float, figures: Figures) -> int:  # noqa: ARG002
        return self.settings.replicas


def peak_replicas(arrival: NDArray[np.float64], *, requests_per_second: float, window_seconds: float = 300.0) -> int:
    """Replicas that carry the busiest window, at least 1.

    ``arrival``: float64[N], sorted seconds. ``requests_per_second``: what one replica carries within its SLO. The
    window slides over the arrivals; 300 s is the length over which a queue of such a pool comes and goes.
    """
    if len(arrival) == 0:
        return 1
    ends = np.searchsorted(arrival, arrival + window_seconds, side="left")
    busiest = int((ends - np.arange(len(arrival))).max())
    return max(1, math.ceil(busiest / window_seconds / requests_per_second))
