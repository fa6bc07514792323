"""What every scenario stands on: the cluster, Prometheus and the operator, brought up once a session.

The cluster stays up afterwards, so that the next run starts in seconds; ``make down`` ends it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.platform import install_operator, install_prometheus, load
from e2e.scenarios.kit import Kit

#: What disturbs nobody first, what takes the machine for itself last. The steady tiers' five minutes pass while the
#: lighter scenarios run; the demo restarts Prometheus and real vLLM takes both cores, so both come after the judgment.
ORDER = (
    "test_api_contract",
    "test_steady_tiers_are_set_up",
    "test_a_tier_to_show_is_set_up",
    "test_pool_lifecycle",
    "test_a_tool_begins_to_apply_a_tier_again_and_again",
    "test_live_resize",
    "test_promql_on_real_prometheus",
    "test_continuous_apply_sees_no_drift_and_no_fight_while_the_loop_scales",
    "test_client_truth",
    "test_five_steady_minutes_pass_without_a_write_an_event_or_a_mark",
    "test_every_query_of_the_dashboards_has_data",
    "test_every_rule_is_evaluated_without_an_error",
    "test_standby_takes_over",
    "test_helm_install",
    "test_demo",
    "test_real_vllm",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by ``ORDER``, which names files and single tests; what it does not name goes before the demo."""

    def place(item: pytest.Item) -> int:
        for name in (item.name, item.path.stem):
            if name in ORDER:
                return ORDER.index(name)
        return ORDER.index("test_client_truth")

    items.sort(key=place)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """A running cluster without the operator: enough for the API's own contract. The CRD is installed."""
    cluster = Cluster()
    cluster.up()
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "crds/servicetiers.yaml")
    cluster.kubectl("wait", "--for=condition=Established", "crd/servicetiers.tierkeeper.dev", "--timeout=30s")
    return cluster


@pytest.fixture(scope="module")
def no_operator(cluster: Cluster) -> Iterator[None]:
    """The cluster without a running operator, where an earlier run left one: scaled to nothing, and back."""
    operator = ("-n", "tierkeeper-system", "deployment/tierkeeper")
    if not cluster.kubectl("get", *operator, "--ignore-not-found"):
        yield
        return
    cluster.kubectl("scale", *operator, "--replicas=0")
    cluster.kubectl("wait", "-n", "tierkeeper-system", "--for=delete", "pods", "--all", "--timeout=60s")
    yield
    cluster.kubectl("scale", *operator, "--replicas=1")


@pytest.fixture(scope="session")
def platform(cluster: Cluster) -> Cluster:
    """The cluster with Prometheus and the operator, and the engine's image on the node."""
    load(cluster, ["engine"])
    install_prometheus(cluster)
    install_operator(cluster, values={"extraEnv": [{"name": "TIERKEEPER_STATUS_INTERVAL_SECONDS", "value": "5"}]})
    return cluster


@pytest.fixture
def kit(platform: Cluster, request: pytest.FixtureRequest) -> Iterator[Kit]:
    """A namespace of the test's own, deleted at its end; on failure it first shows what was there."""
    name = request.node.name.removeprefix("test_").replace("_", "-").split("[")[0][:48].strip("-")
    kit = Kit(platform, f"e2e-{name}")
    kit.create_namespace()
    yield kit
    failed = getattr(request.node, "failed", False)
    if failed:
        print(kit.explain())
    kit.delete_namespace(wait=False)  # the next test has its own; a drain of half a minute is nobody's to wait for


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call" and report.failed:  # type: ignore[attr-defined]
        item.failed = True  # type: ignore[attr-defined]
    return report  # type: ignore[return-value]
