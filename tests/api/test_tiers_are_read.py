"""A ServiceTier becomes the plain values of the core, or an error that says what to change."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.contract import REMOVE, Case
from tierkeeper import tier as core
from tierkeeper.api.convert import InvalidTier, engine_version, to_tier
from tierkeeper.api.problems import InvalidTier as SameInvalidTier
from tierkeeper.api.resource import ServiceTier


def tier(**changes: Any) -> dict[str, Any]:
    return Case("", "", {path.replace("__", "."): value for path, value in changes.items()}).tier()


def minimal() -> dict[str, Any]:
    return {
        "metadata": {"name": "batch"},
        "spec": {
            "model": {"id": "m"},
            "engine": {"image": "vllm/vllm-openai:v0.32.0", "maxNumSeqs": 256},
            "scaling": {"replicas": {"min": 1, "max": 2}, "maxNumSeqs": {"min": 256, "max": 256}},
        },
    }


def test_what_is_absent_gets_the_defaults_of_the_core() -> None:
    read = to_tier(minimal())
    assert read.objective is None
    assert read.model.served_name == "m"
    assert (read.resources, read.overflow, read.rollout, read.pod) == (
        core.Resources(), core.Overflow(), core.Rollout(), core.PodOptions(),
    )  # fmt: skip
    assert read.scaling.mode is core.Mode.AUTO
    assert read.key == core.TierKey("default", "batch")


def test_every_field_reaches_the_core() -> None:
    read = to_tier(tier(metadata={"name": "gold", "namespace": "llm", "uid": "u-1", "generation": 7}), strict=True)
    assert (read.key, read.uid, read.generation) == (core.TierKey("llm", "gold"), "u-1", 7)
    assert read.model == core.Model(
        id="meta-llama/Llama-3.1-8B-Instruct",
        served_name="llama",
        revision="main",
        token_secret=core.SecretKey("hub", "token"),
        volume_claim=core.VolumeClaim("weights", "/models"),
    )
    assert read.objective == core.Objective(0.99, 1.5, 0.1, 30, core.BudgetPolicy(50, 80))
    assert read.engine.version == (0, 32, 0)
    assert read.engine.env[1] == core.EnvVar(
        "SECRET", value_from={"secretKeyRef": {"name": "s", "key": "k", "optional": True}}
    )
    assert read.engine.image_pull_policy == "IfNotPresent"
    assert (read.engine.max_num_batched_tokens, read.engine.max_model_len) == (8192, 32768)
    assert (read.engine.tensor_parallel_size, read.engine.pipeline_parallel_size) == (2, 1)
    assert read.resources == core.Resources(2, "nvidia.com/gpu", "8", "64Gi", "2Gi")
    assert read.scaling == core.Scaling(
        core.Mode.AUTO, core.Bounds(1, 4), core.Bounds(8, 128), core.Bounds(512, 8192), 300
    )
    assert read.overflow == core.Overflow(core.OverflowPolicy.DEGRADE, 100, 100000, "standard")
    assert read.rollout == core.Rollout(0, 1, 1800, 120)
    assert (read.priority, read.reservation) == (800, False)
    assert read.pod.tolerations[0]["tolerationSeconds"] == 60
    assert read.pod.topology_spread_constraints[0]["whenUnsatisfiable"] == "ScheduleAnyway"
    assert read.pod.image_pull_secrets == ("registry",)
    assert read.pod.labels == {"team": "search"}
    assert read.pod.affinity == {"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}}


@pytest.mark.parametrize(
    ("percent", "ratio"), [(99, 0.99), ("99.9", 0.999), ("99.99", 0.9999), (50, 0.5), ("95.5", 0.955)]
)
def test_the_objective_is_read_without_rounding(percent: object, ratio: float) -> None:
    objective = to_tier(tier(spec__slo__objectivePercent=percent)).objective
    assert objective is not None
    assert objective.ratio == ratio


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.32.0", (0, 32, 0)),
        ("registry.example:5000/own/vllm-cpu:0.32.0", (0, 32, 0)),
        ("vllm/vllm-openai:0.32.0-cu129", (0, 32, 0)),
        ("vllm/vllm-openai:v0.11.0.post1", (0, 11, 0)),
        ("vllm/vllm-openai:v0.32.0@sha256:0a1b", (0, 32, 0)),
        ("vllm/vllm-openai@sha256:0a1b", None),
        ("registry.example:5000/vllm", None),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:nightly-0123abc", None),
        ("vllm/vllm-openai:v0.33.0rc1", None),
        ("vllm/vllm-openai:v0.33", None),
        ("own/engine:2026.11.29.1", None),
    ],
)
def test_the_release_is_read_from_the_tag(image: str, version: tuple[int, int, int] | None) -> None:
    assert engine_version(image) == version


def test_the_spec_says_the_release_where_the_tag_does_not() -> None:
    assert to_tier(tier(spec__engine__image="own/engine:7", spec__engine__version="0.30.1")).engine.version == (
        0,
        30,
        1,
    )
    assert to_tier(tier(spec__engine__image="own/engine:7", spec__engine__version=REMOVE)).engine.version is None


@pytest.mark.parametrize("name", ["/models/llama-3", 'it\'s "quoted" \\ here', "модель"])
def test_odd_model_names_are_kept_as_they_are(name: str) -> None:
    assert to_tier(tier(spec__model__servedName=name)).model.served_name == name


def test_every_problem_is_listed_with_field_value_and_remedy() -> None:
    with pytest.raises(InvalidTier) as refusal:
        to_tier(
            tier(
                spec__scaling__replicas={"min": 5, "max": 2},
                spec__engine__image=REMOVE,
                spec__slo__objectivePercent=99.9,
            )
        )
    assert [str(problem) for problem in refusal.value.problems] == [
        "spec.slo.objectivePercent: must be a text: put it in quotes (found 99.9)",
        "spec.engine.image: the field is required: set it (found nothing)",
        "spec.scaling.replicas: min must not be above max: lower min or raise max of the replicas (found min 5, max 2)",
    ]
    first = refusal.value
    assert (first.field, first.value) == ("spec.slo.objectivePercent", "99.9")
    assert first.remedy == "must be a text: put it in quotes"
    assert InvalidTier is SameInvalidTier


def test_a_misspelt_field_is_refused_in_files_and_ignored_from_the_cluster() -> None:
    env = [{"name": "A", "valu": "1"}]
    misspelt = tier(spec__engine__maxNumSeq=5, spec__slo__ttftMs=5, spec__engine__env=env, spec__resources__count=1)
    with pytest.raises(InvalidTier) as refusal:
        to_tier(misspelt, strict=True)
    assert {p.field: p.remedy for p in refusal.value.problems if "no such field" in p.remedy} == {
        "spec.slo.ttftMs": "no such field: did you mean ttftMilliseconds?",
        "spec.resources.count": "no such field: remove it; there are gpusPerReplica, gpuResourceName, cpu, memory, "
        "sharedMemory",
        "spec.engine.env[0].valu": "no such field: did you mean value?",
        "spec.engine.maxNumSeq": "no such field: did you mean maxNumSeqs?",
    }
    assert to_tier(tier(spec__engine__maxNumSeq=5)).engine.max_num_seqs == 64


def test_a_stored_status_never_stands_in_the_way() -> None:
    assert to_tier({**minimal(), "status": {"conditions": "nonsense"}}).key.name == "batch"


@pytest.mark.parametrize("metadata", [None, {}, {"name": 5}, "gold"])
def test_a_tier_without_a_name_is_refused(metadata: object) -> None:
    with pytest.raises(InvalidTier, match=r"metadata\.name: a tier needs a name"):
        to_tier({**minimal(), "metadata": metadata})


def test_another_kind_is_refused() -> None:
    with pytest.raises(InvalidTier, match=r"kind: must be 'ServiceTier'"):
        to_tier({**minimal(), "kind": "Deployment"})


def matching(pattern: str) -> st.SearchStrategy[str]:
    """ASCII alone, which is all that our patterns match: the default asks UTF-8 for each character that there is."""
    return st.from_regex(pattern, fullmatch=True, alphabet=st.characters(max_codepoint=127))


# Made once: what a pattern can match is worked out anew by each strategy of its own.
TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=40)
MODEL_ID = TEXT.filter(lambda name: not name.startswith("-"))
TIER_NAME = matching(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
ENV = st.dictionaries(matching(r"[A-S][A-Z_]{0,8}"), TEXT, max_size=3)
MILLIS = st.integers(1, 60_000)
SLO = st.none() | st.fixed_dictionaries(
    {"ttftMilliseconds": MILLIS},
    optional={
        "tpotMilliseconds": MILLIS,
        "objectivePercent": st.integers(50, 99) | matching(r"[5-9][0-9]\.[0-9]{1,2}"),
        "windowDays": st.integers(1, 90),
    },
)


@st.composite
def tiers(draw: st.DrawFn) -> dict[str, Any]:
    """Any tier that obeys the contract, built from the numbers outwards so that no try is thrown away."""
    low = draw(st.integers(1, 4096))
    high = draw(st.integers(low, 4096))
    fewest = draw(st.integers(low, 1_048_576))
    most = draw(st.integers(max(fewest, high), 1_048_576))
    replicas = draw(st.integers(1, 1000))
    degrade = draw(st.booleans())
    slo = draw(SLO)
    return {
        "metadata": {"name": draw(TIER_NAME)},
        "spec": {
            "model": {"id": draw(MODEL_ID)},
            **({"slo": slo} if slo else {}),
            "engine": {
                "image": "vllm/vllm-openai:v0.32.0",
                "maxNumSeqs": draw(st.integers(low, high)),
                "maxNumBatchedTokens": draw(st.integers(max(fewest, high), most)),
                "env": [{"name": name, "value": value} for name, value in draw(ENV).items()],
            },
            "scaling": {
                "mode": draw(st.sampled_from(list(core.Mode))).value,
                "replicas": {"min": replicas, "max": draw(st.integers(replicas, 1000))},
                "maxNumSeqs": {"min": low, "max": high},
                "maxNumBatchedTokens": {"min": fewest, "max": most},
            },
            "resources": {"cpu": draw(st.integers(0, 512) | st.just("500m"))},
            "overflow": {"policy": "Degrade", "degradeTo": "elsewhere-9"} if degrade else {},
        },
    }


@settings(max_examples=40)
@given(tiers())
def test_any_tier_survives_being_written_and_read_again(obj: dict[str, Any]) -> None:
    model = ServiceTier.model_validate(obj, extra="forbid")
    again = ServiceTier.model_validate(model.to_dict(), extra="forbid")
    assert again == model
    assert to_tier(again.to_dict(), strict=True) == to_tier(obj)


def loop() -> dict[str, Any]:
    inner: dict[str, Any] = {}
    inner["again"] = inner
    return inner


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (date(2024, 1, 1), "put a date or the like in quotes"),
        (b"\xff", "put a date or the like in quotes"),
        ([float("nan")], "no .nan and no .inf"),
        (float("inf"), "no .nan and no .inf"),
        (loop(), "must not contain itself"),
    ],
    ids=["date", "bytes", "nan", "infinity", "loop"],
)
def test_what_json_cannot_say_is_refused_in_a_part_that_is_taken_as_it_is(value: object, remedy: str) -> None:
    obj = minimal()
    obj["spec"]["pod"] = {"affinity": {"nodeAffinity": {"x": value}}}
    with pytest.raises(InvalidTier, match=f"spec.pod.affinity.nodeAffinity.*{remedy}"):
        to_tier(obj)


@pytest.mark.parametrize("namespace", ["a/b", "\x00", "x" * 64, "Llm", 5, ["llm"], {"a": 1}])
def test_a_namespace_that_can_be_none_is_named(namespace: object) -> None:
    obj = minimal()
    obj["metadata"]["namespace"] = namespace
    with pytest.raises(InvalidTier, match=r"metadata\.namespace: must be a DNS label"):
        to_tier(obj)
