"""Tables of numbers from files that people bring: CSV or JSON lines, plain or gzip-compressed.

Everything that can be wrong with such a file ends in one ``TraceError`` that names the file, the line, the column, the
value and what to change. Cells are converted a block at a time, so a file of tens of millions of rows stays cheap;
only a block that fails is searched cell by cell for the culprit.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

_BLOCK_ROWS = 100_000
_GZIP_MAGIC = b"\x1f\x8b"
_SHOWN_CHARACTERS = 60
LATEST_SECONDS = 32_503_680_000.0
"""The year 3000 in seconds since 1970: a stamp beyond it is in a finer unit."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,18})?)?", re.ASCII)
"""numpy alone would also read "now" and a bare year, and take a 19th digit for a time zone."""

Row = tuple[int, list[str]]
"""Line number in the file, counted from 1, and the cells of the wanted columns."""


class TraceError(ValueError):
    """A file that cannot be used; the text names file, line, column, value and remedy."""

    def __init__(
        self, file: str | Path, problem: str, *, remedy: str, line: int | None = None, column: str | None = None
    ) -> None:
        self.file, self.problem, self.remedy, self.line, self.column = str(file), problem, remedy, line, column
        place = str(file)
        place += f", line {line}" if line is not None else ""
        place += f", column {column}" if column is not None else ""
        super().__init__(f"{place}: {problem}; {remedy}")


class Kind(StrEnum):
    NUMBER = "number"
    COUNT = "count"
    """A whole number."""
    TIME = "time"
    """A UTC date and time, read as seconds, or a number."""
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Column:
    """What is expected of a column.

    ``names`` maps each accepted header (compared without case) to the factor that turns its cells into the result's
    unit; the first is the one that messages ask for. ``expects`` completes "write ...". Converted values must lie in
    [``low``, ``high``]. An ``ascending`` column never falls and is read as the distance from its first row, which is
    what ``high`` then limits.
    """

    names: Mapping[str, float]
    expects: str
    kind: Kind = Kind.NUMBER
    low: float = 0.0
    high: float = math.inf
    ascending: bool = False

    @property
    def title(self) -> str:
        return next(iter(self.names))


