"""One replica as a queue: Poisson arrivals, a service rate that depends on how many requests are inside, room for K.

Source: the queueing-model analyzer of llm-d's workload-variant-autoscaler (docs/developer-guide/slo-queuemodel.md,
0.9) and llm-inferno/queue-analysis, whose published examples the tests repeat. With ``n`` requests in service a step
lasts alpha + n * (beta * compute tokens + gamma * memory tokens); a request passes one prefill and ``output`` decodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

EDGE = 0.001
"""The search stays this share inside the stable region."""

_BISECTIONS = 30


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the hardware does, in seconds; ``beta`` and ``gamma`` per token."""

    alpha: float
    """A step, whatever is in it."""
    beta: float
    """Computing one token."""
    gamma: float
    """Reading one token of KV cache."""


@dataclass(frozen=True, slots=True)
class Request:
    """Mean tokens of a request, both above 0."""

    prompt: float
    output: float


@dataclass(frozen=True, slots=True)
class Performance:
    """Means at one arrival rate, in seconds; ``throughput`` in requests a second."""

    throughput: float
    response: float
    wait: float
    in_service: float
    ttft: float
    itl: float


@dataclass(slots=True)
class Queue:
    """M/M/1/K with a state-dependent service rate: K = ``max_batch`` in service + ``max_queue`` waiting."""

    parameters: Parameters
    request: Request
    max_batch: int
    max_queue: int
    lowest: float = field(init=False)
    highest: float = field(init=False)
    """Bounds of the arrival rates that can be analyzed, requests a second."""
    _log_rates: NDArray[np.float64] = field(init=False)
    """float64[K]: log of the service rate with 1..K requests inside."""

    def __post_init__(self) -> None:
        rates = [
            batch / (self._prefill_seconds(batch) + self.request.output * self._decode_seconds(batch))
            for batch in range(1, self.max_batch + 1)
        ]
        self._log_rates = np.log(np.array(rates + [rates[-1]] * self.max_queue, dtype=np.float64))
        self.lowest, self.highest = rates[0] * EDGE, rates[-1] * (1 - EDGE)

    def analyze(self, rate: float) -> Performance:
        """What requests meet at ``rate`` arrivals a second. Raises ValueError outside (0, ``highest``]."""
        if not 0 < rate <= self.highest * (1 + 1e-9):
            raise ValueError(f"rate ({rate:g}/s) must be above 0 and at most {self.highest:g}/s, where the queue grows")
        weights = np.concatenate([[0.0], np.cumsum(np.log(rate) - self._log_rates)])
        shares = np.exp(weights - weights.max())
        shares /= shares.sum()
        inside = np.arange(len(shares))
        in_service = float(np.minimum(inside, self.max_batch) @ shares)
        throughput = rate * (1 - float(shares[-1]))
        response, service = float(inside @ shares) / throughput, in_service / throughput
        wait = max(0.0, response - service)
        prefill = self._prefill_seconds(in_service)
        itl = (service - prefill) / self.request.output
        return Performance(throughput, response, wait, in_service, ttft=wait + prefill + itl, itl=itl)

    def size(self, *, ttft: float | None, itl: float | None) -> float | None:
        """The highest rate, in requests a second, at which the means are within both targets (seconds; None: no
        target). None where a target cannot be met by a lone request."""
        rates = [self.highest]
        for target, figure in ((ttft, _ttft), (itl, _itl)):
            if target is not None:
                rate = self._highest_within(target, figure)
                if rate is None:
                    return None
                rates.append(rate)
        return self.analyze(min(rates)).throughput

    def _highest_within(self, target: float, figure: Callable[[Performance], float]) -> float | None:
        low, high = self.lowest, self.highest
        if figure(self.analyze(low)) > target:
            return None
        if figure(self.analyze(high)) <= target:
            return high
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if figure(self.analyze(middle)) <= target else (low, middle)
        return low

    def _step_seconds(self, batch: float) -> float:
        """Mean over the ``output + 1`` steps of a request, of which one computes the prompt."""
        request, hardware = self.request, self.parameters
        compute = (request.prompt + request.output) / (request.output + 1)
        memory = request.prompt + request.output / 2
        return hardware.alpha + batch * (hardware.beta * compute + hardware.gamma * memory)

    def _prefill_seconds(self, batch: float) -> float:
        return self._step_seconds(batch) + (self.parameters.beta + self.parameters.gamma) * self.request.prompt

    def _decode_seconds(self, batch: float) -> float:
        memory = self.request.prompt + self.request.output / 2
        return self._step_seconds(batch) + self.parameters.beta + self.parameters.gamma * memory


def _ttft(performance: Performance) -> float:
    return performance.ttft


def _itl(performance: Performance) -> float:
    return performance.itl
