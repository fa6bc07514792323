"""The page of reasons has one paragraph for each reason, and for nothing else."""

import re
from pathlib import Path

import pytest

from tierkeeper.scaling.model import Reason

PAGE = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text(encoding="utf-8")
PARAGRAPHS = {name: text.strip() for name, text in re.findall(r"^### `(\w+)`\n+(.*?)(?=^##|\Z)", PAGE, re.M | re.S)}


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_says_what_it_means_and_what_to_do(reason):
    assert len(PARAGRAPHS.get(reason.value, "")) > 80


def test_the_page_names_no_reason_that_does_not_exist():
    assert set(PARAGRAPHS) == {reason.value for reason in Reason}
