"""Spans of a decision, as a real OTLP receiver sees them; and that nothing is lost by having or not having one."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.control.stage import GOLD, agreeing, tier
from tests.control.test_slo_loop import failing, running_stage, ticks
from tests.fakes.collector import collecting
from tierkeeper.adapters import otel
from tierkeeper.adapters.tracing import tracing
from tierkeeper.obs.tracing import NO_TRACER
from tierkeeper.ports import ApiError, MetricsErrorReason

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


PAGE = (Path(__file__).parents[2] / "docs/how-to/tracing.md").read_text()


@pytest.fixture
def collector():
    """Whatever arrives, the page must tell of it: people search by these names."""
    with collecting() as found:
        yield found
        assert {
            name for span in found.spans for name in (span.name, *span.attributes) if f"`{name}`" not in PAGE
        } == set()


@pytest.fixture
def environment(monkeypatch):
    """Sets OTEL_* variables, and gives the whole environment as the operator reads it."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)

    def given(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return os.environ

    return given


@asynccontextmanager
async def traced_stage(environment, *tiers, **load):
    """A stage whose operator sends spans; all of them have arrived when the block is left."""
    async with tracing(environment, instance="pod-1") as tracer:
        stage = await running_stage(*tiers, **load)
        stage.tracer = tracer
        stage.start_operator()
        await stage.reconciler.reconcile(GOLD)
        yield stage


async def test_a_tick_is_one_trace_from_the_queries_to_the_last_pod_that_obeys(collector, environment):
    async with traced_stage(environment(**{ENDPOINT: collector.url}), waiting=40.0, running=16.0, slow=0.5) as stage:
        await ticks(stage, 1)  # 15 s by the stage's clock
        stage.probe.default = agreeing(stage.cap)
        stage.clock.advance(5)
        await stage.reconciler.reconcile(GOLD)
        work = stage.records.find(GOLD).pending_id
    (tick,) = collector.named("tick")
    assert tick.attributes == {"tierkeeper.decision.id": work, "tierkeeper.tiers": 1}
    assert tick.resource["service.name"] == "tierkeeper"
    assert tick.resource["service.instance.id"] == "pod-1"
    assert len([span for span in collector.named("query") if span.is_in(tick)]) == len(stage.source.asked)
    assert "running" in {span.attributes["tierkeeper.query.signal"] for span in collector.named("query")}

    (assess,), (decide,), (apply,) = (collector.named(name) for name in ("assess", "decide", "apply"))
    assert all(span.is_in(tick) for span in (assess, decide, apply))
    name = {"tierkeeper.tier.namespace": "llm", "tierkeeper.tier.name": "gold"}
    assert all(span.attributes.items() >= name.items() for span in (assess, decide, apply))
    assert assess.attributes["tierkeeper.signal.state"] == "Ok"
    assert assess.attributes["tierkeeper.ttft.met"] is False
    assert assess.attributes["tierkeeper.ttft.burn_rate"] == pytest.approx(50)
    assert decide.attributes["tierkeeper.decision.reason"] == "QueueBoundRaiseCap"
    assert decide.attributes["tierkeeper.decision.changed"] == ["MaxNumSeqs"]
    assert decide.attributes["tierkeeper.max_num_seqs.actual"] == 16
    assert decide.attributes["tierkeeper.max_num_seqs.desired"] == 24
    assert apply.attributes["tierkeeper.decision.id"] == work
    assert apply.attributes["tierkeeper.decision.message"] == decide.attributes["tierkeeper.decision.message"]

    (resized,) = collector.named("apply max_num_seqs")
    assert resized.is_in(tick)
    both = {"tierkeeper.max_num_seqs.actual": 16, "tierkeeper.max_num_seqs.desired": 24, "tierkeeper.pods": 2}
    assert resized.attributes == name | both
    assert resized.seconds == pytest.approx(20, abs=1)  # from the write to the last pod that shows it


async def test_replicas_are_set_in_a_span_of_their_own(collector, environment):
    fixed_cap = tier(scaling={"maxNumSeqs": {"min": 16, "max": 16}})
    load = {"waiting": 40.0, "running": 16.0, "slow": 0.5}
    async with traced_stage(environment(**{ENDPOINT: collector.url}), fixed_cap, **load) as stage:
        await ticks(stage, 3)
    scaled = collector.named("apply replicas")[0]
    (apply,) = [span for span in collector.named("apply") if scaled.is_in(span)]
    assert apply.parent in {span.id for span in collector.named("tick")}
    assert scaled.attributes["tierkeeper.replicas.actual"] == 2
    assert scaled.attributes["tierkeeper.replicas.desired"] > 2


async def test_who_must_wait_for_another_tier_is_shown(collector, environment):
    wide = {"replicas": {"min": 2, "max": 64}, "maxNumSeqs": {"min": 16, "max": 16}}
    both = tier(priority=10, scaling=wide), tier(name="silver", scaling=wide)
    load = {"waiting": 40.0, "running": 16.0, "slow": 0.5}
    async with traced_stage(environment(**{ENDPOINT: collector.url}), *both, **load) as stage:
        await ticks(stage, 3)
    waits = collector.named("arbitrate")[0].attributes
    assert waits["tierkeeper.tier.name"] == "silver"
    assert waits["tierkeeper.decision.reason"] == waits["tierkeeper.decision.limited"] == "HoldPriority"


async def test_an_outage_of_prometheus_is_an_error_of_the_tick_and_of_its_query(collector, environment):
    async with traced_stage(environment(**{ENDPOINT: collector.url})) as stage:
        stage.source.answer = failing(MetricsErrorReason.AUTH_FAILED)
        await ticks(stage, 1)
    (tick,) = collector.named("tick")
    assert tick.failed
    assert "told to fail" in tick.said
    assert tick.attributes["error.type"] == "AuthFailed"
    failed = [span for span in collector.named("query") if span.failed]
    assert failed
    assert {span.attributes["error.type"] for span in failed} == {"AuthFailed"}


async def test_a_write_that_the_api_server_refuses_is_an_error_of_its_span(collector, environment):
    def refuse(call):
        denied = ApiError(status=403, reason="Forbidden", message="not allowed here")
        return denied if call.verb == "apply" else None

    async with traced_stage(environment(**{ENDPOINT: collector.url}), waiting=40.0, running=16.0, slow=0.5) as stage:
        await stage.loop.tick()
        stage.kube.fail = refuse
        await stage.reconciler.reconcile(GOLD)
    (apply,) = collector.named("apply")
    assert apply.failed
    assert apply.attributes["error.type"] == "Forbidden"


async def test_a_reconcile_without_a_decision_shows_nothing(collector, environment):
    async with traced_stage(environment(**{ENDPOINT: collector.url})) as stage:
        stage.kube.put(tier(scaling={"replicas": {"min": 3, "max": 4}}))
        await stage.reconciler.reconcile(GOLD)
        assert stage.replicas == 3
    assert collector.spans == []


async def test_headers_service_name_and_the_full_address_follow_the_standard_variables(collector, environment):
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/insert/traces",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cret",
        "OTEL_SERVICE_NAME": "tk-west",
    }
    async with traced_stage(environment(**variables)) as stage:
        await ticks(stage, 1)
    path, headers = collector.requests[0]
    assert (path, headers["authorization"]) == ("/insert/traces", "Bearer s3cret")
    assert collector.named("tick")[0].resource["service.name"] == "tk-west"


