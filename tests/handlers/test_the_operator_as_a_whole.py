"""The whole operator, with the real kopf and the real client, against an API server over HTTP."""

import asyncio
import contextlib
import re
import signal
import time

import pytest

from tests.control.stage import GOLD, tier
from tests.fakes.apiserver import ApiServer
from tierkeeper import app
from tierkeeper.control.runtime import MissingCrdError
from tierkeeper.ports import Kind
from tierkeeper.settings import Settings


@pytest.fixture
async def server(tmp_path, monkeypatch):
    async with ApiServer().serving() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        yield api


def settings(**more):
    return Settings(
        prometheus_url="http://127.0.0.1:9",
        metrics_port=0,
        health_port=0,
        tick_seconds=0.5,
        prometheus_timeout_seconds=0.2,
        **more,
    )


@contextlib.asynccontextmanager
async def operating(**more):
    task = asyncio.create_task(app.operate(settings(**more)))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


LEASE = {"lease": "ops/tierkeeper", "lease_duration_seconds": 3, "lease_renew_deadline_seconds": 2} | {
    "lease_retry_seconds": 1
}


def lease_of(holder, *, seconds=3):
    spec = {"leaseDurationSeconds": seconds, **({"holderIdentity": holder} if holder else {})}
    return {"kind": "Lease", "metadata": {"namespace": "ops", "name": "tierkeeper"}, "spec": spec}


def holder(server):
    return server.kube.objects[Kind.LEASE, "ops", "tierkeeper"]["spec"].get("holderIdentity")


