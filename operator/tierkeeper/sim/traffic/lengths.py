"""Lengths of requests: drawn from quantile tables, or from the pairs that a trace shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from tierkeeper.sim.model import Ints, Requests
from tierkeeper.sim.traffic.curve import Floats
from tierkeeper.sim.traffic.table import Column, Kind, TraceError, read_table

MAX_TOKENS = 10_000_000
"""Of a prompt or an output; the longest context that a public model claims."""

_BLOCK = 1 << 20
_PROMPT_FIELDS = ("input_tokens", "prompt_tokens")
_OUTPUT_FIELDS = ("output_tokens",)


class LengthLaw(Protocol):
    """Where lengths come from."""

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """[count] prompt and [count] output lengths in tokens, each at least 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantiles:
    """An inverse distribution function: ``tokens[i]`` at ``quantiles[i]``, both shape [points] and ascending.

    Between two points the logarithm of the tokens is linear in the quantile; below the first and above the last point
    their values hold. Raises ValueError.
    """

    quantiles: Floats
    tokens: Floats

    def __post_init__(self) -> None:
        for name in ("quantiles", "tokens"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        if not len(self.quantiles) or len(self.quantiles) != len(self.tokens):
            raise ValueError("lengths: give one number of tokens for each quantile, at least one")
        if not ((self.quantiles >= 0) & (self.quantiles <= 1)).all() or (np.diff(self.quantiles) <= 0).any():
            raise ValueError("lengths: quantiles must lie in [0, 1] and rise")
        if not ((self.tokens >= 1) & (self.tokens <= MAX_TOKENS)).all() or (np.diff(self.tokens) < 0).any():
            raise ValueError(f"lengths: tokens must lie in [1, {MAX_TOKENS:,}] and not fall as the quantile rises")

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """[count] lengths in tokens."""
        drawn = np.empty(count, dtype=np.int32)
        logs = np.log(self.tokens)
        for start in range(0, count, _BLOCK):
            part = drawn[start : start + _BLOCK]
            values = np.interp(rng.random(len(part)), self.quantiles, logs)
            np.rint(np.exp(values, out=values), out=values)
            part[:] = values
        return drawn


@dataclass(frozen=True, slots=True)
class TableLengths:
    """Prompt and output drawn each from its own table, independent of each other."""

    prompt: Quantiles
    output: Quantiles

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        return self.prompt.draw(rng, count), self.output.draw(rng, count)


@dataclass(frozen=True, slots=True, eq=False)
class TraceLengths:
    """Pairs drawn with replacement from a trace: a prompt keeps its output. Raises ValueError if there are none."""

    requests: Requests

    def __post_init__(self) -> None:
        if not len(self.requests):
            raise ValueError("lengths: the trace has no request to draw from; give one with requests")

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        prompt, output = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
        for start in range(0, count, _BLOCK):
            picks = rng.integers(0, len(self.requests), size=min(_BLOCK, count - start), dtype=np.int32)
            prompt[start : start + _BLOCK] = self.requests.prompt[picks]
            output[start : start + _BLOCK] = self.requests.output[picks]
        return prompt, output


def read_lengths(path: str | Path, *, where: Mapping[str, str] | None = None) -> TableLengths:
    """Read a CSV of ``field,quantile,tokens``, ``field`` being input_tokens (or prompt_tokens) or output_tokens.

    The rows of a field are in the order of their quantiles, which are shares in [0, 1]. Raises TraceError.
    """
    quantile = "a quantile from 0 to 1"
    tokens = f"a number of tokens from 1 to {MAX_TOKENS:,}"
    columns = (
        Column({"field": 1.0}, "input_tokens or output_tokens", kind=Kind.TEXT),
        Column({"quantile": 1.0}, quantile, high=1.0),
        Column({"tokens": 1.0}, tokens, low=1.0, high=MAX_TOKENS),
    )
    table = read_table(path, columns, where=where)
    fields = np.array([text.strip() for text in table.texts["field"]])

    def part(names: tuple[str, ...]) -> Quantiles:
        rows = np.isin(fields, names)
        if not rows.any():
            raise TraceError(path, f"no row has the field {names[0]}", remedy="add its quantiles", column="field")
        try:
            return Quantiles(table.numbers["quantile"][rows], table.numbers["tokens"][rows])
        except ValueError as error:
            remedy = "sort the rows of each field by quantile, and keep one series a file or choose one"
            raise TraceError(path, f"{names[0]}: {error}", remedy=remedy) from error

    return TableLengths(prompt=part(_PROMPT_FIELDS), output=part(_OUTPUT_FIELDS))


#: Quantiles of the 19,366 requests of the Azure 2023 conversation trace (CC BY 4.0; Patel et al., Splitwise, ISCA
#: 2024), for a rate curve that comes without lengths. Means of the trace: 1,155 prompt and 211 output tokens.
AZURE_CONVERSATION = TableLengths(
    prompt=Quantiles(
        np.array([0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0]),
        np.array([2.0, 29.0, 181.0, 207.0, 396.0, 1020.0, 1189.0, 2734.0, 4083.0, 4142.0, 6179.0, 14050.0]),
    ),
    output=Quantiles(
        np.array([0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0]),
        np.array([7.0, 16.0, 41.0, 54.0, 85.0, 129.0, 395.0, 424.0, 451.0, 601.0, 954.0, 1000.0]),
    ),
)
