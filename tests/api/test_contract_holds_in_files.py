"""The whole contract, tried on the models: what the API server refuses, a file is refused for as well."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from tests.api.contract import Case, constraints, field_cases
from tests.api.rule_cases import rule_cases
from tierkeeper.api.convert import InvalidTier, parse
from tierkeeper.api.status import ServiceTierStatus

CASES = [*field_cases(), *rule_cases()]
SPEC = [case for case in CASES if not case.covers.startswith("status")]
STATUS = [case for case in CASES if case.covers.startswith("status") and not case.covers.endswith(":format")]
"""Without the format of times, which the models leave to the API server."""

BROKEN_RULES = [case for case in rule_cases() if not case.accepted and not case.covers.endswith(":type")]


def by_part(cases: list[Case]) -> list[Any]:
    """The cases of each part of the object (``spec.engine``) as one parameter: a thousand set-ups would cost time."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(".".join(case.covers.partition(":")[0].split(".")[:2]) or "tier", []).append(case)
    return [pytest.param(group, id=part) for part, group in groups.items()]


def problems(case: Case) -> str | None:
    """What the models find wrong with a case, or None."""
    try:
        parse(case.tier(), strict=True)
        ServiceTierStatus.model_validate(case.tier()["status"])
    except (InvalidTier, ValidationError) as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize("cases", by_part([case for case in SPEC + STATUS if case.accepted]))
def test_accepted(cases: list[Case]) -> None:
    assert {case.id: found for case in cases if (found := problems(case)) is not None} == {}


@pytest.mark.parametrize("cases", by_part([case for case in SPEC + STATUS if not case.accepted]))
def test_refused(cases: list[Case]) -> None:
    assert [case.id for case in cases if problems(case) is None] == []


@pytest.mark.parametrize(
    "cases", by_part([c for c in rule_cases() if not c.accepted and not c.covers.endswith(":type")])
)
def test_a_broken_rule_is_told_in_the_words_of_the_api_server(cases: list[Case]) -> None:
    told = {case.id: problems(case) or "" for case in cases}
    assert {case.id: told[case.id] for case in cases if not re.search(case.says or "", told[case.id])} == {}


def test_every_constraint_has_a_case_that_is_accepted_and_one_that_is_refused() -> None:
    wanted = {name for name, _, _ in constraints()}
    assert {case.covers for case in CASES if case.accepted} == wanted
    assert {case.covers for case in CASES if not case.accepted} == wanted


def test_case_ids_are_unique() -> None:
    ids = [case.id for case in CASES]
    assert len(set(ids)) == len(ids), sorted({i for i in ids if ids.count(i) > 1})