async def until(true, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not happen in time"
        await asyncio.sleep(0.05)


def stands(server, kind, name="gold"):
    obj = server.kube.objects.get((Kind.SERVICE_TIER, "llm", name)) or {}
    found = [c for c in obj.get("status", {}).get("conditions", ()) if c["type"] == kind]
    return found[0]["status"] if found else None


async def test_a_tier_that_is_there_at_the_start_and_one_that_comes_later_both_get_their_pool(server):
    server.kube.put(tier())
    async with operating():
        await until(lambda: (Kind.DEPLOYMENT, "llm", "gold-pool") in server.kube.objects)
        server.kube.put(tier(name="silver"))
        await until(lambda: (Kind.DEPLOYMENT, "llm", "silver-pool") in server.kube.objects)


async def test_nothing_but_the_status_of_a_user_s_object_is_ever_written(server):
    server.kube.put(tier())
    async with operating():
        await until(lambda: stands(server, "Ready") == "False")
        server.kube.run_deployments()
        await until(lambda: stands(server, "Ready") == "True")
        server.kube.put(tier(engine={"image": "vllm/vllm-openai:v0.33.0"}))
        await until(lambda: stands(server, "Reconciling") == "True")
    on_tiers = {r.path.rpartition("/")[2] for r in server.patches if "/servicetiers/" in r.path}
    assert on_tiers == {"status"}
    meta = server.kube.objects[Kind.SERVICE_TIER, "llm", "gold"]["metadata"]
    assert "finalizers" not in meta
    assert "annotations" not in meta
    assert {r.method for r in server.patches if "/events" not in r.path} == {"PATCH"}


async def test_only_children_with_the_tier_label_are_watched(server):
    async with operating():
        await until(lambda: sum(r.query.get("watch") == "true" for r in server.requests) == 6)
    watches = {r.path.rpartition("/")[2]: r.query.get("labelSelector") for r in server.requests if "watch" in r.query}
    assert watches.pop("servicetiers") is None
    assert set(watches) == {"deployments", "pods", "configmaps", "services", "poddisruptionbudgets"}
    assert set(watches.values()) == {"tierkeeper.dev/tier"}


async def test_namespaced_mode_makes_no_cluster_wide_call(server):
    server.kube.put(tier())
    async with operating(watch_namespaces="llm"):
        await until(lambda: (Kind.DEPLOYMENT, "llm", "gold-pool") in server.kube.objects)
    resources = [
        r.path for r in server.requests if r.path.rpartition("/")[2] in ("servicetiers", "pods", "deployments")
    ]
    assert resources
    assert all("/namespaces/llm/" in path for path in resources)
    assert not [r for r in server.requests if r.path.endswith(("/namespaces", "/customresourcedefinitions"))]


async def test_i10_where_cluster_wide_calls_are_refused_the_first_pool_comes_without_delay_or_noise(server, caplog):
    caplog.set_level("WARNING")
    server.kube.put(tier())
    every_user_may_ask = re.compile(r"/version|/api(/v1)?|/apis(/[^/]+(/[^/]+)?)?")
    own = "/namespaces/llm/"
    server.refuse = lambda r: None if own in r.path or every_user_may_ask.fullmatch(r.path) else 403
    async with operating(watch_namespaces="llm"):
        await until(lambda: (Kind.DEPLOYMENT, "llm", "gold-pool") in server.kube.objects, 10)
    # No Prometheus answers here; whether that is noticed before the pool stands is nothing of this story.
    said = [each.getMessage() for each in caplog.records if not each.name.startswith("urllib3")]
    assert [message for message in said if "no snapshot" not in message] == []


async def test_l06_i13_nothing_of_kopf_and_no_optional_api_is_ever_asked_for(server):
    """Another kopf operator's peering cannot freeze this one, and an API that is absent cannot end it."""
    server.kube.put(tier())
    async with operating():
        await until(lambda: stands(server, "Ready") == "False")
    groups = {r.path.split("/")[2] for r in server.requests if r.path.startswith("/apis/") and r.path.count("/") > 3}
    assert groups == {"tierkeeper.dev", "apps", "policy"}


async def test_a_user_id_without_a_name_is_enough(server, monkeypatch):
    monkeypatch.setattr("getpass.getuser", _nobody)
    server.kube.put(tier())
    async with operating():
        await until(lambda: (Kind.DEPLOYMENT, "llm", "gold-pool") in server.kube.objects)


def _nobody():
    raise KeyError("getpwuid(): uid not found: 65532")


async def test_a_deleted_child_comes_back_through_the_watch(server):
    server.kube.put(tier())
    async with operating():
        await until(lambda: (Kind.SERVICE, "llm", "gold-pool") in server.kube.objects)
        await asyncio.sleep(0.5)
        server.kube.delete(Kind.SERVICE, "llm", "gold-pool")
        await until(lambda: (Kind.SERVICE, "llm", "gold-pool") in server.kube.objects)


async def test_an_edit_after_a_broken_watch_is_seen(server):
    server.kube.put(tier())
    async with operating():
        await until(lambda: stands(server, "Ready") == "False")
        server.end_watches()
        server.kube.put(tier(scaling={"replicas": {"min": 3, "max": 4}}))
        await until(lambda: server.kube.objects[Kind.DEPLOYMENT, "llm", "gold-pool"]["spec"]["replicas"] == 3)


@pytest.mark.parametrize("ended", [True, False], ids=["lists are ignored", "watches are silent"])
async def test_l05_a_new_tier_is_seen_soon_after_a_time_in_which_every_packet_was_dropped(server, monkeypatch, ended):
    monkeypatch.setattr("tierkeeper.handlers.watch.ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("tierkeeper.handlers.watch.SILENCE_SECONDS", 0.5)
    server.kube.put(tier())
    async with operating():
        await until(lambda: stands(server, "Ready") == "False")
        server.ignore = lambda r: r.path.endswith("/servicetiers")
        server.end_watches() if ended else server.silence_watches()
        await asyncio.sleep(1)
        server.kube.put(tier(name="silver"))
        server.ignore = lambda _: False
        await until(lambda: (Kind.DEPLOYMENT, "llm", "silver-pool") in server.kube.objects, 10)


async def test_a_watcher_without_rights_ends_the_process_instead_of_leaving_a_zombie(server, monkeypatch):
    monkeypatch.setattr("tierkeeper.handlers.watch.ERROR_BACKOFFS", (0.1,))
    server.refuse = lambda r: 403 if r.path.endswith("/pods") else None
    with pytest.raises(Exception, match="the test refuses this"):
        await asyncio.wait_for(app.operate(settings()), 30)


async def test_a_cluster_without_the_crd_is_told_what_to_apply(server):
    server.refuse = lambda r: 404 if r.path.endswith("/servicetiers") else None
    with pytest.raises(MissingCrdError, match=r"crds/servicetiers\.yaml"):
        await asyncio.wait_for(app.operate(settings()), 30)


async def test_a_part_that_dies_ends_the_process(server, monkeypatch):
    async def die(_):
        raise RuntimeError("the loop is broken")

    monkeypatch.setattr("tierkeeper.control.slo_loop.SloLoop.run", die)
    with pytest.raises(RuntimeError, match="the loop is broken"):
        await asyncio.wait_for(app.operate(settings()), 30)


async def test_a_standby_watches_nothing_and_writes_nothing_until_it_leads(server):
    server.kube.put(tier())
    server.kube.put(lease_of("other", seconds=300))
    async with operating(**LEASE):
        await until(lambda: sum("/leases/" in r.path for r in server.requests) >= 2)
        assert {r.method for r in server.requests} == {"GET"}
        assert {r.path.rpartition("/")[0].rpartition("/")[2] for r in server.requests} == {"leases"}
        server.kube.put(lease_of(None))
        await until(lambda: (Kind.DEPLOYMENT, "llm", "gold-pool") in server.kube.objects)
    assert holder(server) is None  # given back at the end


async def test_a_terminated_standby_goes_quietly(server):
    server.kube.put(lease_of("other", seconds=300))
    async with operating(**LEASE) as process:
        await until(lambda: any("/leases/" in r.path for r in server.requests))
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(process, 5)
    assert server.patches == []


async def test_a_terminated_leader_gives_the_lease_back_after_its_last_write(server):
    server.kube.put(tier())
    server.kube.put(lease_of(None))
    async with operating(**LEASE):
        await until(lambda: stands(server, "Ready") == "False")
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: holder(server) is None, 2)
    assert "/leases/" in server.patches[-1].path


async def test_a_leader_that_loses_the_lease_ends_at_once_and_writes_nothing_more(server, monkeypatch):
    ended = []
    monkeypatch.setattr(app, "end_at_once", ended.append)
    server.kube.put(tier())
    server.kube.put(lease_of(None))
    async with operating(**LEASE):
        await until(lambda: stands(server, "Ready") == "False")
        server.kube.put(lease_of("other"))
        await until(lambda: ended)
        written = len(server.patches)
        server.kube.put(tier(scaling={"replicas": {"min": 3, "max": 4}}))
        await asyncio.sleep(0.5)
        assert len(server.patches) == written
    assert str(ended[0]) == "other holds the Lease"
    assert holder(server) == "other"


async def test_the_token_appears_in_no_event_and_no_status(server):
    server.kube.put(tier())
    async with operating():
        await until(lambda: stands(server, "Ready") == "False")
    assert "s3cret" not in repr(server.kube.events)
    assert "s3cret" not in repr(server.kube.objects)
    assert GOLD.name in repr(server.kube.objects)


async def test_a_watched_namespace_that_is_deleted_ends_the_process_which_names_it(server, monkeypatch, caplog):
    """The Role goes with its namespace, and kopf ends where one of its watchers is refused."""
    monkeypatch.setattr("tierkeeper.handlers.watch.ERROR_BACKOFFS", (0.1,))
    server.kube.put(tier())
    async with operating(watch_namespaces="llm,gone") as task:
        await until(lambda: (Kind.DEPLOYMENT, "llm", "gold-pool") in server.kube.objects)
        server.refuse = lambda r: 403 if "/namespaces/gone/pods" in r.path else None  # one is enough
        server.end_watches()
        with pytest.raises(Exception, match="the test refuses this"):
            await asyncio.wait_for(task, 10)
    assert "/namespaces/gone/pods" in caplog.text