@dataclass(slots=True)
class _Parser:
    """Converts the blocks of one column, remembering what must hold across blocks."""

    file: Path
    column: Column
    header: str
    factor: float
    blocks: list[NDArray[np.float64]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    dates: bool | None = None
    first: float | None = None
    last: float = -math.inf

    def take(self, cells: list[str], lines: list[int]) -> None:
        """Convert one block. Raises TraceError at its first bad cell."""
        if self.column.kind is Kind.TEXT:
            self.texts += cells
            return
        try:
            values = self._numbers(cells)
        except ValueError:
            at = next(i for i, cell in enumerate(cells) if not self._readable(cell))
            raise self._error(lines[at], cells[at], self._unreadable(cells[at])) from None
        if self.column.ascending and self.first is None:
            self._check_unit(float(values[0]), cells[0], lines[0])
            self.first = float(values[0])
        with np.errstate(invalid="ignore"):  # infinity less itself; the next line finds it
            reached = values if self.first is None else values - self.first
        good = (values >= self.column.low) & (reached <= self.column.high) & np.isfinite(values)
        if self.column.kind is Kind.COUNT:
            good &= np.floor(values) == values
        if not good.all():
            at = int(np.argmin(good))
            raise self._error(lines[at], cells[at], self._out_of_range(float(values[at])))
        if self.column.ascending:
            self._check_order(values, cells, lines)
        self.blocks.append(reached)

    def _check_unit(self, seconds: float, cell: str, line: int) -> None:
        """A stamp of milliseconds since 1970 would make 58 minutes 40 days."""
        if not self.dates and LATEST_SECONDS < seconds < math.inf:
            raise TraceError(
                self.file,
                f"{_shown(cell)} is after the year 3000 as this column is read: its unit is a finer one",
                remedy=f"divide milliseconds by 1,000, microseconds by a million; write {self.column.expects}",
                line=line,
                column=self.header,
            )

    def _check_order(self, values: NDArray[np.float64], cells: list[str], lines: list[int]) -> None:
        falls = np.diff(values, prepend=self.last) < 0
        if falls.any():
            at = int(np.argmax(falls))
            raise TraceError(
                self.file,
                f"{_shown(cells[at])} is earlier than the row before it",
                remedy="sort the file by this column, or pick one series if the file holds several",
                line=lines[at],
                column=self.header,
            )
        self.last = float(values[-1])

    def _numbers(self, cells: list[str]) -> NDArray[np.float64]:
        if self.column.kind is Kind.TIME and self.dates is None:
            self.dates = not _is_float(cells[0])
        if not self.dates:
            return np.array(cells, dtype=np.float64) * self.factor
        # Microseconds: nanoseconds would wrap silently for years past 2262.
        # As seconds since 1970 a double still tells 0.24 us apart.
        return np.array([_utc(cell) for cell in cells], dtype="datetime64[us]").astype(np.int64) / 1e6

    def _readable(self, cell: str) -> bool:
        if not self.dates:
            return _is_float(cell)
        try:
            np.datetime64(_utc(cell), "us")
        except ValueError:
            return False
        return True

    def _unreadable(self, cell: str) -> str:
        if not cell.strip():
            return "the cell is empty"
        return f"{_shown(cell)} is not a {'UTC date and time' if self.dates else 'number'}"

    def _out_of_range(self, value: float) -> str:
        if not math.isfinite(value):
            return "{cell} is not a finite number"
        if value < self.column.low:
            return "{cell} is negative" if value < 0 else "{cell} is too small"
        if self.column.kind is Kind.COUNT and value <= self.column.high:
            return "{cell} is not a whole number"
        return "{cell} is too large"

    def _error(self, line: int, cell: str, problem: str) -> TraceError:
        problem = problem.replace("{cell}", _shown(cell))
        return TraceError(self.file, problem, remedy=f"write {self.column.expects}", line=line, column=self.header)

    def values(self) -> NDArray[np.float64]:
        return np.concatenate(self.blocks)


@dataclass(frozen=True, slots=True)
class Table:
    """The wanted columns by their title: numbers as float64 arrays in the result's unit, texts as lists."""

    numbers: Mapping[str, NDArray[np.float64]]
    texts: Mapping[str, list[str]]


def read_table(path: str | Path, columns: Sequence[Column], *, where: Mapping[str, str] | None = None) -> Table:
    """Read ``columns`` of a CSV, or of JSON lines if the file starts with ``{``; at least one row.

    ``where`` keeps only the rows whose named columns have these texts, for files that hold several series.
    Raises TraceError.
    """
    file = Path(path)
    try:
        with _opened(file) as stream:
            first = _first_character(stream)
            reader = _json_rows if first == "{" else _csv_rows
            headers, rows = reader(file, stream, columns, dict(where or {}))
            parsers = [
                _Parser(file, column, header, _factor(column, header))
                for column, header in zip(columns, headers, strict=True)
            ]
            found = _consume(parsers, rows)
    except OSError as error:
        raise _unopened(file, error) from error
    except (EOFError, zlib.error) as error:
        raise TraceError(file, "the gzip data end early or are damaged", remedy="copy or download it anew") from error
    except UnicodeDecodeError as error:
        raise TraceError(file, "is not UTF-8 text", remedy="save it as UTF-8") from error
    if not found:
        raise TraceError(file, _nothing(where), remedy="give a file with at least one row of data")
    return Table(
        numbers={p.column.title: p.values() for p in parsers if p.column.kind is not Kind.TEXT},
        texts={p.column.title: p.texts for p in parsers if p.column.kind is Kind.TEXT},
    )


def _consume(parsers: Sequence[_Parser], rows: Iterator[Row]) -> bool:
    found = False
    while block := list(islice(rows, _BLOCK_ROWS)):
        found = True
        lines = [line for line, _ in block]
        for number, parser in enumerate(parsers):
            parser.take([cells[number] for _, cells in block], lines)
    return found


def _csv_rows(
    file: Path, stream: IO[str], columns: Sequence[Column], where: dict[str, str]
) -> tuple[list[str], Iterator[Row]]:
    reader = csv.reader(stream)
    header = next(_parsed(file, reader), None)
    if header is None:
        raise TraceError(file, "the file is empty", remedy=f"give a CSV with the columns {_titles(columns)}")
    names = [name.strip() for name in header[1]]
    picks = [_find(file, names, column, line=header[0]) for column in columns]
    filters = [(_find(file, names, Column({name: 1.0}, ""), line=header[0]), text) for name, text in where.items()]

    def rows() -> Iterator[Row]:
        for line, cells in _parsed(file, reader):
            if len(cells) != len(names):
                raise TraceError(
                    file,
                    f"{len(cells)} cells where the header has {len(names)}",
                    remedy="give each row one cell a column, numbers without thousands separators",
                    line=line,
                )
            if all(cells[at].strip() == text for at, text in filters):
                yield line, [cells[at] for at in picks]

    return [names[at] for at in picks], rows()


def _parsed(file: Path, reader: Any) -> Iterator[Row]:
    """The rows that are not blank, with their line numbers."""
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise TraceError(
                file, f"is no CSV ({error})", remedy="save it as plain comma-separated text", line=reader.line_num
            ) from error
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _find(file: Path, header: Sequence[str], column: Column, *, line: int) -> int:
    folded = [name.casefold() for name in header]
    for name in column.names:
        if folded.count(name.casefold()) > 1:
            raise TraceError(
                file, "two columns have this name", remedy="rename or remove one of them", line=line, column=name
            )
        if name.casefold() in folded:
            return folded.index(name.casefold())
    others = [name for name in column.names if name != column.title]
    remedy = f"name it {column.title}" + (f" (or {', '.join(others)})" if others else "") + " in a header line"
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        remedy = "separate the columns with commas"
    found = ", ".join(header)
    problem = f"the column is missing, the header has {_shown(found)}"
    raise TraceError(file, problem, remedy=remedy, line=line, column=column.title)


def _json_rows(
    file: Path, stream: IO[str], columns: Sequence[Column], where: dict[str, str]
) -> tuple[list[str], Iterator[Row]]:
    lines = ((number, text) for number, text in enumerate(stream, start=1) if text.strip())
    first = next(lines)  # the file starts with a brace
    known = list(_json_object(file, *first))
    headers = [known[_find(file, known, column, line=first[0])] for column in columns]

    def rows() -> Iterator[Row]:
        yield from _json_cells(file, first, headers, where)
        for line in lines:
            yield from _json_cells(file, line, headers, where)

    return headers, rows()


def _json_cells(file: Path, line: tuple[int, str], headers: list[str], where: dict[str, str]) -> Iterator[Row]:
    entry = _json_object(file, *line)
    if any(str(entry.get(name)) != text for name, text in where.items()):
        return
    for name in headers:
        if name not in entry:
            raise TraceError(
                file, "the field is missing", remedy="give every line all fields", line=line[0], column=name
            )
    yield line[0], ["" if entry[name] is None else str(entry[name]) for name in headers]


def _json_object(file: Path, number: int, text: str) -> dict[str, Any]:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        raise TraceError(
            file, f"{_shown(text.strip())} is no JSON object", remedy="write one JSON object a line", line=number
        )
    return cast(dict[str, Any], entry)


def _opened(file: Path) -> IO[str]:
    with file.open("rb") as raw:
        packed = raw.read(2) == _GZIP_MAGIC
    return gzip.open(file, "rt", encoding="utf-8-sig", newline="") if packed else _plain(file)


def _plain(file: Path) -> IO[str]:
    return file.open(encoding="utf-8-sig", newline="")


def _first_character(stream: IO[str]) -> str:
    """The first character that is not white space; the stream is left at its start."""
    while (character := stream.read(1)) and character.isspace():
        pass
    stream.seek(0)
    return character


def _unopened(file: Path, error: OSError) -> TraceError:
    if isinstance(error, gzip.BadGzipFile):
        return TraceError(file, "the gzip data are damaged", remedy="copy or download it anew")
    return TraceError(file, f"cannot be read: {error.strerror or error}", remedy="correct the path")


def _nothing(where: Mapping[str, str] | None) -> str:
    chosen = " and ".join(f"{name} = {text!r}" for name, text in (where or {}).items())
    return f"no row has {chosen}" if chosen else "there is no row of data"


def _factor(column: Column, header: str) -> float:
    return next(factor for name, factor in column.names.items() if name.casefold() == header.casefold())


def _titles(columns: Sequence[Column]) -> str:
    return ", ".join(column.title for column in columns)


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _utc(cell: str) -> str:
    """The text without its mark of UTC, which numpy does not read. Raises ValueError if it is no date and time."""
    text = cell.strip().removesuffix("+00:00").removesuffix("Z").rstrip()
    if not _DATE.fullmatch(text):
        raise ValueError
    return text


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _SHOWN_CHARACTERS else cell[:_SHOWN_CHARACTERS] + "...")
