"""Readers of traffic files. Each raises TraceError, which names file, line, column, value and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from tierkeeper.sim.model import Requests
from tierkeeper.sim.traffic.arrivals import POISSON, Law
from tierkeeper.sim.traffic.compose import scale, synthesize
from tierkeeper.sim.traffic.curve import Curve, Floats
from tierkeeper.sim.traffic.lengths import AZURE_CONVERSATION, MAX_TOKENS, LengthLaw
from tierkeeper.sim.traffic.table import Column, Kind, TraceError, read_table

TraceFormat: TypeAlias = Literal["azure", "mooncake", "rate"]

MAX_SECONDS = 400 * 86_400.0
"""Longest span of a trace: what is longer has its times in another unit."""
MAX_RATE = 1e6
"""Requests/s of a rate curve: what is higher has its rates in another unit."""

_TOKENS = f"a whole number of tokens from 0 to {MAX_TOKENS:,} (0 counts as 1)"


def read_azure(path: str | Path) -> Requests:
    """Read a request trace in the form of the Azure LLM inference traces.

    Columns ``TIMESTAMP`` (UTC date and time, or seconds), ``ContextTokens``, ``GeneratedTokens``; others are ignored.
    The first request arrives at 0. Plain or gzip-compressed.
    """
    columns = (
        Column(
            {"TIMESTAMP": 1.0},
            "a UTC date and time like 2023-11-16 18:15:46.68, or seconds, within 400 days of the first row",
            kind=Kind.TIME,
            high=MAX_SECONDS,
            ascending=True,
        ),
        _tokens("ContextTokens"),
        _tokens("GeneratedTokens"),
    )
    return _requests(path, columns, None)


def read_mooncake(path: str | Path, *, seed: int = 0) -> Requests:
    """Read a request trace in the form of the Mooncake traces: CSV with a header, or their JSON lines.

    Columns ``timestamp`` or ``timestamp_ms`` (milliseconds), ``input_length``, ``output_length``; others are ignored.
    Where most requests share their time stamp with the one before, the stamps are a grid (3 s in the published
    traces), and each request is moved by a random part of its grid step, drawn by ``seed``. Plain or gzip-compressed.
    """
    columns = (
        Column(
            {"timestamp": 1e-3, "timestamp_ms": 1e-3},
            "milliseconds from 0, within 400 days of the first row",
            high=MAX_SECONDS,
            ascending=True,
        ),
        _tokens("input_length"),
        _tokens("output_length"),
    )
    return _requests(path, columns, seed)


def read_rate(path: str | Path, *, where: Mapping[str, str] | None = None, lines: bool = False) -> Curve:
    """Read a rate curve in requests/s from a CSV; it starts at 0.

    Time column, by the unit in its name: ``t_s``, ``time_s``, ``seconds`` or ``time`` in seconds; ``minute`` or
    ``minutes`` in minutes. Rate column: ``rate_rps``, ``rps`` or ``rate`` in requests/s; ``req_per_min``,
    ``requests_per_minute`` or ``req_per_min_mid`` in requests/min. A rate holds until the next row's time, the last one
    as long as the one before it (a single one for a minute); with ``lines`` the rows are points of a line instead.
    ``where`` picks one series of a file with several, by the text of other columns.
    """
    columns = (
        Column(
            {"t_s": 1.0, "time_s": 1.0, "seconds": 1.0, "time": 1.0, "minute": 60.0, "minutes": 60.0},
            "a time from 0, within 400 days of the first row",
            high=MAX_SECONDS,
            ascending=True,
        ),
        Column(
            {
                **{"rate_rps": 1.0, "rps": 1.0, "rate": 1.0},
                **{"req_per_min": 1 / 60, "requests_per_minute": 1 / 60, "req_per_min_mid": 1 / 60},
            },
            f"a rate from 0 to {MAX_RATE:,.0f} requests/s",
            high=MAX_RATE,
        ),
    )
    table = read_table(path, columns, where=where)
    times, rates = table.numbers["t_s"], table.numbers["rate_rps"]
    if (np.diff(times) == 0).any():
        at = float(times[np.argmin(np.diff(times))])
        raise TraceError(
            path,
            f"two rows have the same time, {at:g} s after the first",
            remedy="keep one row a time, or pick one series if the file holds several",
        )
    if lines and len(times) > 1:
        return Curve(times, rates[:-1], rates[1:])
    return Curve.hold(times, rates, end=times[-1] + (times[-1] - times[-2] if len(times) > 1 else 60.0))


def load_requests(
    path: str | Path,
    *,
    form: TraceFormat,
    seed: int = 0,
    factor: float = 1.0,
    law: Law = POISSON,
    lengths: LengthLaw = AZURE_CONVERSATION,
    where: Mapping[str, str] | None = None,
) -> Requests:
    """The requests of a file in any of the formats, at ``factor`` times its rate.

    ``law``, ``lengths`` and ``where`` matter to the format ``rate`` alone. Raises TraceError for the file, ValueError
    for a factor or a size that cannot be.
    """
    if form == "rate":
        return synthesize(read_rate(path, where=where).times(factor), law=law, lengths=lengths, seed=seed)
    requests = read_azure(path) if form == "azure" else read_mooncake(path, seed=seed)
    return requests if factor == 1.0 else scale(requests, factor, seed=seed)


def _tokens(name: str) -> Column:
    return Column({name: 1.0}, _TOKENS, kind=Kind.COUNT, high=MAX_TOKENS)


def _requests(path: str | Path, columns: tuple[Column, Column, Column], seed: int | None) -> Requests:
    """Requests of a table of arrival, prompt, output; stamps on a grid are spread if there is a seed for it."""
    table = read_table(path, columns)
    arrival, prompt, output = (table.numbers[column.title] for column in columns)
    prompt, output = np.maximum(prompt, 1), np.maximum(output, 1)
    if seed is not None:
        arrival = _off_the_grid(arrival, seed)
        order = np.argsort(arrival, kind="stable")
        arrival, prompt, output = arrival[order], prompt[order], output[order]
    return Requests(arrival=arrival, prompt=prompt.astype(np.int32), output=output.astype(np.int32))


def _off_the_grid(arrival: Floats, seed: int) -> Floats:
    gaps = np.diff(arrival)
    if not (gaps > 0).any() or (gaps > 0).mean() >= 0.5:
        return arrival
    grid = float(np.median(gaps[gaps > 0]))
    return arrival + np.random.default_rng(seed).uniform(0.0, grid, size=len(arrival))
