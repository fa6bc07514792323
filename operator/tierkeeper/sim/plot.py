"""Line plots as inline SVG: no script, no request, colors from the page's style so that they follow light and dark.

A plot is drawn on a fixed canvas and scales with its place. Values that are not finite leave a gap in their line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WIDTH, HEIGHT = 960, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 26, 24
_POINTS = 1200
"""Most points of a line: a little more than there are pixels."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One line of a plot."""

    name: str
    x: Floats
    """Seconds, ascending."""
    y: Floats
    steps: bool = False
    """Each value holds until the next one."""
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment worth a look, with the words that pointing at it shows."""

    x: float
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Plot:
    """Lines over the time of a run."""

    title: str
    unit: str
    lines: Sequence[Line]
    seconds: float
    """Where the time axis ends; it starts at 0."""
    target: float | None = None
    """A level that is drawn across, by its value."""
    logarithmic: bool = False
    floor: float | None = None
    """What lies below is drawn at this level."""
    whole: bool = False
    """Values are counts: the axis has whole numbers only."""
    marks: Sequence[Mark] = ()
    marked: str = "change"
    """What a mark is, for the legend."""
    note: str = ""
    """What the plot cannot show, for below it."""


def svg(plot: Plot) -> str:
    """The plot as one ``<svg>`` element."""
    values = _axis(plot)
    heading = f"{plot.title} ({plot.unit})" if plot.unit else plot.title
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(plot.title)}">',
        f'<text class="title" x="{_LEFT}" y="15">{escape(heading)}</text>',
        _legend(plot),
        *(_grid(values, level) for level in values.levels),
        *(_moment(at, label, plot.seconds) for at, label in time_ticks(plot.seconds)),
    ]
    parts += [_mark(mark, plot.seconds) for mark in plot.marks]
    if plot.target is not None:
        height = values.place(plot.target)
        parts.append(f'<line class="target" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
    parts += [_path(line, number, values, plot.seconds) for number, line in enumerate(plot.lines, start=1)]
    return "\n".join([*(part for part in parts if part), "</svg>"])


def time_ticks(seconds: float) -> list[tuple[float, str]]:
    """Round moments of an axis of that length, at most nine, each with its words: ``10 min``, ``6 h``, ``2 d``."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
    step = next((s for s in steps if seconds / s <= 8), 2419200)
    size, unit = next((size, unit) for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")) if step >= size)
    return [(at, f"{at / size:g} {unit}") for at in range(0, math.floor(seconds) + 1, step)]


@dataclass(frozen=True, slots=True)
class _Axis:
    """The scale of the values."""

    low: float
    high: float
    levels: tuple[float, ...]
    """Where the grid lines are."""
    logarithmic: bool

    def place(self, value: float) -> float:
        """Where a value lies on the canvas, from the top; what is outside is drawn at the border."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _axis(plot: Plot) -> _Axis:
    low, high = _levels(plot)
    return _logarithmic(low, high) if plot.logarithmic else _linear(low, high, whole=plot.whole)


def _linear(low: float, high: float, *, whole: bool) -> _Axis:
    """From 0, or from below it where there are such values, with about five round levels."""
    low, high = min(0.0, low), max(high, 0.0)
    high = high if high > low else low + 1.0
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    step = float(math.ceil(step)) if whole else step
    numbers = range(math.floor(low / step), math.ceil(high / step) + 1)
    levels = tuple(step * number for number in numbers)
    return _Axis(levels[0], levels[-1], levels, logarithmic=False)


def _logarithmic(low: float, high: float) -> _Axis:
    """Between two of 1, 2, 5, 10, 20, ...; over more than two decades only powers of ten are drawn."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    every = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    first = max(level for level in every if level <= low)
    last = min(level for level in every if level > first and level >= high)
    tens = last / first > 100
    levels = [level for level in every if first <= level <= last and (not tens or level in every[::3])]
    return _Axis(first, last, tuple(levels), logarithmic=True)


def _levels(plot: Plot) -> tuple[float, float]:
    """The lowest and the highest level to show."""
    found = [line.y[np.isfinite(line.y)] for line in plot.lines]
    values = np.concatenate([*found, [plot.target] if plot.target is not None else []]).astype(np.float64)
    if plot.logarithmic:
        values = values[values > 0]
    if not len(values):
        return (0.1, 1.0) if plot.logarithmic else (0.0, 1.0)
    low = float(values.min())
    return (low if plot.floor is None else max(low, plot.floor)), float(values.max())


def _across(at: float, seconds: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * at / seconds


def _grid(axis: _Axis, level: float) -> str:
    """A level; its unit is in the title, as no label of five digits and a unit fits beside the axis."""
    height = axis.place(level)
    label = f"{level:,.0f}" if abs(level) >= 1000 else f"{level:g}"
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>'
        f'<text class="label end" x="{_LEFT - 6}" y="{height + 4:.1f}">{escape(label)}</text>'
    )


def _moment(at: float, label: str, seconds: float) -> str:
    place = _across(at, seconds)
    return f'<text class="label mid" x="{place:.1f}" y="{HEIGHT - 6}">{escape(label)}</text>'


def _mark(mark: Mark, seconds: float) -> str:
    place = _across(mark.x, seconds)
    return (
        f'<line class="mark" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}">'
        f"<title>{escape(mark.text)}</title></line>"
    )


def _legend(plot: Plot) -> str:
    """The names of the lines, right-aligned in the title's row."""
    names = [(f"s{number}", line.name) for number, line in enumerate(plot.lines, start=1)]
    names += [("target", "target")] if plot.target is not None else []
    words = [f'<tspan class="{style}">■</tspan>&#160;{escape(name)}' for style, name in names]
    words += [f'<tspan class="mark">|</tspan>&#160;{escape(plot.marked)}'] if plot.marks else []
    return f'<text class="label end" x="{WIDTH - _RIGHT}" y="15">{"&#160;&#160; ".join(words)}</text>'


def _path(line: Line, number: int, axis: _Axis, seconds: float) -> str:
    """The line as path data: a move after each gap, levels and jumps where it goes in steps."""
    x, y = _thinned(line)
    commands: list[str] = []
    pen = False
    for at, value in zip(x.tolist(), y.tolist(), strict=True):
        if at > seconds:
            commands += [f"H{_across(seconds, seconds):.1f}"] if pen and line.steps else []
            break
        if not math.isfinite(value):
            pen = False
            continue
        place = f"{_across(at, seconds):.1f}"
        if pen and line.steps:
            commands.append(f"H{place}")
        height = f"{axis.place(value):.1f}"
        commands.append(f"L{place} {height}" if pen else f"M{place} {height}h0")  # h0: a value alone is a dot
        pen = True
    style = f"line s{number}{' faint' if line.faint else ''}"
    return f'<path class="{style}" d="{"".join(commands)}"/>' if commands else ""


def _thinned(line: Line) -> tuple[Floats, Floats]:
    """As many points as the canvas can show: where something changes in steps, else the extremes of each stretch."""
    x, y = line.x, line.y
    if line.steps and len(x):
        same = (y[1:] == y[:-1]) | (np.isnan(y[1:]) & np.isnan(y[:-1]))
        kept = np.concatenate([[True], ~same])
        kept[-1] = True
        x, y = x[kept], y[kept]
    if len(x) <= _POINTS:
        return x, y
    chosen: list[int] = []
    for part in np.array_split(np.arange(len(x)), _POINTS // 2):
        finite = part[np.isfinite(y[part])]
        ends = {int(finite[y[finite].argmin()]), int(finite[y[finite].argmax()])} if len(finite) else {int(part[0])}
        chosen += sorted(ends)
    return x[chosen], y[chosen]
