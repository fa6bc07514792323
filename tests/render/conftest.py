"""Tiers to render."""

from dataclasses import replace

import pytest

from tierkeeper.scaling.model import Levers
from tierkeeper.tier import (
    Bounds,
    Engine,
    EnvVar,
    Mode,
    Model,
    Objective,
    PodOptions,
    Resources,
    Rollout,
    Scaling,
    SecretKey,
    TierKey,
    TierSpec,
    VolumeClaim,
)


@pytest.fixture
def gold():
    """A plain tier."""
    return TierSpec(
        key=TierKey("llm", "gold"),
        uid="7b0f0d3c-gold",
        generation=3,
        model=Model(id="meta-llama/Llama-3.1-8B-Instruct", served_name="meta-llama/Llama-3.1-8B-Instruct"),
        objective=Objective(ratio=0.99, ttft_seconds=1.5, tpot_seconds=0.1),
        engine=Engine(image="vllm/vllm-openai:v0.32.0", version=(0, 32, 0), max_num_seqs=64),
        resources=Resources(),
        scaling=Scaling(Mode.AUTO, Bounds(1, 4), Bounds(8, 128)),
    )


@pytest.fixture
def full(gold):
    """A tier that says everything."""
    return replace(
        gold,
        model=replace(
            gold.model, token_secret=SecretKey("hub", "token"), volume_claim=VolumeClaim("weights", "/models")
        ),
        engine=replace(
            gold.engine,
            env=(
                EnvVar("PYTHONPATH", "/opt/mine"),
                EnvVar("NCCL_DEBUG", "INFO"),
                EnvVar("NODE", value_from={"fieldRef": {"fieldPath": "spec.nodeName"}}),
            ),
            max_num_batched_tokens=4096,
            max_model_len=8192,
            tensor_parallel_size=2,
            extra_args=("--enforce-eager",),
            image_pull_policy="IfNotPresent",
        ),
        resources=Resources(2, "nvidia.com/gpu", cpu="8", memory="64Gi", shared_memory="4Gi"),
        scaling=replace(gold.scaling, max_num_batched_tokens=Bounds(512, 8192)),
        rollout=Rollout(max_surge=1, max_unavailable=0, startup_seconds=720, drain_seconds=60),
        pod=PodOptions(
            node_selector={"gpu": "h100"},
            tolerations=({"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},),
            affinity={"podAntiAffinity": {}},
            topology_spread_constraints=(
                {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
            ),
            runtime_class_name="nvidia",
            priority_class_name="tierkeeper-gold",
            service_account_name="vllm",
            image_pull_secrets=("registry",),
            labels={"team": "chat", "tierkeeper.dev/tier": "other"},
            annotations={"example.com/note": "kept"},
        ),
    )


@pytest.fixture
def levers():
    return Levers(replicas=2, max_num_seqs=64, max_num_batched_tokens=2048)
