"""Troubleshooting has one paragraph for each reason of a condition; those of the loop are in reasons.md."""

import re

import pytest

from tests.docs.pages import DOCS, read
from tierkeeper.api.conditions import ConditionReason, ConditionType
from tierkeeper.scaling.model import Reason

PAGE = read(DOCS / "troubleshooting.md")
FOUND = re.findall(r"^### `(\w+)`\n+(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
PARAGRAPHS = {name: text.strip() for name, text in FOUND}
OF_THE_LOOP = {reason.value for reason in Reason}
EXPECTED = [reason for reason in ConditionReason if reason.value not in OF_THE_LOOP]


@pytest.mark.parametrize("reason", EXPECTED)
def test_each_reason_has_one_paragraph(reason: ConditionReason) -> None:
    text = PARAGRAPHS.get(reason.value, "")
    assert len(text) > 40
    assert "\n\n" not in text


def test_no_paragraph_is_about_anything_else_or_stands_twice() -> None:
    assert sorted(name for name, _ in FOUND) == sorted(reason.value for reason in EXPECTED)


def test_the_loop_s_reasons_are_pointed_to_and_not_repeated() -> None:
    assert "(reasons.md)" in PAGE
    assert OF_THE_LOOP.isdisjoint(PARAGRAPHS)


@pytest.mark.parametrize("kind", list(ConditionType))
def test_each_condition_is_spoken_of(kind: ConditionType) -> None:
    assert f"`{kind.value}`" in PAGE
    assert f"`{kind.value}`" in read(DOCS / "concepts.md")
