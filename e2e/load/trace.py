"""Recorded traffic: real arrival times with real lengths."""

import csv
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

EXCERPT = Path(__file__).resolve().parents[1] / "data/azure2023_conv_excerpt.csv"
"""Fifteen minutes of recorded production traffic; where it comes from stands beside it."""


@dataclass(frozen=True, slots=True)
class TracePoint:
    """One recorded request. ``gap_s``: seconds since the request before it; lengths in tokens."""

    gap_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A recording, endless by repetition."""

    points: tuple[TracePoint, ...]

    @property
    def mean_rate(self) -> float:
        """Requests a second."""
        return len(self.points) / sum(point.gap_s for point in self.points)

    @classmethod
    def read(cls, path: Path) -> "Trace":
        """From a CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens, ordered by time.

        Raises ValueError when a column is missing, the times are out of order, or there are fewer than two requests.
        """
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        try:
            # The recording has seven digits after the point, datetime takes six.
            times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
            lengths = [(max(1, int(row["ContextTokens"])), max(1, int(row["GeneratedTokens"]))) for row in rows]
        except KeyError as error:
            raise ValueError(f"{path}: no column {error}") from error
        gaps = [later - earlier for earlier, later in pairwise(times)]
        if not gaps or min(gaps) < 0 or max(gaps) == 0:
            raise ValueError(f"{path}: needs two or more requests in the order of their times")
        gaps.insert(0, sum(gaps) / len(gaps))  # the first request has no predecessor; the mean keeps the rate
        return cls(tuple(TracePoint(gap, *length) for gap, length in zip(gaps, lengths, strict=True)))
