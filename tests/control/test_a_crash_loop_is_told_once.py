"""A pod that fails, tries again and fails again has one trouble, told once; it is over when a pod is Ready."""

from tests.control.stage import GOLD, POOL
from tests.control.test_news_is_told_once import starting
from tests.fakes.kubelet import FakeKubelet

ERROR = "CUDA error"


async def shown(stage, statuses):
    """Let both pods go through these statuses; what Stalled and Ready said at each."""
    said = []
    for status in statuses:
        for pod in stage.kube.pods_of("llm", POOL):
            stage.kube.set_pod_status("llm", pod["metadata"]["name"], status)
        await stage.reconciler.reconcile(GOLD)
        said.append((stage.stands("Stalled"), stage.stands("Ready")))
    return said


def told(stage):
    """Events as ``Warning CrashLoopBackOff Stalled=True``."""
    return [f"{event.type} {event.reason} {event.message.partition(':')[0]}" for event in stage.recorder.events]


async def test_a_crash_loop_is_two_events_and_is_never_over_between_two_crashes():
    stage = await starting()
    said = await shown(stage, FakeKubelet(stage.clock).crash_loop(times=7, message=ERROR))
    assert said[:4] == [
        ("False AsExpected", "False PoolStarting"),
        ("False AsExpected", "False EngineExited"),
        ("False AsExpected", "False PoolStarting"),  # the first restart comes at once, and may help
        ("True CrashLoopBackOff", "False CrashLoopBackOff"),
    ]
    assert set(said[4:]) == {("True CrashLoopBackOff", "False CrashLoopBackOff")}
    assert told(stage) == ["Warning EngineExited Ready=False", "Warning CrashLoopBackOff Stalled=True"]


async def test_an_engine_that_ends_with_the_same_words_each_time_is_written_down_once():
    stage = await starting()
    kubelet = FakeKubelet(stage.clock)
    await shown(stage, kubelet.crash_loop(times=2, message=ERROR))
    writes = len(stage.kube.writes)
    await shown(stage, kubelet.crash_loop(times=1, message=ERROR))
    assert len(stage.kube.writes) == writes


async def test_a_crash_loop_is_over_as_soon_as_the_pods_are_ready():
    stage = await starting()
    kubelet = FakeKubelet(stage.clock)
    await shown(stage, kubelet.crash_loop(times=5))
    stage.recorder.events.clear()
    *_, last = await shown(stage, list(kubelet.run(3600, ready_after=60))[:2])
    assert last == ("False AsExpected", "True PoolReady")
    assert told(stage) == [
        "Normal PoolReady Ready",
        "Normal Cleared Stalled is over",
    ]


async def test_an_engine_that_runs_out_of_memory_at_each_start_is_told_as_one_trouble():
    stage = await starting()
    killed = {"reason": "OOMKilled", "exitCode": 137}
    said = await shown(stage, FakeKubelet(stage.clock).crash_loop(times=6, **killed))
    assert said[1] == ("False AsExpected", "False OOMKilled")
    assert set(said[3:]) == {("True OOMKilled", "False OOMKilled")}
    assert told(stage) == ["Warning OOMKilled Ready=False", "Warning OOMKilled Stalled=True"]


async def test_an_image_that_does_not_come_is_one_event_and_one_write():
    stage = await starting()
    writes = len(stage.kube.writes)
    absent = 'rpc error: code = NotFound desc = failed to resolve reference "vllm/vllm-openai:nope": not found'
    said = await shown(stage, FakeKubelet(stage.clock).image_loop(absent, times=4))
    assert set(said) == {("True ImagePullBackOff", "False ImagePullBackOff")}
    assert told(stage) == ["Warning ImagePullBackOff Stalled=True"]
    assert len(stage.kube.writes) == writes + 1
    assert f"{absent}; check spec.engine.image" in stage.condition("Ready")["message"]


async def test_a_start_that_fails_late_is_a_crash_loop_too_and_is_not_over_while_the_next_one_loads():
    """Weights load for twenty of the thirty minutes that a start may take."""
    stage = await starting()
    said = await shown(stage, FakeKubelet(stage.clock).crash_loop(times=5, run_seconds=20 * 60))
    assert set(said[3:]) == {("True CrashLoopBackOff", "False CrashLoopBackOff")}
    assert len(stage.recorder.events) == 2


async def test_engines_that_served_for_days_and_end_now_and_then_are_in_no_crash_loop():
    stage = await starting()
    kubelet = FakeKubelet(stage.clock)
    said = []
    for _ in range(4):
        said += await shown(stage, kubelet.run(3 * 86_400, ready_after=90, reason="OOMKilled", exitCode=137))
        kubelet.restarts += 1
    assert {stalled for stalled, _ in said} == {"False AsExpected"}
    assert [ready for _, ready in said[3:6]] == ["False PoolStarting", "True PoolReady", "False OOMKilled"]
