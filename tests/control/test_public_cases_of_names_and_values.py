"""Faults of names, spellings and values that people met in systems like this one (docs/cases.md)."""

import copy
from fractions import Fraction

import pytest

from tests.control.stage import GOLD, POOL, Stage, tier
from tierkeeper.api.convert import InvalidTier, to_tier
from tierkeeper.api.crd import schema
from tierkeeper.api.schema import walk
from tierkeeper.ports import Kind
from tierkeeper.render.drift import quantity
from tierkeeper.tier import TierKey

GOOD = [f"tier-{number}" for number in range(5)]
ROCKET, CHINESE = "\N{ROCKET}", "/models/\u901a\u4e49\u5343\u95ee-7B"


def refusal(obj, *, strict=True):
    with pytest.raises(InvalidTier) as caught:
        to_tier(obj, strict=strict)
    return str(caught.value)


@pytest.mark.parametrize(
    ("replicas", "says"),
    [({"min": 5, "max": 2}, "found min 5, max 2"), ({"min": 1, "max": -1}, "must be at least 1: raise it (found -1)")],
)
def test_v01_bounds_that_cannot_be_are_refused(replicas, says):
    assert says in refusal(tier(scaling={"replicas": replicas}))


def test_v02_no_rule_looks_at_the_old_object_so_an_update_is_judged_as_a_creation_is():
    rules = [rule for _, node in walk(schema()) for rule in node.get("x-kubernetes-validations", ())]
    assert any("self.min <= self.max" in rule["rule"] for rule in rules)
    assert not [rule for rule in rules if "oldSelf" in rule["rule"]]


async def test_v02_an_update_that_slips_in_all_the_same_stalls_and_leaves_the_pool_as_it_was():
    stage = Stage()
    stage.kube.put(tier())
    await stage.settle()
    before = stage.kube.settled()
    stage.kube.put(tier(scaling={"replicas": {"min": 5, "max": 2}}))
    await stage.reconciler.reconcile(GOLD)
    assert stage.stands("Stalled") == "True InvalidSpec"
    after = stage.kube.settled()
    del before["ServiceTier", "llm", "gold"], after["ServiceTier", "llm", "gold"]
    assert after == before


async def test_v04_a_name_of_58_characters_is_refused_with_the_limit_and_nothing_is_half_made():
    name, namespace = "g" * 58, "n" * 40
    stage = Stage()
    stage.kube.put(tier(name=name, namespace=namespace))
    await stage.reconciler.reconcile(TierKey(namespace, name))
    assert [kind for kind, _, _ in stage.kube.objects] == [Kind.SERVICE_TIER]
    conditions = {c["type"]: c for c in stage.status(name, namespace)["conditions"]}
    assert conditions["Stalled"]["reason"] == "InvalidSpec"
    assert "at most 40 characters" in conditions["Stalled"]["message"]
    assert "choose another metadata.name" in conditions["Stalled"]["message"]


async def test_v04_with_the_longest_name_every_child_and_pod_keeps_to_63_characters():
    name, namespace = "g" * 40, "n" * 40
    stage = Stage()
    stage.kube.put(tier(name=name, namespace=namespace))
    await stage.settle(TierKey(namespace, name))
    names = {obj for _, _, obj in stage.kube.objects}
    labels = [v for obj in stage.kube.objects.values() for v in obj["metadata"].get("labels", {}).values()]
    assert len(names) == 6 + 2 - 2  # Deployment, Service and PDB share a name
    assert max(map(len, [*names, *labels, f"{name}-pool-0123456789-abcde"])) <= 63


@pytest.mark.parametrize(
    "bad", [tier(name="b" * 58), tier(name="bad", scaling={"replicas": {"min": 5, "max": 2}})], ids=["name", "spec"]
)
async def test_v05_five_good_tiers_are_served_beside_a_bad_one(bad):
    stage = Stage()
    stage.kube.put(bad)
    for name in GOOD:
        stage.kube.put(tier(name=name))
    await stage.reconciler.reconcile(TierKey("llm", bad["metadata"]["name"]))
    for name in GOOD:
        await stage.settle(TierKey("llm", name))
    await stage.loop.tick()
    assert [stage.stands("Ready", name) for name in GOOD] == ["True PoolReady"] * 5
    assert all(stage.records.find(TierKey("llm", name)).decision is not None for name in GOOD)


