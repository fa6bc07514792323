"""Conditions move only when something moves, and speak a closed set of words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.full_tier import STATUS
from tierkeeper.api.conditions import (
    MESSAGE_LIMIT,
    Condition,
    ConditionReason,
    ConditionStatus,
    ConditionType,
    find_condition,
    set_condition,
)
from tierkeeper.api.status import ServiceTierStatus, read_status
from tierkeeper.ports import MetricsErrorReason
from tierkeeper.scaling.model import Reason
from tierkeeper.slo.model import SignalState

EARLY, LATE = "2026-11-29T18:00:00Z", "2026-11-29T19:00:00Z"


def ready(conditions: tuple[Condition, ...] = (), **changes: Any) -> tuple[Condition, ...]:
    values = {
        "type": ConditionType.READY,
        "status": True,
        "reason": ConditionReason.POOL_READY,
        "message": "2 of 2",
        "generation": 1,
        "now_iso": EARLY,
    }
    return set_condition(conditions, **{**values, **changes})


def test_the_same_said_later_changes_nothing() -> None:
    assert ready(ready(), now_iso=LATE) == ready()


def test_another_reason_keeps_the_time_of_the_last_transition() -> None:
    (condition,) = ready(ready(), reason=ConditionReason.POOL_DEGRADED, message="1 of 2", generation=2, now_iso=LATE)
    assert (condition.last_transition_time, condition.reason, condition.observed_generation) == (
        EARLY,
        "PoolDegraded",
        2,
    )


@pytest.mark.parametrize(("status", "text"), [(True, "True"), (False, "False"), (None, "Unknown")])
def test_a_status_may_be_said_as_a_bool(status: bool | None, text: str) -> None:
    assert ready(status=status)[0].status == text
    assert ready(status=ConditionStatus(text)) == ready(status=status)


def test_another_status_is_a_transition() -> None:
    (condition,) = ready(ready(), status=False, now_iso=LATE)
    assert condition.last_transition_time == LATE


def test_conditions_stand_in_a_fixed_order_and_foreign_ones_stay() -> None:
    foreign = Condition(type="Audited", status=ConditionStatus.TRUE, reason="R", last_transition_time=EARLY)
    both = ready(ready((foreign,)), type=ConditionType.STALLED)
    assert [condition.type for condition in both] == ["Ready", "Stalled", "Audited"]
    assert find_condition(both, ConditionType.STALLED) is both[1]
    assert find_condition(both, ConditionType.RESIZING) is None


def test_an_endless_message_is_cut() -> None:
    (condition,) = ready(message="x" * 5000)
    assert len(condition.message) == MESSAGE_LIMIT
    assert condition.message.endswith("…")


@pytest.mark.parametrize("word", [*Reason, *MetricsErrorReason, *SignalState])
def test_whatever_the_loop_and_the_metrics_say_is_a_known_reason(word: str) -> None:
    assert ConditionReason(word).doc.endswith(".")


def test_a_status_survives_being_written_and_read_again() -> None:
    status = read_status({"status": STATUS})
    assert status.to_dict() == STATUS
    assert read_status({"status": status.to_dict()}) == status


@pytest.mark.parametrize("stored", [None, {}, {"observedGeneration": "x"}, {"conditions": [{}]}])
def test_a_status_that_cannot_be_read_is_as_none(stored: Any) -> None:
    assert read_status({"status": stored}) == ServiceTierStatus()
    assert ServiceTierStatus().observed_generation == -1
