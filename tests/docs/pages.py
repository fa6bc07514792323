"""The documentation as text: pages, code blocks, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: What people read: every page under docs/, and the READMEs that lead to them.
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "charts").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
    ]
)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block."""

    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        """Page and first line, for a test's id."""
        return f"{relative(self.page)}: {self.text.strip().splitlines()[0][:60] if self.text.strip() else ''}"


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(*languages: str) -> list[Block]:
    """The fenced blocks of all pages in these languages."""
    found = (Block(page, *match) for page in PAGES for match in _FENCE.findall(read(page)))
    return [block for block in found if block.language in languages]


def prose(path: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", read(path))


def links(path: Path) -> Iterator[str]:
    """Where the page's links and pictures lead, those out of the repository left out."""
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "code", prose(path))):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(path: Path) -> set[str]:
    """The names by which a page's headings are linked, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
