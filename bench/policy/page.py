"""The scoreboard as one page and one picture."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.policy.board import SUMMARY, Sheet, columns, summary

_STYLE = """
:root { --ink:#1d2433; --soft:#667085; --line:#e3e7ee; --page:#f6f7f9; --card:#fff; --ours:#2563a8; --bad:#c0392b;
  color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6e9ef; --soft:#98a2b3; --line:#2e3644; --page:#12161d;
  --card:#1a202a; --ours:#6ea8e5; --bad:#f0776a; } }
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui, sans-serif; }
main { max-width:1240px; margin:0 auto; padding:24px 20px 60px; }
h1, h2, p { overflow-wrap:anywhere; }
h1 { font-size:24px; margin:0 0 4px; } h2 { font-size:18px; margin:32px 0 2px; }
p { margin:4px 0 10px; color:var(--soft); }
.card { background:var(--card); border:1px solid var(--line); border-radius:8px; padding:10px 14px; overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-size:13px; font-variant-numeric:tabular-nums; }
th, td { padding:4px 8px; text-align:right; border-bottom:1px solid var(--line); white-space:nowrap; }
th { color:var(--soft); white-space:normal; vertical-align:bottom; }
th:first-child, td:first-child, th.words, td.words { text-align:left; }
td.words { white-space:normal; min-width:180px; }
.picture { margin-top:12px; } .picture img { display:block; max-width:100%; margin:0 auto; }
tr:last-child td { border-bottom:0; } tr.ours td { color:var(--ours); font-weight:600; }
tr.bound td { color:var(--soft); font-style:italic; } td.bad { color:var(--bad) !important; }
"""

OURS, PEER, BOUND = "#2563a8", "#d9822b", "#98a2b3"
BESIDE = (
    *((7, up, "left") for up in (4, -11, 14, -21)),
    *((-7, up, "right") for up in (4, -11, 14, -21)),
)
"""Where a name may stand, in points from its point; the first that is free is taken."""
LEADER = {"arrowstyle": "-", "color": BOUND, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}
"""The line from a name to its point."""

LEAST_BAD = 1e-5
"""Fewer bad requests than this are drawn as this."""


def page(sheets: Sequence[Sheet], *, title: str, notes: Sequence[str], drawn: bytes) -> str:
    """The summary, the picture (a PNG), then a table a scenario; it needs no network and no script."""
    parts = [_table([name for name, _ in SUMMARY], [what for _, what in SUMMARY], summary(sheets), words=True)]
    image = f"data:image/png;base64,{base64.b64encode(drawn).decode()}"
    parts.append(f'<div class="card picture"><img alt="Attainment against GPU-hours" src="{image}"></div>')
    for sheet in sheets:
        shown = columns(sheet)
        lines = [[text(sheet, line) for _, _, text in shown] for line in sheet.lines]
        knows = [line.policy for line in sheet.lines if line.knows]
        table = _table([name for name, _, _ in shown], [what for _, what, _ in shown], lines, bounds=knows)
        parts.append(f"<h2>{escape(sheet.title)}</h2><p>{escape(sheet.story)}</p>{table}")
    said = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>{said}'
        f"{''.join(parts)}</main></body></html>\n"
    )


def picture(sheets: Sequence[Sheet], file: Path) -> None:
    """Attainment against GPU-hours, one panel a scenario with recorded traffic: up and to the left is better.

    Bad requests are drawn on a logarithmic scale, so that 99 % and 99.9 % are as far apart as 90 % and 99 %.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    shown = [sheet for sheet in sheets if sheet.bound is not None and sheet.recorded] or list(sheets)
    across = min(2, len(shown))
    down = -(-len(shown) // across)
    figure, axes = plt.subplots(down, across, figsize=(5.6 * across, 4.2 * down), squeeze=False, layout="constrained")
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    marked = [(axis, _panel(axis, sheet)) for axis, sheet in zip(axes.flat, shown, strict=False)]
    figure.draw_without_rendering()  # the panels have their sizes now, which tells where a name has room
    for axis, places in marked:
        _name(axis, places)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)


