"""The operator may die at any API call, before or after it took effect: the next one ends in the same state."""

import pytest

from tests.control.stage import GOLD, Stage, agreeing, tier
from tests.fakes.kube import Crash
from tierkeeper.ports import ApiError, Kind

FIXED = {"mode": "Fixed"}


async def create(stage):
    stage.kube.put(tier(scaling=FIXED))
    await stage.settle()


async def resize_and_scale(stage):
    """A change of everything that the operator writes: template, cap and replicas."""
    stage.kube.put(
        tier(
            scaling=FIXED | {"replicas": {"min": 3, "max": 4}},
            engine={"image": "vllm/vllm-openai:v0.33.0", "maxNumSeqs": 32},
        )
    )
    stage.probe.default = agreeing(32)
    await stage.settle()


async def undisturbed(change):
    stage = Stage()
    await create(stage)
    before = len(stage.kube.calls)
    if change is not create:
        await change(stage)
    return stage, before


async def crashing_run(change, number, when):
    stage = Stage()
    if change is not create:
        await create(stage)
    setattr(stage.kube, when, len(stage.kube.calls) + number)
    try:
        await change(stage)
    except Crash:
        crashed = True
    else:
        crashed = False
    stage.kube.crash_before = stage.kube.crash_after = None
    stage.start_operator()
    await stage.settle()
    return stage, crashed


@pytest.mark.parametrize("when", ["crash_before", "crash_after"])
@pytest.mark.parametrize("change", [create, resize_and_scale])
async def test_dying_at_any_call_ends_in_the_state_of_an_undisturbed_run(change, when):
    reference, _ = await undisturbed(change)
    number, crashed = 0, True
    while crashed:
        number += 1
        stage, crashed = await crashing_run(change, number, when)
        assert stage.kube.settled() == reference.kube.settled(), f"{when} call {number}"
        assert stage.stands("Ready") == "True PoolReady", f"{when} call {number}"
    assert number > 20  # the loop did meet every call of at least one whole reconcile


async def test_an_api_server_that_fails_once_at_any_call_costs_a_retry_and_no_more():
    reference, _ = await undisturbed(create)
    total = len(reference.kube.calls)
    for number in range(1, total):
        stage = Stage()
        stage.kube.fail = failing_once(stage, number)
        stage.kube.put(tier(scaling=FIXED))
        try:
            await stage.settle()
        except ApiError:
            await stage.settle()
        assert stage.kube.settled() == reference.kube.settled()


def failing_once(stage, number):
    def fail(_):
        if len(stage.kube.calls) == number:
            return ApiError(status=503, reason="ServiceUnavailable", message="not now")
        return None

    return fail


async def test_a_decision_that_could_not_be_written_is_not_lost():
    stage = Stage()
    await create(stage)
    stage.kube.put(tier(scaling=FIXED | {"replicas": {"min": 3, "max": 4}}))
    stage.kube.fail = lambda call: ApiError(status=503, reason="Down", message="down") if call.verb == "scale" else None
    with pytest.raises(ApiError):
        await stage.reconciler.reconcile(GOLD)
    assert stage.replicas == 2
    stage.kube.fail = lambda _: None
    await stage.settle()
    assert stage.replicas == 3
    assert stage.get(Kind.DEPLOYMENT, "gold-pool")["status"]["readyReplicas"] == 3
