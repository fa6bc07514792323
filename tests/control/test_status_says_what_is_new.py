"""The status: what it shows, and when it is worth a write."""

import dataclasses

import pytest

from tests.control.stage import tier
from tierkeeper.api.convert import to_tier
from tierkeeper.api.status import ServiceTierStatus
from tierkeeper.control.facts import Facts
from tierkeeper.control.pods import PodCensus, PodPhase, PodView
from tierkeeper.control.pool import PoolView
from tierkeeper.control.record import Resize
from tierkeeper.control.status import build_status, needs_write
from tierkeeper.engine.limits import Limits
from tierkeeper.scaling.model import Decision, Levers, Limit, Reason
from tierkeeper.slo.model import Assessment, Quantile, Ratio, SignalState, Sli, SloAssessment, WindowSli
from tierkeeper.tier import TierKey

SPEC = to_tier(tier() | {"metadata": {"name": "gold", "namespace": "llm", "uid": "u1", "generation": 3}})
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def view(*, ready=2, replicas=2, **more):
    pods = tuple(PodView(name=f"p{n}", phase=PodPhase.READY, ip="10.0.0.1") for n in range(ready))
    return PoolView(exists=True, levers=Levers(replicas, 16), census=PodCensus(pods), **more)


def ratio(value):
    return Ratio(value, value, value)


def slo(sli=Sli.TTFT, *, p99=0.412, burn=1.4, ratios=None, met=True, at_or_above=False, left=0.63, **more):
    return SloAssessment(
        sli=sli,
        threshold_seconds=0.5,
        state=SignalState.OK,
        reason="Ok",
        said=f"{sli} is fine",
        metric="vllm:x",
        windows=(WindowSli(300, 120.0, ratios or ratio(burn / 100), ratio(burn)),),
        p99=Quantile(p99, at_or_above),
        budget_left=left,
        met=met,
        **more,
    )


def assessment(*slos, state=SignalState.OK, reason="Ok", message="measured"):
    return Assessment(
        key=TierKey("llm", "gold"), state=state, reason=reason, said=message, slos={s.sli: s for s in slos}
    )


def facts(**more):
    return Facts(generation=3, now=100.0, **({"spec": SPEC, "view": view()} | more))


def built(old=None, at=EARLY, **more):
    return build_status(facts(**more), old=old or ServiceTierStatus(), now_iso=at)


def stands(status, kind):
    return next(f"{c.status} {c.reason}" for c in status.conditions if c.type == kind)


def test_the_columns_say_value_and_target():
    status = built(assessment=assessment(slo(), slo(Sli.TPOT, p99=10.0, at_or_above=True, burn=0.2, left=0.9)))
    assert (status.ttft, status.tpot) == ("412/500ms", ">=10000/500ms")
    assert (status.burn, status.budget, status.replicas_summary, status.seqs) == ("1.4x", "63%", "2/2", "16")


def test_what_is_about_to_change_is_shown_as_an_arrow():
    status = built(desired=Levers(3, 24))
    assert (status.replicas_summary, status.seqs) == ("2/2→3", "16→24")


def test_replicas_on_their_way_are_shown_as_ready_of_wanted():
    assert built(view=view(ready=1, replicas=2)).replicas_summary == "1/2"


def test_the_error_ratio_is_a_ratio_with_its_bounds():
    (shown,) = built(assessment=assessment(slo(ratios=Ratio(0.0123, 0.014, 0.02)))).slos
    assert (shown.error_ratio.lower, shown.error_ratio.point, shown.error_ratio.upper) == (
        "0.01230",
        "0.01400",
        "0.02000",
    )


def test_the_same_facts_give_the_same_status_and_no_write():
    old = built(assessment=assessment(slo()))
    new = built(old, LATE, assessment=assessment(slo()))
    assert new == old
    assert not needs_write(old, new, now=1e9, written_at=None, interval_seconds=60)


def test_a_transition_time_moves_only_when_the_status_flips():
    old = built(assessment=assessment(slo()))
    new = built(old, LATE, assessment=assessment(slo(met=False)))
    times = {c.type: c.last_transition_time for c in new.conditions}
    assert times["SLOMet"] == LATE
    assert times["Ready"] == EARLY


@pytest.mark.parametrize(("since", "written"), [(10, False), (59, False), (60, True), (None, True)])
def test_figures_alone_wait_for_their_interval(since, written):
    old = built(assessment=assessment(slo(p99=0.412)))
    new = built(old, LATE, assessment=assessment(slo(p99=0.413)))
    at = None if since is None else 1000.0 - since
    assert needs_write(old, new, now=1000.0, written_at=at, interval_seconds=60) is written


def test_a_flipped_condition_and_a_new_decision_are_written_at_once():
    old = built(assessment=assessment(slo()))
    flipped = built(old, LATE, assessment=assessment(slo(met=False)))
    decided = built(old, LATE, decision=Decision(Levers(2, 24), Reason.QUEUE_BOUND_RAISE_CAP, "raise"))
    for new in (flipped, decided):
        assert needs_write(old, new, now=1000.0, written_at=999.0, interval_seconds=60)


def test_a_fresh_operator_erases_nothing_of_what_it_does_not_know_yet():
    known = built(assessment=assessment(slo()), decision=Decision(Levers(2, 16), Reason.STEADY, "steady"))
    assert built(known, LATE) == known


