"""The series of a tier say what the last tick and the last reconcile found, and nothing that does not hold any more."""

import pytest

from tests.control.stage import GOLD, tier
from tests.control.test_slo_loop import failing, running_stage, ticks
from tierkeeper.api.conditions import ConditionType
from tierkeeper.obs.metrics import Metrics
from tierkeeper.obs.tiers import TIER, window_label
from tierkeeper.ports import Kind, MetricsErrorReason
from tierkeeper.tier import TierKey


def series(stage, name):
    """The samples of one metric of tier gold, by their labels' values."""
    found = {}
    for metric in stage.metrics.registry.collect():
        for sample in metric.samples:
            if sample.name == name and sample.labels.get("tier", "gold") == "gold":
                own = tuple(value for label, value in sample.labels.items() if label not in TIER)
                assert own not in found
                found[own] = sample.value
    return found


async def test_a_burning_tier_shows_how_fast_by_which_windows_and_on_how_many_requests():
    stage = await running_stage(rate=2.0, slow=0.05)
    await ticks(stage, 1)
    burn = series(stage, "tierkeeper_burn_rate")
    assert set(burn) == {(slo, window) for slo in ("TTFT", "TPOT") for window in ("1m", "5m", "30m", "6h")}
    assert burn["TTFT", "5m"] == pytest.approx(5.0)
    assert burn["TPOT", "5m"] == 0.0
    assert series(stage, "tierkeeper_slo_requests")["TTFT", "5m"] == 600
    assert series(stage, "tierkeeper_slo_bad_requests")["TTFT", "5m"] == pytest.approx(30)
    assert series(stage, "tierkeeper_error_budget_ratio") == {(): pytest.approx(0.01)}
    assert series(stage, "tierkeeper_slo_threshold_seconds") == {("TTFT",): 1.5, ("TPOT",): 0.1}


async def test_the_error_ratio_comes_with_its_bounds():
    """2.2 s lies between two edges: at the upper one no request is late, at the lower one every slow one is."""
    stage = await running_stage(tier(slo={"ttftMilliseconds": 2200}), slow=0.05)
    await ticks(stage, 1)
    ratio = series(stage, "tierkeeper_error_ratio")
    assert {labels[:2] for labels in ratio} == {("TTFT", "5m"), ("TPOT", "5m")}
    lower, point, upper = (ratio["TTFT", "5m", bound] for bound in ("lower", "point", "upper"))
    assert (lower, upper) == (0.0, pytest.approx(0.05))
    assert lower < point < upper


async def test_where_the_time_goes_is_shown():
    stage = await running_stage()
    await ticks(stage, 1)
    phases = series(stage, "tierkeeper_phase_seconds")
    assert phases[("queue",)] == phases[("prefill",)] == pytest.approx(0.1)
    assert set(phases) == {("queue",), ("prefill",), ("decode",)}


async def test_a_tier_is_in_one_state_with_one_decision_and_one_word_a_condition():
    stage = await running_stage()
    await ticks(stage, 2)
    states = series(stage, "tierkeeper_signal_state")
    assert [state for (state,), value in states.items() if value] == ["Ok"]
    assert len(states) == 6
    assert list(series(stage, "tierkeeper_decision_info").values()) == [1]
    conditions = series(stage, "tierkeeper_condition")
    assert sorted(kind for kind, _, _ in conditions) == sorted(ConditionType)
    assert conditions["MetricsAvailable", "True", "Ok"] == 1


async def test_levers_show_what_is_wanted_set_and_obeyed():
    stage = await running_stage()
    await ticks(stage, 2)
    assert series(stage, "tierkeeper_max_num_seqs") == {("desired",): 16, ("set",): 16, ("applied",): 16}
    assert series(stage, "tierkeeper_max_num_batched_tokens") == {}
    replicas = series(stage, "tierkeeper_replicas")
    assert replicas == {
        ("desired",): 2, ("set",): 2, ("ready",): 2, ("starting",): 0, ("unschedulable",): 0, ("failing",): 0,
    }  # fmt: skip


