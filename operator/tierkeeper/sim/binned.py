"""What really happened in a run, in bins of time: for reports, never for a policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tierkeeper.engine.latency import Lengths, Profile, saturated_tpot_seconds
from tierkeeper.sim.record import TierRun
from tierkeeper.sim.score import good_requests

Floats = NDArray[np.float64]

_BINS = 480
_SHORTEST_SECONDS = 60.0
_MOST_SEQUENCES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """Figures by the time of arrival, [bins]; NaN where nothing arrived."""

    at: Floats
    """Start of each bin, seconds."""
    arrivals_per_second: Floats
    prompt_tokens: Floats
    """Mean of a request; so are the output tokens."""
    output_tokens: Floats
    ttft_p50: Floats
    ttft_p99: Floats
    """Infinite where so many never got a first token."""
    tpot_p50: Floats
    tpot_p99: Floats
    budget_left: Floats
    """Share of the error budget that all arrivals so far have left, NaN without a promise."""


def binned(tier: TierRun, seconds: float) -> Binned:
    """The requests of a run in about 480 bins of at least a minute."""
    width = max(_SHORTEST_SECONDS, seconds / _BINS)
    bins = max(1, math.ceil(seconds / width - 1e-6))  # arange over floats may make one too many
    edges = np.arange(bins, dtype=np.float64) * width
    arrival, outcome = tier.requests.arrival, tier.outcome
    cuts = np.searchsorted(arrival, edges[1:])
    counts = np.diff(np.concatenate([[0], cuts, [len(arrival)]]))
    lasting = np.minimum(edges + width, seconds) - edges
    ttft = np.where(np.isnan(outcome.ttft), np.inf, outcome.ttft)
    return Binned(
        at=edges,
        arrivals_per_second=counts / lasting,
        prompt_tokens=_by_bin(tier.requests.prompt, cuts, np.mean),
        output_tokens=_by_bin(tier.requests.output, cuts, np.mean),
        ttft_p50=_by_bin(ttft, cuts, lambda part: _quantile(part, 0.5)),
        ttft_p99=_by_bin(ttft, cuts, lambda part: _quantile(part, 0.99)),
        tpot_p50=_by_bin(outcome.tpot, cuts, lambda part: _quantile(part, 0.5)),
        tpot_p99=_by_bin(outcome.tpot, cuts, lambda part: _quantile(part, 0.99)),
        budget_left=_budget_left(tier, np.append(cuts, len(arrival))),
    )


def capacity(profile: Profile, *, sequences: float, tpot: float | None, prompt: float, output: float) -> float:
    """Requests a second that one replica can carry by the step model, for drawing beside the demand.

    The largest batch of at most ``sequences`` whose mean TPOT in a steady state is within ``tpot`` seconds (None: no
    bound); each of its sequences takes ``output`` steps. A P99 needs some more room than a mean.
    """
    lengths = Lengths(prompt_tokens=prompt, output_tokens=output)
    one, two = (saturated_tpot_seconds(profile, batch=batch, lengths=lengths) for batch in (1.0, 2.0))
    batch = min(sequences, _MOST_SEQUENCES)
    if tpot is not None:
        batch = min(batch, 1.0 + max(0.0, tpot - one) / (two - one))  # the step time is a straight line in the batch
    return batch / (output * saturated_tpot_seconds(profile, batch=batch, lengths=lengths))


def _by_bin(values: NDArray[Any], cuts: NDArray[np.intp], figure: Callable[[NDArray[Any]], float]) -> Floats:
    return np.array([figure(part) if len(part) else np.nan for part in np.split(values, cuts)])


def _quantile(part: Floats, q: float) -> float:
    """Of what is known; an observed value, so that infinite ones do no harm."""
    known = part[~np.isnan(part)]
    return float(np.quantile(known, q, method="higher")) if len(known) else float("nan")


def _budget_left(tier: TierRun, ends: NDArray[np.intp]) -> Floats:
    objective = tier.spec.objective
    if objective is None:
        return np.full(len(ends), np.nan)
    bad = np.concatenate([[0], np.cumsum(~good_requests(tier.outcome, objective))])
    return 1.0 - bad[ends] / np.maximum(ends, 1) / objective.error_budget
