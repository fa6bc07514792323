"""A dashboard as one picture: its panels at their places, with what Prometheus answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.legend import Legend
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from e2e.dashboards.source import Series, Span
from e2e.dashboards.table import cells
from e2e.dashboards.units import color_of, mapped, shown

COLUMNS = 24
WIDTH, ROW = 15.0, 0.3
"""Inches: of the page, and of one row of Grafana's grid."""
MARGIN = 0.004
"""Of the page's width, left of a panel's labels."""
LEGEND_COLUMNS = 6

INK, QUIET, GRID = "#24292f", "#6e7781", "#eaeef2"
LINES = ("#0969da", "#bf8700", "#1a7f37", "#8250df", "#cf222e", "#0598bc", "#bc4c00", "#6e7781")

Answers = Callable[[Mapping[str, Any]], Sequence[Series]]


def draw(
    dashboard: Mapping[str, Any], answers: Answers, *, span: Span, subtitle: str, out: Path, dpi: int = 75
) -> None:
    """Write the picture as PNG."""
    panels = dashboard["panels"]
    rows = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels)
    head = 2.0  # rows of the grid, for the title
    figure = plt.figure(figsize=(WIDTH, (rows + head) * ROW))
    figure.text(0.008, 1 - 0.9 / (rows + head), dashboard["title"], fontsize=15, fontweight="bold", color=INK)
    figure.text(0.992, 1 - 0.9 / (rows + head), subtitle, fontsize=9, color=QUIET, ha="right")
    for panel in panels:
        place = panel["gridPos"]
        bottom = 1 - (place["y"] + place["h"] + head) / (rows + head)
        box = (place["x"] / COLUMNS, bottom, place["w"] / COLUMNS, place["h"] / (rows + head))
        if panel["type"] == "row":
            figure.text(0.008, bottom + box[3] * 0.3, panel["title"], fontsize=11, fontweight="bold", color=INK)
            continue
        wide, bare = box[2], panel["type"] in ("stat", "table")
        left, low, high = (0.008, 0.2, 1.1) if bare else (0.038, 2.3, 1.3)
        inner = (box[0] + left, bottom + low / (rows + head), wide - left - 0.01, box[3] - (low + high) / (rows + head))
        axes = figure.add_axes(inner)
        axes.set_title(panel["title"], fontsize=9, color=INK, loc="left", pad=4)
        _DRAW[panel["type"]](axes, panel, answers(panel), span)
        _widen_for_labels(axes, box[0])
        _fit_legend(axes, box[0] + wide)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=dpi)
    plt.close(figure)


def _extent(artist: Artist, axes: Axes) -> Bbox:
    """Where something is drawn, in fractions of the page."""
    figure = axes.get_figure(root=True)
    box = artist.get_tightbbox()
    assert figure is not None
    assert box is not None
    return Bbox(box.transformed(figure.transFigure.inverted()))


def _widen_for_labels(axes: Axes, left: float) -> None:
    """Give the labels of the y axis the width that they take: names of conditions are longer than numbers."""
    if not axes.axison or not axes.yaxis.get_ticklabels():
        return
    place, cut = axes.get_position(), left + MARGIN - _extent(axes.yaxis, axes).x0
    if cut > 0:
        axes.set_position((place.x0 + cut, place.y0, place.width - cut, place.height))


def _fit_legend(axes: Axes, right: float) -> None:
    """As many columns as fit beside each other: a picture has nowhere to scroll to."""
    legend = axes.get_legend()
    columns = LEGEND_COLUMNS
    while legend is not None and columns > 1 and _extent(legend, axes).x1 > right:
        columns -= 1
        legend = _legend(axes, columns)


def _defaults(panel: Mapping[str, Any]) -> Mapping[str, Any]:
    defaults: Mapping[str, Any] = panel.get("fieldConfig", {}).get("defaults", {})
    return defaults


def _nothing(axes: Axes) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, "No data", ha="center", va="center", color=QUIET, fontsize=9, transform=axes.transAxes)


def _stat(axes: Axes, panel: Mapping[str, Any], found: Sequence[Series], _: Span) -> None:
    axes.set_axis_off()
    if not found:
        _nothing(axes)
        return
    value, defaults = found[0].values[-1], _defaults(panel)
    by_name = panel["options"].get("textMode") == "name"
    text = found[0].name if by_name else shown(value, defaults.get("unit"))
    color = INK if by_name else color_of(value, defaults.get("thresholds"), INK)
    size = 20 if len(text) < 12 else 12
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=size, color=color, transform=axes.transAxes)