async def test_a_limit_that_no_pod_has_shown_yet_is_not_called_applied():
    stage = await running_stage(waiting=40.0, running=16.0, slow=0.5)
    await ticks(stage, 1)
    caps = series(stage, "tierkeeper_max_num_seqs")
    assert (caps[("desired",)], caps[("set",)]) == (24, 24)
    assert ("applied",) not in caps


async def test_while_nothing_can_be_measured_no_burn_is_shown_and_the_cause_is_counted():
    stage = await running_stage(slow=0.05)
    await ticks(stage, 1)
    stage.source.answer = lambda _: []
    stage.clock.advance(120)
    await ticks(stage, 1)
    assert series(stage, "tierkeeper_burn_rate") == {}
    assert series(stage, "tierkeeper_slo_requests") == {}
    assert series(stage, "tierkeeper_signal_state")[("NoData",)] == 1
    assert series(stage, "tierkeeper_unknown_signals_total")[("NoSeries",)] == 1


async def test_a_lost_tick_leaves_what_was_shown_and_an_outage_takes_it_away():
    stage = await running_stage(slow=0.05)
    await ticks(stage, 1)
    stage.source.answer = failing(MetricsErrorReason.TIMEOUT)
    await ticks(stage, 2)
    assert series(stage, "tierkeeper_burn_rate")
    await ticks(stage, 1)
    assert series(stage, "tierkeeper_burn_rate") == {}
    assert series(stage, "tierkeeper_signal_state")[("SourceDown",)] == 1


async def test_the_last_tier_that_goes_takes_its_series_along():
    stage = await running_stage(slow=0.05)
    await ticks(stage, 1)
    stage.kube.delete(Kind.SERVICE_TIER, "llm", "gold")
    await ticks(stage, 1, reconcile=False)
    assert series(stage, "tierkeeper_burn_rate") == {}


async def test_a_tier_without_an_objective_has_no_budget():
    obj = tier()
    del obj["spec"]["slo"]
    stage = await running_stage(obj)
    await ticks(stage, 1)
    assert series(stage, "tierkeeper_error_budget_ratio") == {}
    assert series(stage, "tierkeeper_burn_rate") == {}
    assert series(stage, "tierkeeper_signal_state")[("Ok",)] == 1


def test_counters_are_there_before_their_first_event():
    """The step from no series to 1 is seen by no rate: the first failure would be missed."""
    read = Metrics().registry.get_sample_value
    for reason in MetricsErrorReason:
        assert read("tierkeeper_query_errors_total", {"reason": reason.value}) == 0
    for result in ("ok", "error"):
        assert read("tierkeeper_ticks_total", {"result": result}) == 0


def test_a_gauge_goes_with_its_value_and_with_its_tier():
    metrics = Metrics()
    read = metrics.registry.get_sample_value
    ready = {"tier_namespace": "llm", "tier": "gold", "state": "ready"}
    metrics.show(GOLD, {("replicas", ("ready",)): 2, ("max_num_seqs", ("desired",)): 16})
    metrics.show(TierKey("llm", "silver"), {("replicas", ("ready",)): 1})
    assert read("tierkeeper_replicas", ready) == 2
    metrics.show(GOLD, {("replicas", ("ready",)): None, ("max_num_seqs", ("desired",)): 16})
    assert read("tierkeeper_replicas", ready) is None
    metrics.forget(GOLD)
    assert read("tierkeeper_max_num_seqs", {"tier_namespace": "llm", "tier": "gold", "state": "desired"}) is None
    assert read("tierkeeper_replicas", ready | {"tier": "silver"}) == 1


@pytest.mark.parametrize(("seconds", "label"), [(60, "1m"), (300, "5m"), (21600, "6h"), (90, "90s"), (5400, "90m")])
def test_windows_are_labelled_as_prometheus_writes_them(seconds, label):
    assert window_label(seconds) == label
