"""The demo's checks can fail: each is shown a run that must not pass."""

import json
import math
from collections.abc import Callable
from typing import Any

from e2e.audit import OPERATOR_USER
from e2e.demo import checks
from e2e.demo.story import TIERS, starts, total_seconds
from e2e.demo.timeline import Timeline, objects_in
from e2e.load.report import LoadReport, Status


def tier(
    name: str = "gold", *, ready: int = 1, cap: int = 16, resizes: int = 0, apply_ms: int | None = None
) -> dict[str, Any]:
    status: dict[str, Any] = {
        "replicas": {"ready": ready, "desired": ready},
        "maxNumSeqs": {"desired": cap},
        "liveResize": {"count": resizes},
        "conditions": [{"type": "Ready", "status": "True"}],
        "lastDecision": {"reason": "Steady", "message": "nothing to do"},
    }
    if apply_ms is not None:
        status["liveResize"]["lastApplyMilliseconds"] = apply_ms
    return {"metadata": {"name": name}, "status": status}


def timeline(*tiers: dict[str, Any]) -> Timeline:
    result = Timeline()
    for second, obj in enumerate(tiers):
        result.add_tier(obj, at=float(second))
    return result


def audit(**change: Any) -> str:
    event = {
        "stage": "ResponseComplete",
        "verb": "patch",
        "user": {"username": OPERATOR_USER},
        "objectRef": {"resource": "servicetiers"},
    }
    return json.dumps(event | change)


def test_up_and_down_needs_a_peak_above_the_start_and_an_end_below_the_peak():
    assert checks.scaled(timeline(tier(ready=1), tier(ready=3), tier(ready=2)), "gold") == (True, True)
    assert checks.scaled(timeline(tier(ready=1), tier(ready=3)), "gold") == (True, False)
    assert checks.scaled(timeline(tier(ready=2), tier(ready=1)), "gold") == (False, False)
    assert checks.scaled(timeline(), "gold") == (False, False)


def test_a_write_to_the_object_counts_and_a_write_to_its_status_does_not():
    status = audit(objectRef={"resource": "servicetiers", "subresource": "status"})
    somebody = audit(user={"username": "admin"})
    read = audit(verb="get")
    assert checks.writes_by_operator([audit(), status, somebody, read], resource="servicetiers") == 1


def test_finalizers_and_our_annotations_are_footprints_and_kubectls_own_is_not():
    clean = {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}
    dirty = {"metadata": {"finalizers": ["x/y"], "annotations": {"tierkeeper.dev/seen": "1"}}}
    assert checks.footprint([clean]) == 0
    assert checks.footprint([clean, dirty]) == 2


def test_the_slowest_live_resize_seen_is_the_one_that_counts():
    seen = timeline(tier(), tier(cap=24, resizes=1, apply_ms=4200), tier(cap=32, resizes=2, apply_ms=900))
    assert checks.live_resizes(seen, "gold") == (2, 4.2)
    assert checks.live_resizes(timeline(tier()), "gold") == (0, None)
    earlier = timeline(tier(resizes=3, apply_ms=9000), tier(resizes=3, apply_ms=9000), tier(resizes=4, apply_ms=700))
    assert checks.live_resizes(earlier, "gold") == (1, 0.7)
    assert not checks.at_most("max_apply_seconds", None, 5).ok


def test_a_moved_lever_becomes_a_mark():
    seen = timeline(tier(), tier(), tier(cap=24))
    assert [(mark.at, mark.tier) for mark in seen.marks] == [(2.0, "gold")]


def test_no_tier_is_not_all_ready():
    assert not checks.all_ready([])
    assert checks.all_ready([tier()])


def test_restarts_of_pods_that_are_gone_still_count():
    seen = timeline(tier())
    seen.pods = {"a": {"status": {"containerStatuses": [{"restartCount": 2}]}}, "b": {"status": {}}}
    assert seen.restarts() == 2


def test_kubectls_watch_output_is_split_wherever_the_chunks_end():
    text = json.dumps({"a": 1}, indent=1) + "\n" + json.dumps({"b": 2}, indent=1)
    assert list(objects_in(iter(text.splitlines(keepends=True)))) == [{"a": 1}, {"b": 2}]


def gold_run(missed: Callable[[float], bool]) -> LoadReport:
    """Two requests a second on Gold to the end of the run; which of them miss their target by when they arrive."""
    report = LoadReport.for_targets(TIERS)
    gold = report.targets["gold"]
    for half_second in range(2 * total_seconds()):
        at = half_second / 2
        row = gold.open_row(scheduled=at, sent=at, status=Status.OK)
        gold.ttft[row], gold.tpot[row], gold.tokens[row] = (9.0 if missed(at) else 0.2), 0.03, 50
        gold.finished[row] = at + 2
    return report


def test_gold_may_miss_while_it_recovers_and_not_for_longer():
    step = starts()["step on Gold"]
    assert checks.gold_after_its_step(gold_run(lambda at: step <= at < step + 88)) == 1.0
    assert (checks.gold_after_its_step(gold_run(lambda at: step <= at < step + 100)) or math.nan) < 0.99
    assert (checks.gold_after_its_step(gold_run(lambda at: step <= at and int(at) % 20 == 0)) or math.nan) < 0.99


def test_one_stall_of_the_machine_does_not_decide_what_gold_is_said_to_have_kept():
    step = starts()["step on Gold"]
    stalled = gold_run(lambda at: step <= at < step + 60 or step + 95 <= at < step + 96)
    assert (checks.gold_after_its_step(stalled) or 0.0) > 0.99