def test_a_repeated_decision_keeps_the_time_at_which_it_was_made():
    decision = Decision(Levers(2, 16), Reason.STEADY, "steady")
    old = built(decision=decision, decided_at=1e9)
    new = built(old, LATE, decision=dataclasses.replace(decision, message="still steady"), decided_at=2e9)
    assert new.last_decision.time == old.last_decision.time
    assert new.last_decision.message == "still steady"


def test_no_promise_is_said_as_no_promise():
    bare = dataclasses.replace(SPEC, objective=None)
    status = built(spec=bare, assessment=assessment())
    assert stands(status, "SLOMet") == "True NoObjective"
    assert status.ttft is None


def test_a_target_that_cannot_be_told_is_never_met():
    status = built(assessment=assessment(slo(met=None)))
    assert stands(status, "SLOMet") == "Unknown TooFewRequests"


@pytest.mark.parametrize(
    ("state", "reason", "says"),
    [
        (SignalState.OK, "Ok", "True Ok"),
        (SignalState.NO_TRAFFIC, "NoTraffic", "True NoTraffic"),
        (SignalState.NO_DATA, "WaitingForSamples", "Unknown WaitingForSamples"),
        (SignalState.NO_DATA, "NoSeries", "False NoSeries"),
        (SignalState.SOURCE_DOWN, "AuthFailed", "False AuthFailed"),
        (SignalState.AMBIGUOUS, "NotANumber", "False NotANumber"),
        (SignalState.STALE, "AWordOfALaterRelease", "False Stale"),
    ],
)
def test_no_traffic_no_data_and_no_prometheus_are_three_things(state, reason, says):
    status = built(assessment=assessment(state=state, reason=reason))
    assert stands(status, "MetricsAvailable") == says
    assert stands(status, "Ready") == "True PoolReady"


@pytest.mark.parametrize(
    ("left", "says"),
    [(0.9, "False BudgetLeft"), (0.4, "False BudgetLow"), (0.1, "True BudgetSpent"), (None, "Unknown NotYetKnown")],
)
def test_the_budget_warns_and_freezes_at_the_policy_s_shares(left, says):
    assert stands(built(assessment=assessment(slo(left=left))), "BudgetFrozen") == says


def test_a_limit_of_the_decision_is_the_condition_word_for_word():
    decision = Decision(Levers(4, 16), Reason.AT_MAXIMUM, "stay", limited=Limit(Reason.AT_MAXIMUM, "4 is the maximum"))
    status = built(decision=decision)
    assert stands(status, "ScalingLimited") == "True AtMaximum"
    assert next(c.message for c in status.conditions if c.type == "ScalingLimited") == "4 is the maximum"


def test_a_scale_up_beyond_the_minimum_does_not_take_ready_away():
    status = built(view=view(ready=2, replicas=4))
    assert stands(status, "Ready") == "True ScalingUp"
    assert stands(status, "Reconciling") == "False AsExpected"
    assert next(c.message for c in status.conditions if c.type == "Ready") == "2 of 4 replicas Ready; 2 on the way."


def test_a_pod_that_served_and_does_not_any_more_is_no_scale_up():
    lost = PodView(name="p9", phase=PodPhase.STARTING, lost=True)
    pods = PodCensus((*view(ready=2).census.pods, lost))
    status = built(view=PoolView(exists=True, levers=Levers(3, 16), census=pods))
    assert stands(status, "Ready") == "True PoolDegraded"
    assert "p9 served and is not Ready any more" in next(c.message for c in status.conditions if c.type == "Ready")


def test_of_no_ready_pod_nothing_is_said_to_be_shown():
    said = next(c.message for c in built(view=view(ready=0)).conditions if c.type == "Resizing")
    assert said == "No pod is Ready; those to come start with the wanted limits."


def test_every_reason_of_the_loop_and_of_the_metrics_is_a_condition_reason():
    from tierkeeper.api.conditions import ConditionReason
    from tierkeeper.ports import MetricsErrorReason

    known = {reason.value for reason in ConditionReason}
    assert {r.value for r in Reason} <= known
    assert {r.value for r in MetricsErrorReason} <= known
    assert {s.value for s in SignalState} <= known


@pytest.mark.parametrize("absurd", [1e13, 1e300, 1.7e308])
def test_absurd_figures_of_the_engine_are_shown_as_the_largest_and_cost_no_status(absurd):
    window = WindowSli(300, absurd, ratio(0.01), ratio(1.0))
    odd = dataclasses.replace(slo(p99=absurd), windows=(window,), nearest_aligned_seconds=(0.1, absurd))
    (shown,) = built(assessment=assessment(odd)).slos
    assert (shown.p99_milliseconds, shown.burn[0].requests) == (10**12, 10**12)
    assert shown.nearest_aligned_milliseconds == (100, 10**12)


def test_a_message_without_end_is_cut_and_costs_no_status():
    decision = Decision(Levers(2, 16), Reason.STEADY, "x" * 100_000)
    assert len(built(decision=decision).last_decision.message) == 32_768


def test_of_a_thousand_pods_that_have_yet_to_show_a_limit_a_few_are_named():
    waiting = tuple(f"gold-pool-abc-{number}" for number in range(1000))
    resize = Resize(Limits(24), started_at=99.0, before=Limits(16), waiting_for=waiting)
    status = built(resize=resize)
    (said,) = [c.message for c in status.conditions if c.type == "Resizing"]
    assert "gold-pool-abc-4 and 995 more" in said