@pytest.mark.parametrize("answer", ["refuses the connection", "never answers", "answers 503", "answers 404"])
async def test_a_dead_collector_neither_slows_nor_stops_the_loop(answer, collector, environment, caplog):
    caplog.set_level(logging.INFO)
    variables = {ENDPOINT: collector.url, "OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_BSP_MAX_QUEUE_SIZE": "64"}
    variables |= {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.3"}
    if answer == "refuses the connection":
        collector.close()
    elif answer == "never answers":
        collector.silent.set()
    else:
        collector.status = int(answer.removeprefix("answers "))
    async with traced_stage(environment(**variables)) as stage:
        deadline = time.monotonic() + 30
        while "does not take spans" not in caplog.text:
            assert time.monotonic() < deadline
            await asyncio.wait_for(ticks(stage, 3), 30)
            await asyncio.sleep(0.05)
        record = stage.records.find(GOLD)
        assert record.assessment.state.known
    assert caplog.text.count("does not take spans") == 1
    assert "Transient" not in caplog.text


async def test_the_end_of_the_operator_waits_for_no_collector(environment, monkeypatch, caplog):
    """Closing blocks until the test has seen that nobody waits for it."""
    caplog.set_level(logging.INFO)
    never = threading.Event()
    monkeypatch.setattr(otel.OtelTracer, "close", lambda _: never.wait(60))
    monkeypatch.setattr("tierkeeper.adapters.tracing.FAREWELL_SECONDS", 0.05)
    async with tracing(environment(**{ENDPOINT: "http://127.0.0.1:9"}), instance="pod-1"):
        pass
    assert "the last spans were not delivered" in caplog.text
    assert not never.is_set()
    never.set()


async def test_a_collector_that_comes_back_is_told_once(collector, environment, caplog):
    caplog.set_level(logging.INFO)
    variables = {ENDPOINT: collector.url, "OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.3"}
    collector.status = 404
    async with traced_stage(environment(**variables)) as stage:
        for said in ("does not take spans", "takes spans again"):
            deadline = time.monotonic() + 30
            while said not in caplog.text:
                assert time.monotonic() < deadline
                await ticks(stage, 1)
                await asyncio.sleep(0.03)
            collector.status = 200
    assert collector.named("tick")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
async def test_tracing_is_off_unless_a_collector_is_named(variables, environment):
    async with tracing(environment(**variables), instance="pod-1") as tracer:
        assert tracer is NO_TRACER


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
        ({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "999999"}, "an OTEL_* variable cannot be read"),
    ],
)
async def test_what_cannot_be_is_said_and_the_operator_runs_without_spans(variables, said, environment, caplog):
    given = environment(**{ENDPOINT: "http://user:s3cret@127.0.0.1:9"}, **variables)
    async with tracing(given, instance="pod-1") as tracer:
        assert tracer is NO_TRACER
    assert said in caplog.text
    assert "s3cret" not in caplog.text


async def test_without_the_package_the_log_says_what_to_install(environment, monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "tierkeeper.adapters.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    async with tracing(environment(**{ENDPOINT: "http://127.0.0.1:9"}), instance="pod-1") as tracer:
        assert tracer is NO_TRACER
    assert "tierkeeper[otel]" in caplog.text


def test_the_operator_imports_no_opentelemetry_while_tracing_is_off():
    parts = "tierkeeper.adapters.tracing, tierkeeper.control.slo_loop, tierkeeper.control.reconciler"
    loaded = f"import sys, {parts}; print([name for name in sys.modules if 'opentelemetry' in name])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_what_a_span_would_say_is_not_even_made_up_while_tracing_is_off():
    def words():
        raise AssertionError("asked for its words")

    with NO_TRACER.span("tick") as span:
        span.tell(words)
        span.fail("Reason", "message")
    assert NO_TRACER.here() is None
