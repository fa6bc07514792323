"""What a tier becomes: golden files, and the rules that no change of them may break."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.pod_security import RESTRICTED_VOLUMES
from tierkeeper.render.names import HASH_ANNOTATION, TEMPLATE_HASH_ANNOTATION
from tierkeeper.render.pool import render_limit, render_pool
from tierkeeper.scaling.model import Levers
from tierkeeper.tier import Bounds, EnvVar, LiveResize, Model, Objective, PodOptions, Resources, Rollout, TierKey

GOLDEN = Path(__file__).parents[1] / "golden/manifests"


def render(spec, levers=None):
    return render_pool(spec, levers=levers or Levers(2, 64), plugin_source="# the plugin\n")


def deployment(spec, levers=None):
    return next(obj for obj in render(spec, levers) if obj["kind"] == "Deployment")


def pod(spec, levers=None):
    return deployment(spec, levers)["spec"]["template"]["spec"]


def container(spec, levers=None):
    (only,) = pod(spec, levers)["containers"]
    return only


def env(spec):
    return {entry["name"]: entry.get("value") for entry in container(spec)["env"]}


@pytest.mark.parametrize("case", ["plain", "full", "restarted"])
def test_the_manifests_are_the_golden_ones(case, gold, full, levers):
    spec = {"plain": gold, "full": full, "restarted": replace(full, engine=replace(full.engine, version=(0, 17, 1)))}[
        case
    ]
    text = yaml.safe_dump_all(render(spec, levers), sort_keys=False, width=120)
    golden = GOLDEN / f"{case}.yaml"
    if os.environ.get("GOLDEN_UPDATE"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_rendering_is_byte_identical_every_time(full, levers):
    texts = {json.dumps(render(full, levers)) for _ in range(100)}
    assert len(texts) == 1


def test_the_deployment_never_says_how_many_replicas(full):
    assert "replicas" not in deployment(full)["spec"]


def test_an_engine_that_ends_leaves_the_end_of_its_log_for_the_conditions(gold):
    """No engine writes a termination message: without this the kubelet reports an exit code and nothing else."""
    (container,) = pod(gold)["containers"]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_every_child_is_owned_labelled_and_stamped(full):
    for child in render(full):
        meta = child["metadata"]
        (owner,) = meta["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (full.uid, True, False)
        assert meta["labels"]["tierkeeper.dev/tier"] == "gold"
        assert meta["namespace"] == "llm"
        assert len(meta["annotations"][HASH_ANNOTATION]) == 16


def test_same_name_in_two_namespaces_is_two_pools(gold):
    other = render(replace(gold, key=TierKey("other", "gold")))
    assert {child["metadata"]["namespace"] for child in other} == {"other"}


# What rolls the pool, and what does not.


def test_a_live_resize_changes_the_limit_alone(full):
    small, large = render(full, Levers(2, 8, 512)), render(full, Levers(2, 128, 8192))
    changed = [child["metadata"]["name"] for child, other in zip(small, large, strict=True) if child != other]
    assert changed == ["gold-pool-limit"]
    assert render_limit(full, levers=Levers(2, 8, 512)) == small[0]


@pytest.mark.parametrize("change", [{"live_resize": LiveResize.DISABLED}, {"version": None}, {"version": (0, 17, 0)}])
def test_without_live_resize_a_new_cap_rolls_the_pool(gold, change):
    spec = replace(gold, engine=replace(gold.engine, **change))
    assert pod(spec, Levers(2, 8)) != pod(spec, Levers(2, 16))


@pytest.mark.parametrize(
    "change",
    [
        {"image": "vllm/vllm-openai:v0.32.1"},
        {"max_num_batched_tokens": 1024},
        {"max_model_len": 4096},
        {"tensor_parallel_size": 4},
        {"pipeline_parallel_size": 2},
        {"extra_args": ("--dtype", "half")},
        {"env": (EnvVar("A", "b"),)},
        {"live_resize": LiveResize.DISABLED},
        {"image_pull_policy": "Always"},
    ],
)
def test_each_engine_field_rolls_the_pool(gold, change):
    before, after = deployment(gold), deployment(replace(gold, engine=replace(gold.engine, **change)))
    hashes = {d["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION] for d in (before, after)}
    assert len(hashes) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 4},
        {"priority": 800},
        {"reservation": True},
        {"objective": Objective(ratio=0.999, ttft_seconds=1.5, tpot_seconds=0.1, window_days=7)},
    ],
)
def test_what_the_engine_does_not_see_rolls_nothing(gold, change):
    assert render(replace(gold, **change)) == render(gold)


def test_a_new_threshold_rolls_the_pool_only_where_it_is_no_bucket_edge_yet(gold):
    pods = [pod(replace(gold, objective=Objective(0.99, ttft_seconds=seconds))) for seconds in (1.0, 2.5, 1.5)]
    assert pods[0] == pods[1] != pods[2]


def test_neither_the_start_value_of_the_cap_nor_other_bounds_roll_the_pool(gold):
    scaling = replace(gold.scaling, replicas=Bounds(0, 9), max_num_seqs=Bounds(1, 128))
    other = replace(gold, scaling=scaling, engine=replace(gold.engine, max_num_seqs=16))
    assert pod(other) == pod(gold)


def test_the_selector_stays_when_labels_come(gold):
    labelled = replace(gold, pod=PodOptions(labels={"team": "chat"}))
    assert deployment(labelled)["spec"]["selector"] == deployment(gold)["spec"]["selector"]
    assert deployment(labelled)["spec"]["template"]["metadata"]["labels"]["team"] == "chat"
    service = next(obj for obj in render(labelled) if obj["kind"] == "Service")
    assert service["spec"]["selector"] == deployment(gold)["spec"]["selector"]["matchLabels"]


def test_a_tier_cannot_relabel_its_pods_as_anothers(full):
    assert deployment(full)["spec"]["template"]["metadata"]["labels"]["tierkeeper.dev/tier"] == "gold"


def test_a_model_name_never_becomes_a_label(gold):
    spec = replace(gold, model=Model(id="/models/llama-3", served_name='a "quoted" \\ name'))
    labels = [child["metadata"]["labels"] for child in render(spec)]
    assert "llama" not in json.dumps(labels) + json.dumps(deployment(spec)["spec"]["selector"])


# The pod.


def test_rollouts_take_no_gpu_more_than_allowed(gold, full):
    assert deployment(gold)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert deployment(full)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_one_pod_may_be_disrupted_and_a_broken_one_always(gold):
    budget = next(obj for obj in render(gold) if obj["kind"] == "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("version", [(0, 32, 0), (0, 17, 0), None])
@pytest.mark.parametrize("drain", [30, 90, 600])
def test_the_grace_period_covers_pre_stop_and_drain(gold, version, drain):
    spec = replace(
        gold, engine=replace(gold.engine, version=version), rollout=replace(gold.rollout, drain_seconds=drain)
    )
    args = container(spec)["args"]
    engine_drain = int(args[args.index("--shutdown-timeout") + 1]) if "--shutdown-timeout" in args else 0
    pre_stop = container(spec)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pre_stop + engine_drain >= 15 + drain
    assert pod(spec)["terminationGracePeriodSeconds"] > pre_stop + engine_drain


@pytest.mark.parametrize("version", [(0, 32, 0), (0, 18, 0), (0, 17, 0), None])
def test_r09_by_default_a_stream_of_two_minutes_ends_before_its_engine_does(gold, version):
    """It began just before its pod was to go. An engine without a drain aborts it at SIGTERM, so preStop is longer."""
    spec = replace(gold, engine=replace(gold.engine, version=version), rollout=Rollout())
    args, pre_stop = container(spec)["args"], container(spec)["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = int(args[args.index("--shutdown-timeout") + 1]) if "--shutdown-timeout" in args else 0
    assert bool(drain) == (version in [(0, 32, 0), (0, 18, 0)])
    assert pre_stop + drain >= 120
    assert pod(spec)["terminationGracePeriodSeconds"] > pre_stop + drain


@pytest.mark.parametrize("seconds", [600, 721, 1800])
def test_a_loading_model_has_the_whole_start_up_time(gold, seconds):
    spec = replace(gold, rollout=replace(gold.rollout, startup_seconds=seconds))
    probe = container(spec)["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= seconds
    assert deployment(spec)["spec"]["progressDeadlineSeconds"] > seconds + pod(spec)["terminationGracePeriodSeconds"]


def test_a_busy_server_is_not_killed_for_answering_late(gold):
    probe = container(gold)["livenessProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 300


def test_the_pod_is_restricted_and_can_write_where_it_must(gold):
    security = pod(gold)["securityContext"]
    assert security["runAsNonRoot"]
    assert security["runAsUser"] == 2000
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(gold)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"] for mount in container(gold)["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/home/vllm", "/tmp", "/dev/shm"}
    for variable in ("HOME", "HF_HOME", "VLLM_CACHE_ROOT"):
        assert env(gold)[variable].startswith("/home/vllm")
    assert not pod(gold)["automountServiceAccountToken"]
    assert not pod(gold)["enableServiceLinks"]


def test_e10_what_an_engine_writes_is_open_to_whatever_user_the_platform_chooses(full):
    """An emptyDir may be written by every id. A volume of any other kind belongs to somebody."""
    volumes = {volume["name"]: volume for volume in pod(full)["volumes"]}
    written = {
        mount["name"]: mount["mountPath"] for mount in container(full)["volumeMounts"] if not mount.get("readOnly")
    }
    assert {name for name in written if "emptyDir" not in volumes[name]} == set()
    caches = {name: value for name, value in env(full).items() if name in ("HOME", "HF_HOME", "VLLM_CACHE_ROOT")}
    assert len(caches) == 3
    for path in (*caches.values(), "/tmp"):
        assert any(f"{path}/".startswith(f"{mounted}/") for mounted in written.values()), path
    assert env(full)["USER"]  # Python asks for the user's name, which an id of the platform's does not have


@pytest.mark.parametrize("version", [None, (0, 9, 0), (0, 17, 1), (0, 33, 0)])
def test_e10_the_pod_keeps_every_rule_of_the_restricted_pod_security_standard(full, version):
    """As the standard lists them for Linux pods (Kubernetes 1.36)."""
    spec = pod(replace(full, engine=replace(full.engine, version=version)))
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers", "initContainers", "ephemeralContainers"} & spec.keys()
    assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} <= RESTRICTED_VOLUMES
    security = spec["securityContext"]
    assert (security["runAsNonRoot"], security["seccompProfile"]["type"]) == (True, "RuntimeDefault")
    assert security["runAsUser"] != 0
    for each in spec["containers"]:
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not {"privileged", "procMount", "runAsUser", "seLinuxOptions"} & each["securityContext"].keys()
        assert not [port for port in each["ports"] if "hostPort" in port]
        probes = [each[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
        assert not [probe for probe in probes if "host" in probe]
        assert each["lifecycle"]["preStop"].keys() == {"sleep"}


@pytest.mark.parametrize(
    ("resources", "size"),
    [
        (Resources(), "2Gi"),
        (Resources(2, shared_memory="12Gi"), "12Gi"),
        (Resources(1, "amd.com/gpu"), "8Gi"),
    ],
)
def test_shared_memory_is_a_memory_volume_of_the_size(gold, resources, size):
    (shm,) = [v for v in pod(replace(gold, resources=resources))["volumes"] if v["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": size}


def test_gpus_are_requested_as_they_are_limited_under_their_own_name(gold):
    spec = replace(gold, resources=Resources(1, "nvidia.com/mig-1g.10gb", cpu="4", memory="16Gi"))
    resources = container(spec)["resources"]
    assert resources["limits"] == {"nvidia.com/mig-1g.10gb": "1", "memory": "16Gi"}
    assert resources["requests"] == {**resources["limits"], "cpu": "4"}
    assert [t["key"] for t in pod(spec)["tolerations"]] == ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu"]


def test_the_gpu_taint_is_tolerated_beside_the_tiers_own_tolerations(full):
    gpu, dedicated = pod(full)["tolerations"]
    assert gpu == {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert dedicated["key"] == "dedicated"


def test_a_pool_without_gpus_asks_for_none(gold):
    spec = replace(gold, resources=Resources(0))
    assert container(spec)["resources"] == {}
    assert "tolerations" not in pod(spec)


def test_the_limits_are_mounted_as_a_folder_so_that_they_are_refreshed(gold):
    (mount,) = [m for m in container(gold)["volumeMounts"] if m["name"] == "limit"]
    assert mount == {"name": "limit", "mountPath": "/tierkeeper/limit", "readOnly": True}
    assert env(gold)["TIERKEEPER_LIMIT_DIR"] == "/tierkeeper/limit"


def test_a_pod_that_cannot_be_resized_live_has_no_plugin(gold):
    spec = replace(gold, engine=replace(gold.engine, live_resize=LiveResize.DISABLED))
    assert {m["name"] for m in container(spec)["volumeMounts"]} == {"home", "tmp", "shm"}
    assert "PYTHONPATH" not in env(spec)


# Environment variables.


def environment(spec, *variables):
    return container(replace(spec, engine=replace(spec.engine, env=variables)))["env"]


def test_the_tiers_own_python_path_is_kept_behind_the_plugins(gold):
    assert {"name": "PYTHONPATH", "value": "/tierkeeper/plugin:/opt/mine"} in environment(
        gold, EnvVar("PYTHONPATH", "/opt/mine")
    )


def test_a_python_path_from_elsewhere_is_kept_by_reference(gold):
    source = {"configMapKeyRef": {"name": "paths", "key": "python"}}
    rendered = environment(gold, EnvVar("PYTHONPATH", value_from=source))
    given, used = rendered[-3:-1]
    assert given == {"name": "TIERKEEPER_GIVEN_PYTHONPATH", "valueFrom": source}
    assert used == {"name": "PYTHONPATH", "value": "/tierkeeper/plugin:$(TIERKEEPER_GIVEN_PYTHONPATH)"}


@pytest.mark.parametrize(("given", "used"), [("lora", "lora,tierkeeper_live_limit"), ("", "tierkeeper_live_limit")])
def test_a_list_of_plugins_gets_ours_too(gold, given, used):
    assert {"name": "VLLM_PLUGINS", "value": used} in environment(gold, EnvVar("VLLM_PLUGINS", given))


def test_the_tier_may_move_its_caches_and_no_name_stands_twice(gold):
    rendered = environment(gold, EnvVar("HF_HOME", "/models/hub"), EnvVar("B", "1"), EnvVar("A", "$(B)"))
    names = [entry["name"] for entry in rendered]
    assert len(names) == len(set(names))
    assert {"name": "HF_HOME", "value": "/models/hub"} in rendered
    assert names.index("B") < names.index("A")


def test_the_hub_token_is_a_reference_and_never_a_value(full):
    (token,) = [entry for entry in container(full)["env"] if entry["name"] == "HF_TOKEN"]
    assert token["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}


def test_weights_on_a_claim_are_mounted_read_only(full):
    assert {"name": "model", "mountPath": "/models", "readOnly": True} in container(full)["volumeMounts"]
    assert "HF_HUB_OFFLINE" not in env(full)
