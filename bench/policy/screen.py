"""The tables of the scoreboard on a terminal: as tables where they fit, else one block a line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table

UNBOUNDED = 10_000
"""Columns of a terminal on which every table fits."""


def show(
    console: Console,
    title: str,
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    styles: Sequence[str | None] = (),
    left: Collection[int] = (0,),
) -> None:
    """A table, the columns ``left`` left-aligned. Where it is wider than the terminal, each of its lines is a block."""
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(heads):
        table.add_column(name, justify="left" if number in left else "right")
    for cells, style in zip(lines, styles or [None] * len(lines), strict=True):
        table.add_row(*cells, style=style)
    if console.measure(table, options=console.options.update(width=UNBOUNDED)).maximum <= console.width:
        console.print(table)
        return
    wide = max(len(name) for name in heads)
    say(console, f"\n{title}")
    for cells, style in zip(lines, styles or [None] * len(lines), strict=True):
        say(console, cells[0], style=style)
        for name, cell in zip(heads[1:], cells[1:], strict=True):
            say(console, f"  {name:<{wide}}  {cell}", style=style)


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """A line as it is, however long: the terminal folds it, a pipe does not."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
