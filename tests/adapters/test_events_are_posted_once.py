"""Events on a ServiceTier: complete, bounded, and not repeated."""

from tests.fakes.edges import FakeClock
from tests.fakes.kube import FakeKube
from tierkeeper.adapters.recorder import EventRecorder
from tierkeeper.ports import ApiError, EventType
from tierkeeper.tier import TierKey

GOLD = TierKey("llm", "gold")


def recorder(kube=None, clock=None):
    return EventRecorder(kube or FakeKube(), clock or FakeClock(), instance="me")


async def tell(events, *, key=GOLD, uid="u1", reason="Resized", message="16 → 24"):
    await events.record(key, uid=uid, event_type=EventType.NORMAL, reason=reason, message=message)


async def test_an_event_points_at_its_tier():
    kube = FakeKube()
    await tell(recorder(kube))
    (event,) = kube.events
    assert event["involvedObject"] == {
        "apiVersion": "tierkeeper.dev/v1alpha1",
        "kind": "ServiceTier",
        "namespace": "llm",
        "name": "gold",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Resized", "16 → 24")
    assert event["metadata"]["namespace"] == "llm"


async def test_the_same_words_within_ten_minutes_are_posted_once():
    kube, clock = FakeKube(), FakeClock()
    events = recorder(kube, clock)
    for _ in range(60):
        await tell(events)
        clock.advance(9)
    assert len(kube.events) == 1
    clock.advance(100)
    await tell(events)
    assert len(kube.events) == 2


async def test_a_hundred_failing_tiers_do_not_flood_the_api_server():
    kube, clock = FakeKube(), FakeClock()
    events = recorder(kube, clock)
    for second in range(60):
        for number in range(100):
            await tell(events, key=TierKey("llm", f"t{number}"), reason="NoSeries", message=f"failed at {second}")
        clock.advance(1)
    assert len(kube.events) <= 50 + 60


async def test_an_event_that_cannot_be_posted_is_no_error():
    kube = FakeKube()
    kube.fail = lambda _: ApiError(status=403, reason="Forbidden", message="no")
    await tell(recorder(kube))
    assert kube.events == []


async def test_an_over_long_message_is_cut_to_what_the_api_server_takes():
    kube = FakeKube()
    await tell(recorder(kube), message="→" * 2000)
    assert len(kube.events[0]["message"].encode()) <= 1024


async def test_a_tier_made_anew_is_told_what_its_predecessor_was_told():
    kube = FakeKube()
    events = recorder(kube)
    for uid in ("u1", "u2"):
        await tell(events, uid=uid)
    assert len(kube.events) == 2


async def test_in_a_namespace_that_is_being_deleted_an_event_is_dropped_without_a_word(caplog):
    kube = FakeKube()
    kube.fail = lambda _: ApiError(status=403, reason="NamespaceTerminating", message="no")
    caplog.set_level("INFO")
    await tell(recorder(kube))
    assert caplog.text == ""
