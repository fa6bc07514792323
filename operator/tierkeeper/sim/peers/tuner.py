"""Learning a queue's parameters from mean TTFT and ITL: an extended Kalman filter with an outlier gate.

Source: the tuner of llm-d's workload-variant-autoscaler (docs/developer-guide/slo-queuemodel.md, sections 4.2, 8, 9.5,
and internal/engines/analyzers/queueingmodel/tuner; 0.9). The state is (alpha, beta, gamma), which drifts by 5 % a
cycle; an observation is known to 5 % within its 95 % interval; an update whose normalized innovation is beyond its
bound is refused. Theirs runs once a pod and cycle, this one once a cycle on an average pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.peers.queueing import Parameters, Queue, Request

DEFAULT = Parameters(alpha=0.005, beta=0.05e-3, gamma=0.00005e-3)
"""Where the first observation gives no sensible start."""

BASE_SHARE = 0.9
"""Share of a light load's ITL that is taken for alpha."""

STATE_CHANGE = 0.05
OBSERVATION_ERROR = 0.05 / 1.96
MAX_INNOVATION = 7.378

QUEUE_PER_BATCH = 10
"""Room for waiting requests in the model that is fitted, in batches."""

LEAST, MOST = 0.01, 100.0
"""The state stays between these multiples of where it started."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One replica's means over a cycle, all above 0: requests a second, tokens, seconds."""

    rate: float
    request: Request
    ttft: float
    itl: float


def guess(seen: Observation) -> Parameters:
    """Parameters from one observation, taking the load for light. Falls back to ``DEFAULT`` where one is not positive.

    With alpha = 0.9 * ITL: TTFT = alpha + (beta + gamma) * prompt and
    ITL = alpha + beta + gamma * (prompt + (output + 1) / 2).
    """
    alpha = BASE_SHARE * seen.itl
    both = (seen.ttft - alpha) / seen.request.prompt
    gamma = (seen.itl - alpha - both) / (seen.request.prompt + (seen.request.output + 1) / 2 - 1)
    found = Parameters(alpha=alpha, beta=both - gamma, gamma=gamma)
    return found if min(found.alpha, found.beta, found.gamma) > 0 else DEFAULT


@dataclass(slots=True)
class Tuner:
    """The filter of one pool. ``parameters`` is None until an observation gave a start that the model can explain: by a
    guess at high load a replica often carries less than was seen, and the next observation makes a new one."""

    parameters: Parameters | None = None
    _start: NDArray[np.float64] | None = None
    _covariance: NDArray[np.float64] = field(default_factory=lambda: np.zeros((3, 3)))

    def update(self, seen: Observation, *, max_batch: int) -> bool:
        """Takes one observation in; False where it was refused."""
        state = _vector(self.parameters or guess(seen))
        predicted = _predict(state, seen, max_batch)
        slopes = None if predicted is None else _slopes(state, predicted, seen, max_batch)
        if predicted is None or slopes is None:
            return False
        if self._start is None:
            self._start, self._covariance = state, np.diag((STATE_CHANGE * state) ** 2)
            self.parameters = Parameters(*state.tolist())
        measured = np.array([seen.ttft, seen.itl])
        covariance = self._covariance + np.diag((STATE_CHANGE * state) ** 2)
        spread = slopes @ covariance @ slopes.T + np.diag((OBSERVATION_ERROR * measured) ** 2)
        innovation = measured - predicted
        if innovation @ np.linalg.solve(spread, innovation) >= MAX_INNOVATION:
            return False
        gain = np.linalg.solve(spread, slopes @ covariance).T
        state = np.clip(state + gain @ innovation, LEAST * self._start, MOST * self._start)
        self._covariance = (np.eye(3) - gain @ slopes) @ covariance
        self.parameters = Parameters(*state.tolist())
        return True


def _predict(state: NDArray[np.float64], seen: Observation, max_batch: int) -> NDArray[np.float64] | None:
    """(wait + prefill, ITL) by the model; None where it cannot carry the rate at all."""
    queue = Queue(Parameters(*state.tolist()), seen.request, max_batch, QUEUE_PER_BATCH * max_batch)
    if seen.rate > queue.highest:
        return None
    performance = queue.analyze(seen.rate)
    return np.array([performance.ttft - performance.itl, performance.itl])


def _slopes(
    state: NDArray[np.float64], predicted: NDArray[np.float64], seen: Observation, max_batch: int
) -> NDArray[np.float64] | None:
    """float64[2, 3]: how the two move with each parameter, by a small step down, where the model stays stable."""
    columns = []
    for index in range(3):
        step = 1e-3 * state[index]
        moved = _predict(state - step * np.eye(3)[index], seen, max_batch)
        if moved is None:
            return None
        columns.append((predicted - moved) / step)
    return np.stack(columns, axis=1)


def _vector(parameters: Parameters) -> NDArray[np.float64]:
    return np.array([parameters.alpha, parameters.beta, parameters.gamma])
