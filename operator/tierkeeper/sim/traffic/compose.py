"""Requests made from rates and lengths, and requests made from requests. Everything random takes a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tierkeeper.sim.model import Requests
from tierkeeper.sim.traffic.arrivals import POISSON, Law, arrivals, check_size
from tierkeeper.sim.traffic.curve import Curve, Floats
from tierkeeper.sim.traffic.lengths import LengthLaw

#: Copies of a trace are moved by up to this much against each other: their bursts fall apart, while the demand over
#: longer times keeps its form.
SPREAD_SECONDS = 300.0

_MAX_FACTOR = 1000.0


def synthesize(rate: Curve, *, lengths: LengthLaw, seed: int, law: Law = POISSON) -> Requests:
    """Requests that arrive by ``law`` at ``rate`` (requests/s). Arrivals and lengths have a random stream each.

    Raises ValueError if more requests are to be expected than a run can hold.
    """
    for_arrivals, for_lengths = streams(seed, 2)
    arrival = arrivals(rate, law=law, rng=for_arrivals)
    return with_lengths(arrival, lengths=lengths, rng=for_lengths)


def with_lengths(arrival: Floats, *, lengths: LengthLaw, rng: np.random.Generator) -> Requests:
    """Requests at sorted arrival times with drawn lengths."""
    prompt, output = lengths.draw(rng, len(arrival))
    return Requests(arrival=arrival, prompt=prompt, output=output)


def streams(seed: int, count: int) -> list[np.random.Generator]:
    """Independent random streams of one seed."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(count)]


def merge(parts: Sequence[Requests]) -> Requests:
    """All requests of several streams, in order of arrival."""
    arrival = np.concatenate([part.arrival for part in parts]) if parts else np.empty(0)
    prompt = np.concatenate([part.prompt for part in parts]) if parts else np.empty(0, dtype=np.int32)
    output = np.concatenate([part.output for part in parts]) if parts else np.empty(0, dtype=np.int32)
    order = np.argsort(arrival, kind="stable")
    return Requests(arrival=arrival[order], prompt=prompt[order], output=output[order])


def scale(requests: Requests, factor: Curve | float, *, seed: int, spread_seconds: float = SPREAD_SECONDS) -> Requests:
    """The trace at ``factor`` times its rate; a curve gives a factor that changes with time.

    The part of a factor up to 1 thins the trace at random. Above 1 whole copies are laid over it, each moved by a
    random time of at most ``spread_seconds`` (around the ends of the trace), the last one thinned: 2.5 is the trace, a
    moved copy and half of another. Raises ValueError for a factor that is negative or above 1,000.
    """
    peak = factor.peak if isinstance(factor, Curve) else factor
    if not 0 <= peak <= _MAX_FACTOR:
        raise ValueError(f"a trace times {peak:g}: the factor must be between 0 and {_MAX_FACTOR:,.0f}")
    if not len(requests):
        return requests
    check_size(len(requests) * peak)
    rng = np.random.default_rng(seed)
    span = float(requests.arrival[-1]) * (1 + 1 / len(requests))  # one mean gap after the last request
    parts = []
    for copy in range(int(np.ceil(peak))):
        moved = requests if copy == 0 else _moved(requests, rng.uniform(-spread_seconds, spread_seconds), span)
        wanted = factor.at(moved.arrival) if isinstance(factor, Curve) else factor
        parts.append(_where(moved, rng.random(len(moved)) < wanted - copy))
    return merge(parts)


def cut(requests: Requests, start: float, end: float) -> Requests:
    """The requests of [start, end) seconds, moved to begin at 0."""
    first, last = np.searchsorted(requests.arrival, [start, end])
    part = slice(int(first), int(last))
    return Requests(arrival=requests.arrival[part] - start, prompt=requests.prompt[part], output=requests.output[part])


def shift_mix(
    requests: Requests, *, prompt: Curve | float = 1.0, output: Curve | float = 1.0, max_tokens: int | None = None
) -> Requests:
    """Lengths times a factor, which may change with time; rounded, at least 1, at most ``max_tokens`` if given.

    ``shift_mix(r, prompt=plateau(4.0, start=3600, end=7200, slope_seconds=600))`` makes prompts four times as long
    within ten minutes, and short again by the second hour.
    """
    limit = np.iinfo(np.int32).max if max_tokens is None else max_tokens

    def scaled(lengths: np.ndarray[tuple[int], np.dtype[np.int32]], factor: Curve | float) -> Floats:
        by = factor.at(requests.arrival) if isinstance(factor, Curve) else factor
        values: Floats = np.clip(np.rint(lengths * by), 1, limit)
        return values

    return Requests(
        arrival=requests.arrival,
        prompt=scaled(requests.prompt, prompt).astype(np.int32),
        output=scaled(requests.output, output).astype(np.int32),
    )


def _moved(requests: Requests, seconds: float, span: float) -> Requests:
    arrival = np.mod(requests.arrival + seconds, span)
    order = np.argsort(arrival, kind="stable")
    return Requests(arrival=arrival[order], prompt=requests.prompt[order], output=requests.output[order])


def _where(requests: Requests, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Requests:
    return Requests(arrival=requests.arrival[chosen], prompt=requests.prompt[chosen], output=requests.output[chosen])
