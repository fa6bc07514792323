"""A tier's gauges: what is wanted, what is set and what every pod obeys are told apart."""

import pytest

from tierkeeper.api.conditions import ConditionReason, ConditionType
from tierkeeper.api.status import ServiceTierStatus
from tierkeeper.control.gauges import gauges, shown_by_all
from tierkeeper.control.pods import PodCensus, PodPhase, PodView
from tierkeeper.control.pool import PoolView
from tierkeeper.control.record import TierRecord
from tierkeeper.engine.limits import Limits
from tierkeeper.scaling.model import Levers
from tierkeeper.tier import TierKey

PODS = PodCensus((PodView("one", PodPhase.READY), PodView("two", PodPhase.READY), PodView("new", PodPhase.STARTING)))
VIEW = PoolView(exists=True, levers=Levers(3, 16, 512), census=PODS)


def status():
    ready = {"type": ConditionType.READY, "status": "False", "reason": ConditionReason.NOT_YET_KNOWN, "message": "."}
    return ServiceTierStatus.model_validate({"conditions": [ready | {"lastTransitionTime": "2026-11-30T12:00:00Z"}]})


def test_what_is_wanted_is_told_from_what_is_set_and_from_what_pods_obey():
    shown = gauges(status(), VIEW, desired=Levers(4, 24, 1024), shown=Limits(8, 256))
    for gauge, desired, set_, applied in (("max_num_seqs", 24, 16, 8), ("token_budget", 1024, 512, 256)):
        assert [shown[gauge, (state,)] for state in ("desired", "set", "applied")] == [desired, set_, applied]
    assert [shown["replicas", (state,)] for state in ("desired", "set", "ready", "starting")] == [4, 3, 2, 1]


def test_without_a_decision_what_is_set_is_wanted_and_what_no_pod_shows_is_taken_away():
    shown = gauges(status(), VIEW, desired=None, shown=None)
    assert (shown["max_num_seqs", ("desired",)], shown["max_num_seqs", ("applied",)]) == (16, None)


def test_of_a_pool_that_was_not_looked_at_the_conditions_are_shown():
    shown = gauges(status(), None, desired=Levers(4, 24), shown=None)
    assert shown == {("condition", ("Ready", "False", "NotYetKnown")): 1}


@pytest.mark.parametrize(
    ("pods", "all_show"),
    [
        ({"one": Limits(16), "two": Limits(16)}, Limits(16)),
        ({"one": Limits(16), "two": Limits(24)}, None),
        ({"one": Limits(16)}, None),
        ({"one": Limits(16), "two": Limits(16), "new": Limits(24)}, Limits(16)),
    ],
    ids=["alike", "unlike", "one has shown none", "one is not Ready"],
)
def test_limits_count_as_obeyed_once_every_ready_pod_shows_them(pods, all_show):
    assert shown_by_all(TierRecord(TierKey("llm", "gold"), shown=pods), VIEW) == all_show
