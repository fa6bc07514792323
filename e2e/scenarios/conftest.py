"""What every scenario stands on: the cluster, Prometheus and the operator, brought up once a session.

The cluster stays up afterwards, so that the next run starts in seconds; ``make down`` ends it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.platform import install_operator, install_prometheus, load
from e2e.scenarios.kit import Kit


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The steady tiers are set up first and judged last, so that their five minutes pass while the others run."""
    items.sort(
        key=lambda item: {"test_steady_tiers_are_set_up": -1}.get(item.name, int(item.name.startswith("test_zz")))
    )


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """A running cluster without the operator: enough for the API's own contract. The CRD is installed."""
    cluster = Cluster()
    cluster.up()
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "crds/servicetiers.yaml")
    cluster.kubectl("wait", "--for=condition=Established", "crd/servicetiers.tierkeeper.dev", "--timeout=30s")
    return cluster


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
    kit.delete_namespace()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call" and report.failed:  # type: ignore[attr-defined]
        item.failed = True  # type: ignore[attr-defined]
    return report  # type: ignore[return-value]