async def test_v06_a_model_id_with_a_slash_is_never_a_label():
    stage = Stage()
    stage.kube.put(tier(model={"id": "meta-llama/Llama-3.2-3B-Instruct"}))
    await stage.settle()
    for obj in stage.kube.objects.values():
        for found in labels_in(obj):
            assert not [value for value in found.values() if "/" in value or "lama" in value]


def labels_in(value):
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, part in value.items():
            if key in ("labels", "matchLabels", "selector") and isinstance(part, dict):
                yield {k: v for k, v in part.items() if isinstance(v, str)}
            yield from labels_in(part)


def test_v08_a_target_is_a_whole_number_of_milliseconds_and_anything_else_is_refused_with_a_hint():
    assert to_tier(tier(slo={"ttftMilliseconds": 500}), strict=True).objective.ttft_seconds == 0.5
    for written in ("500ms", "0.5s", 0.5, "500", 500.0):
        said = refusal(tier(slo={"ttftMilliseconds": written}))
        assert said == (
            "spec.slo.ttftMilliseconds: must be a whole number: write it without quotes or fraction "
            f"(found {written!r})"
        )


def canonical(value, key=""):
    """Quantities as the API server stores them: 0.5 becomes 500m, 1024Mi becomes 1Gi."""
    if isinstance(value, dict):
        return {k: canonical(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return {"0.5": "500m", "1024Mi": "1Gi", "2048Mi": "2Gi"}.get(value, value) if key != "value" else value


async def test_v09_quantities_in_another_spelling_are_neither_drift_nor_rewritten():
    stage = Stage()

    def store(obj):
        stored = canonical(copy.deepcopy(obj))
        obj.clear()
        obj.update(stored)

    stage.kube.mutate = store
    written = tier(resources={"cpu": "0.5", "memory": "1024Mi", "sharedMemory": "2048Mi"})
    stage.kube.put(written)
    await stage.settle()
    pod = stage.get(Kind.DEPLOYMENT, POOL)["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["requests"]["cpu"] == "500m"
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "1Gi"
    writes = len(stage.kube.writes)
    for _ in range(20):
        stage.clock.advance(30)
        await stage.reconciler.reconcile(GOLD)
    assert len(stage.kube.writes) == writes
    assert stage.get(Kind.SERVICE_TIER, "gold")["spec"] == written["spec"]


@pytest.mark.parametrize(("one", "other"), [("0.5", "500m"), ("1024Mi", "1Gi"), ("1000m", "1"), ("0.10", "100m")])
def test_v09_spellings_of_one_quantity_are_one_number(one, other):
    assert quantity(one) == quantity(other)
    assert isinstance(quantity(one), Fraction)


async def test_v10_a_rocket_in_an_annotation_and_a_chinese_model_path_are_served_and_shown():
    stage = Stage()
    obj = tier(model={"id": CHINESE}, pod={"annotations": {"note": ROCKET}})
    obj["metadata"]["annotations"] = {"note": ROCKET}
    stage.kube.put(obj)
    await stage.settle()
    template = stage.get(Kind.DEPLOYMENT, POOL)["spec"]["template"]
    assert CHINESE in template["spec"]["containers"][0]["args"]
    assert template["metadata"]["annotations"]["note"] == ROCKET
    assert stage.stands("Ready") == "True PoolReady"
    writes = len(stage.kube.writes)
    await stage.reconciler.reconcile(GOLD)
    assert len(stage.kube.writes) == writes


async def test_v11_a_micro_sign_in_a_pods_last_words_reaches_the_condition():
    stage = Stage()
    stage.kube.put(tier())
    await stage.reconciler.reconcile(GOLD)
    terminated = {"exitCode": 1, "message": "a step took 50 \N{MICRO SIGN}s too long"}
    container = {
        "name": "vllm",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": terminated},
    }
    stage.kube.run_deployments(pod={"phase": "Running", "containerStatuses": [container]})
    await stage.reconciler.reconcile(GOLD)
    assert "50 \N{MICRO SIGN}s" in stage.condition("Stalled")["message"]
