"""The error budget's dear query is asked rarely, and sooner where a new answer would tell what the last did not."""

from tests.control.test_slo_loop import SIGNALS, Traffic, running_stage, ticks
from tierkeeper.slo.signals import Signal, SignalKind


async def test_a_first_answer_with_too_few_requests_for_a_budget_is_asked_again_within_a_minute_or_so():
    stage = await running_stage()
    whole, young = stage.source.answer, True

    def answer(promql):
        return [] if young and SIGNALS[promql].window_seconds == 30 * 86400 else whole(promql)

    stage.source.answer = answer
    await ticks(stage, 3)
    assert stage.stands("BudgetFrozen") == "Unknown NotYetKnown"
    message = stage.condition("BudgetFrozen")["message"]
    assert "that takes 300 requests, counted over 30 days in steps of 15 min" in message
    assert "every 10 min, and every 1 min once" in message
    young = False
    await ticks(stage, 6)
    assert stage.stands("BudgetFrozen") == "False BudgetLeft"


async def test_the_budget_of_a_tier_with_few_requests_is_not_asked_more_often_for_it():
    stage = await running_stage()
    stage.source.answer = Traffic(stage, rate=0.001)
    await ticks(stage, 20)
    asked = [SIGNALS[promql] for promql in stage.source.asked]
    assert asked.count(Signal(SignalKind.TTFT_BUCKETS, 30 * 86400)) == 1
