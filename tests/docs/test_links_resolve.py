"""Every relative link leads somewhere, and every page can be found from the index."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, anchors, links, relative


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    dead = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            dead.append(link)
    assert dead == []


def test_the_index_leads_to_every_page_and_how_to() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    pages = {*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md")} - {index}
    assert sorted(relative(page) for page in pages - linked) == []
