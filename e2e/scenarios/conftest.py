"""What every scenario stands on: the cluster, Prometheus and the operator, brought up once a session.

The cluster stays up afterwards, so that the next run starts in seconds; ``make down`` ends it.

Scenarios marked ``alongside`` run side by side, by pytest-xdist: most of their time they wait. Those marked
``exchanged`` end or replace the operator; they wait, too, and leave the processor to tests that need no cluster, until
real vLLM wants it. The others leave it idle, but want no other scenario beside them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.artifacts import cache_dir
from e2e.cluster import Cluster
from e2e.demo.story import NAMESPACE as DEMO_NAMESPACE
from e2e.platform import bring_up, forget_tiers
from e2e.scenarios.kit import Kit

#: Side by side, what takes longest begins first; the many small cases of the API's contract, which need no operator,
#: pass while the first wait for it. One after the other, real vLLM loads while the operator is exchanged and is tried
#: when nothing is beside it, and the steady tiers' five minutes pass while the demo runs.
ORDER = (
    "test_continuous_apply_sees_no_drift_and_no_fight_while_the_loop_scales",
    "test_client_truth",
    "test_refused_pods_are_named",
    "test_api_contract",
    "test_pool_lifecycle",
    "test_a_shrink_cuts_no_stream",
    "test_many_go_at_once",
    "test_live_resize",
    "test_operator_away",
    "test_real_vllm_begins_to_load",
    "test_standby_takes_over",
    "test_helm_install",
    "test_real_vllm",
    "test_steady_tiers_are_set_up",
    "test_a_tier_to_show_is_set_up",
    "test_demo",
    "test_every_query_of_the_dashboards_has_data",
    "test_every_rule_is_evaluated_without_an_error",
    "test_five_steady_minutes_pass_without_a_write_an_event_or_a_mark",
    "test_least_privilege",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by ``ORDER``, which names files and single tests; what it does not name goes before ``test_live_resize``."""

    def place(item: pytest.Item) -> int:
        for name in (getattr(item, "originalname", item.name), item.path.stem):
            if name in ORDER:
                return ORDER.index(name)
        return ORDER.index("test_live_resize")

    items.sort(key=place)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show the figures that a scenario prints, where it ran in a worker of pytest-xdist, which keeps them."""
    if report.when == "call" and report.passed and report.capstdout and hasattr(report, "node"):
        print(f"\n{report.nodeid}\n{report.capstdout.rstrip()}", flush=True)


@contextmanager
def first_of_this_run(what: str) -> Iterator[bool]:
    """Whether this is the worker that brings up what all stand on; the others wait here until it is there.

    A run is ``make e2e`` or ``make test`` with its groups of scenarios, or one call of pytest.
    """
    named = filter(None, map(os.environ.get, ("TIERKEEPER_E2E_RUN", "PYTEST_XDIST_TESTRUNUID")))
    run = next(named, str(os.getpid()))
    with (cache_dir() / f"scenarios-{what}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        yield lock.read() != run
        lock.truncate(0)
        lock.write(run)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """A running cluster, be the operator there or not: enough for the API's own contract. The CRD is installed."""
    cluster = Cluster()
    with first_of_this_run("cluster") as first:
        if first:
            cluster.up()
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "crds/servicetiers.yaml")
            cluster.kubectl("wait", "--for=condition=Established", "crd/servicetiers.tierkeeper.dev", "--timeout=30s")
    return cluster


@pytest.fixture(scope="session")
def platform(cluster: Cluster) -> Cluster:
    """The cluster with Prometheus and the operator, all images on the node, and nothing of an earlier demo."""
    with first_of_this_run("platform") as first:
        if first:
            forget_tiers(cluster, DEMO_NAMESPACE)
            bring_up(cluster)
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
    return report