def _table(axes: Axes, panel: Mapping[str, Any], found: Sequence[Series], _: Span) -> None:
    head, rows = cells(panel, found)
    if not rows:
        _nothing(axes)
        return
    axes.set_axis_off()
    step = min(0.12, 1.0 / (len(rows) + 1))
    widths = [2 + max(len(text) for text in (name, *(row[k][0] for row in rows))) for k, name in enumerate(head)]
    for column, name in enumerate(head):
        x = sum(widths[:column]) / sum(widths)
        axes.text(x, 1 - step / 2, name, fontsize=8.5, color=QUIET, va="center", transform=axes.transAxes)
        for number, row in enumerate(rows, start=1):
            text, color = row[column]
            y = 1 - step * (number + 0.5)
            axes.text(x, y, text, fontsize=9, color=color or INK, va="center", transform=axes.transAxes)
    axes.axhline(1 - step, color=GRID, linewidth=1)


def _time_axis(axes: Axes, span: Span) -> None:
    axes.set_xlim(0, span.end - span.start)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 1.5, 3, 6, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda second, _: f"{int(second) // 60}:{int(second) % 60:02}"))
    axes.tick_params(labelsize=7, colors=QUIET, length=0)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _timeseries(axes: Axes, panel: Mapping[str, Any], found: Sequence[Series], span: Span) -> None:
    if not found:
        _nothing(axes)
        return
    defaults = _defaults(panel)
    custom = defaults.get("custom", {})
    lines = [(each, _on_grid(each, span)) for each in found]
    grid = [k * span.step for k in range(len(lines[0][1]))]
    if custom.get("stacking", {}).get("mode") == "normal":
        columns = [[0.0 if math.isnan(v) else v for v in values] for _, values in lines]
        names = [each.name for each, _ in lines]
        axes.stackplot(
            grid, columns, labels=names, colors=[LINES[k % len(LINES)] for k in range(len(names))], alpha=0.55
        )
    else:
        for number, (each, values) in enumerate(lines):
            dashed = _override(panel, each.name, "custom.lineStyle") is not None
            fixed = _override(panel, each.name, "color")
            color = "#cf222e" if fixed is not None else LINES[number % len(LINES)]
            axes.plot(grid, values, label=each.name, color=color, linewidth=1.3, linestyle="--" if dashed else "-")
    if custom.get("thresholdsStyle", {}).get("mode") == "line":
        for step in defaults.get("thresholds", {}).get("steps", ()):
            if step["value"] is not None:
                axes.axhline(step["value"], color=color_of(step["value"], defaults["thresholds"], INK), lw=0.8, ls=":")
    low, high = axes.get_ylim()
    axes.set_ylim(defaults.get("min", low), defaults.get("max", high))
    whole = all(math.isnan(value) or value.is_integer() for _, values in lines for value in values)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=whole))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, defaults.get("unit"))))
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    _time_axis(axes, span)
    _legend(axes)


def _legend(axes: Axes, columns: int = LEGEND_COLUMNS) -> Legend | None:
    handles, names = axes.get_legend_handles_labels()
    if not any(names):
        return None
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.1), "ncols": columns}
    return axes.legend(handles[:12], names[:12], fontsize=7, frameon=False, labelcolor=QUIET, handlelength=1.2, **place)


def _timeline(axes: Axes, panel: Mapping[str, Any], found: Sequence[Series], span: Span) -> None:
    if not found:
        _nothing(axes)
        return
    ranked = sorted(found, key=lambda each: each.name, reverse=True)
    for row, each in enumerate(ranked):
        for color, start, steps in _runs(_on_grid(each, span), panel):
            axes.broken_barh([(start * span.step, steps * span.step)], (row - 0.4, 0.8), facecolor=color, linewidth=0)
    axes.set_yticks(range(len(ranked)), [each.name for each in ranked])
    axes.set_ylim(-0.6, len(ranked) - 0.4)
    _time_axis(axes, span)


def _runs(values: Sequence[float], panel: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Color, first place and length of each run of one value; nothing for a gap."""
    place = 0
    for value, run in groupby(values, key=lambda one: None if math.isnan(one) else one):
        length = len(list(run))
        if value is not None:
            yield mapped(value, _defaults(panel).get("mappings"))[1] or QUIET, place, length
        place += length


def _on_grid(each: Series, span: Span) -> list[float]:
    """One value for each step of the span; NaN where there is none, so that a gap stays a gap."""
    values = [math.nan] * (int((span.end - span.start) / span.step) + 1)
    for at, value in zip(each.at, each.values, strict=True):
        place = round((at - span.start) / span.step)
        if 0 <= place < len(values):
            values[place] = value
    return values


def _override(panel: Mapping[str, Any], name: str, what: str) -> Any:
    for each in panel.get("fieldConfig", {}).get("overrides", ()):
        if each["matcher"] == {"id": "byName", "options": name}:
            for one in each["properties"]:
                if one["id"] == what:
                    return one["value"]
    return None


_DRAW = {"stat": _stat, "table": _table, "timeseries": _timeseries, "state-timeline": _timeline}