Place = tuple[float, float]
"""GPU-hours, and the share of bad requests."""


def _panel(axis, sheet: Sheet) -> dict[Place, str]:  # type: ignore[no-untyped-def]
    """The points, and who is at each. ``axis``: a matplotlib Axes. Ours with something taken away is in the tables."""
    seen: dict[Place, str] = {}
    for line in sorted(sheet.lines, key=lambda one: one.row["gpu_hours"]):
        place = (line.row["gpu_hours"], max(1 - line.row["attainment"], LEAST_BAD))
        if line.about.startswith("ours, ") or place in seen:
            continue
        seen[place] = line.policy
        ours = line.policy == "tierkeeper"
        color, mark = (OURS, "o") if ours else ((BOUND, "D") if line.knows else (PEER, "o"))
        axis.plot(*place, mark, color=color, markersize=9 if ours else 6, zorder=3 if ours else 2)
    axis.axhline(0.01, color="#c0392b", linestyle="--", linewidth=1)
    axis.set_yscale("log")
    axis.set_ylim(1.0, LEAST_BAD / 1.6)
    axis.set_yticks([1.0, 0.1, 0.01, 1e-3, 1e-4], ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"])
    axis.margins(x=0.18)
    axis.set_title(sheet.story, fontsize=10)
    axis.set_xlabel("GPU-hours")
    axis.set_ylabel("requests within every target")
    axis.grid(alpha=0.25)
    return seen


def _name(axis, places: dict[Place, str]) -> None:  # type: ignore[no-untyped-def]
    """Write each name beside its point, where neither another name nor a point nor the edge is in the way."""
    from matplotlib.transforms import Bbox

    def write(name: str, place: Place, spot: tuple[int, int, str], **more: object):  # type: ignore[no-untyped-def]
        across, up, side = spot
        weight = "bold" if name == "tierkeeper" else "normal"
        shape = {"xytext": (across, up), "textcoords": "offset points", "ha": side, "fontsize": 8, "weight": weight}
        return axis.annotate(name, place, **shape, **more)

    taken = [Bbox.from_extents(x - 5, y - 5, x + 5, y + 5) for x, y in axis.transData.transform(list(places))]
    for place, name in places.items():
        boxes = {}
        for spot in BESIDE:
            tried = write(name, place, spot)
            boxes[spot] = tried.get_window_extent()
            tried.remove()
        free = [
            spot
            for spot, box in boxes.items()
            if axis.bbox.x0 <= box.x0 and box.x1 <= axis.bbox.x1 and not any(box.overlaps(other) for other in taken)
        ]
        chosen = (free or BESIDE)[0]
        write(name, place, chosen, arrowprops=LEADER)
        taken.append(boxes[chosen])


def _table(
    heads: Sequence[str],
    what: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    bounds: Sequence[str] = (),
    words: bool = False,
) -> str:
    head = "".join(
        f'<th title="{escape(tip)}"{_words(words and place == len(heads))}>{escape(name)}</th>'
        for place, (name, tip) in enumerate(zip(heads, what, strict=True), start=1)
    )
    body = "".join(_line(line, bound=line[0] in bounds, words=words) for line in lines)
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _line(cells: Sequence[str], *, bound: bool, words: bool) -> str:
    style = ' class="ours"' if cells[0] == "tierkeeper" else ' class="bound"' if bound else ""
    found = [
        f"<td{_style(cell, last=words and place == len(cells) - 1)}>{escape(cell)}</td>"
        for place, cell in enumerate(cells)
    ]
    return f"<tr{style}>{''.join(found)}</tr>"


def _words(last: bool) -> str:
    return ' class="words"' if last else ""


def _style(cell: str, *, last: bool) -> str:
    return _words(last) if last else ' class="bad"' if cell.endswith(" *") else ""
