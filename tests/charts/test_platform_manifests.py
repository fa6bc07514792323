"""The Prometheus that the local cluster runs, and how values for the operator's chart are put together."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e import platform, tools

IMAGE = Path("/cache/image-prometheus-dev-0123456789abcdef/image.tar")


def prometheus_objects(image: Path = IMAGE) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in platform.prometheus_objects(image)}


def revision(image: Path) -> dict[str, str]:
    annotations: dict[str, str] = prometheus_objects(image)["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    return annotations


def test_prometheus_rolls_when_its_image_changes_under_the_same_tag() -> None:
    other = Path("/cache/image-prometheus-dev-fedcba9876543210/image.tar")
    assert revision(IMAGE) == revision(IMAGE)
    assert revision(IMAGE) != revision(other)


def test_prometheus_runs_the_image_that_is_built() -> None:
    (container,) = prometheus_objects()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == platform.PROMETHEUS_TAG


def test_prometheus_answers_where_the_operator_is_told_to_look() -> None:
    service = prometheus_objects()["Service"]
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert f"http://{name}.{namespace}.svc:{service['spec']['ports'][0]['port']}" == platform.PROMETHEUS_URL


def test_prometheus_may_only_look_at_pods() -> None:
    assert prometheus_objects()["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]


@pytest.mark.built
@pytest.mark.timeout(1800)
def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(prometheus_objects()["ConfigMap"]["data"]["prometheus.yml"])
    done = subprocess.run(
        [tools.promtool(), "check", "config", "--lint=all", "--lint-fatal", file], capture_output=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_values_are_merged_map_by_map_and_lists_are_replaced() -> None:
    base = {"prometheus": {"url": "a", "scrapeIntervalSeconds": 5}, "extraEnv": [{"name": "A"}]}
    over = {"prometheus": {"url": "b"}, "extraEnv": [], "tickSeconds": 2}
    assert platform.merged(base, over) == {
        "prometheus": {"url": "b", "scrapeIntervalSeconds": 5},
        "extraEnv": [],
        "tickSeconds": 2,
    }
    assert base["prometheus"] == {"url": "a", "scrapeIntervalSeconds": 5}


def test_unknown_image_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(platform.BuildError, match="no image vllm; there are: operator, engine, prometheus, vllm-cpu"):
        platform.images(["vllm"])
