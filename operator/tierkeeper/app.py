"""The composition root: builds every part once, hands it to the next, and runs until something ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import kopf

from tierkeeper.adapters.clock import SystemClock
from tierkeeper.adapters.kube import KubernetesApi, connect
from tierkeeper.adapters.lease import KubernetesLease
from tierkeeper.adapters.probe import HttpProbe
from tierkeeper.adapters.prometheus import PrometheusSource
from tierkeeper.adapters.recorder import EventRecorder
from tierkeeper.adapters.tracing import tracing
from tierkeeper.control.candidate import Candidate
from tierkeeper.control.election import Terms
from tierkeeper.control.queue import KeyedQueue
from tierkeeper.control.reconciler import Reconciler
from tierkeeper.control.record import Records
from tierkeeper.control.runtime import Runtime
from tierkeeper.control.slo_loop import Rhythm, SloLoop
from tierkeeper.control.snapshot import Snapshots
from tierkeeper.control.store import Store
from tierkeeper.garbage import search_seldom
from tierkeeper.handlers.watch import build_registry, build_settings
from tierkeeper.obs.health import Health
from tierkeeper.obs.logs import configure_logs
from tierkeeper.obs.metrics import Metrics
from tierkeeper.obs.server import serving
from tierkeeper.obs.tracing import NO_TRACER
from tierkeeper.plugin import plugin_source
from tierkeeper.ports import ApiError, Clock, EngineProbe, KubeApi, MetricsSource, Tracer
from tierkeeper.settings import Settings
from tierkeeper.slo.burn import CONTROL_WINDOWS
from tierkeeper.slo.signals import MetricLabels
from tierkeeper.tier import TierKey

log = logging.getLogger(__name__)

STUCK_TICKS = 10
"""Ticks without a sign of life after which a loop counts as stuck: a tick may wait for several query time-outs."""


LONGEST_THROTTLE_SECONDS = 300.0

BUDGET_TIMEOUT_SECONDS = 100.0
"""For the queries over the whole budget period, which no tick waits for. Prometheus itself gives up after 120 s."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The one metrics source, by how long a query may take."""

    quick: MetricsSource
    patient: MetricsSource


def run(settings: Settings) -> int:
    """Run the operator until it is told to stop (0) or a part of it dies (1)."""
    configure_logs(format=settings.log_format, level=settings.log_level)
    search_seldom()
    try:
        asyncio.run(operate(settings))
    except KeyboardInterrupt:
        return 0
    except Exception:
        log.exception("the operator ends")
        return 1
    return 0


async def operate(settings: Settings) -> None:
    """The operator inside a running event loop. Raises whatever ends it, other than a signal."""
    health = Health(SystemClock(), stale_seconds=max(60.0, STUCK_TICKS * settings.tick_seconds))
    metrics = Metrics()
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        ports = await stack.enter_async_context(
            serving(
                registry=metrics.registry,
                health=health,
                metrics_port=settings.metrics_port,
                health_port=settings.health_port,
            )
        )
        tracer = await stack.enter_async_context(tracing(os.environ, instance=socket.gethostname()))
        api = await connect(random=random.random)
        stack.push_async_callback(api.close)
        candidate = candidate_for(settings, api, health=health, metrics=metrics) if settings.lease else None
        probe = await stack.enter_async_context(HttpProbe())
        sources = Sources(
            *[
                await stack.enter_async_context(
                    PrometheusSource(
                        settings.prometheus_url, timeout_seconds=seconds, token_file=settings.prometheus_token_file
                    )
                )
                for seconds in (settings.prometheus_timeout_seconds, BUDGET_TIMEOUT_SECONDS)
            ]
        )
        writer = api.fenced(candidate.may_write) if candidate else api
        runtime = assemble(
            settings,
            api=writer,
            probe=probe,
            sources=sources,
            health=health,
            metrics=metrics,
            tracer=tracer,
            stop=stop,
        )
        if candidate is None:
            metrics.leader.set(1)
        else:
            runtime.stopped = candidate.give_back  # before kopf has closed what it waits seconds for
            await stack.enter_async_context(candidate.standing())
            await _wait_to_lead(candidate, settings.lease, stop)
        if not stop.is_set():
            where = ", ".join(settings.watch_namespaces) or "all namespaces"
            log.info("watching ServiceTiers in %s; metrics on port %d, health on port %d", where, *ports)
            await _watch(settings, runtime, stop)


def candidate_for(settings: Settings, api: KubernetesApi, *, health: Health, metrics: Metrics) -> Candidate:
    """This process as one that may lead, over the Lease that the settings name."""
    namespace, _, name = settings.lease.partition("/")
    return Candidate(
        lock=KubernetesLease(api.once(), namespace=namespace, name=name),
        # Not the pod's name alone: a container that starts again in its pod must not take itself for the one before.
        me=f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
        terms=Terms(
            duration=settings.lease_duration_seconds,
            renew_deadline=settings.lease_renew_deadline_seconds,
            retry=settings.lease_retry_seconds,
        ),
        clock=SystemClock(),
        health=health,
        metrics=metrics,
        lost=end_at_once,
    )


def end_at_once(error: Exception) -> None:
    """End the process without another word to the cluster: another replica may lead from now on."""
    log.critical("the operator ends: %s", error)
    logging.shutdown()
    os._exit(1)


async def _wait_to_lead(candidate: Candidate, lease: str, stop: asyncio.Event) -> None:
    """Return when this process leads, or is told to stop. It watches nothing yet, and writes nothing but the Lease."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):  # kopf, once it runs, puts its own in their place
        loop.add_signal_handler(number, stop.set)
    log.info("%s stands for the lead by Lease %s", candidate.me, lease)
    either = [asyncio.create_task(event.wait()) for event in (candidate.leading, stop)]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in either:
            task.cancel()


def assemble(
    settings: Settings,
    *,
    api: KubeApi,
    probe: EngineProbe,
    sources: Sources,
    health: Health,
    metrics: Metrics,
    stop: asyncio.Event,
    tracer: Tracer = NO_TRACER,
) -> Runtime:
    """All parts of ``control`` over the given ports. ``stop`` is set when the process is to end."""
    clock, store, records = SystemClock(), Store(), Records()
    queue: KeyedQueue[TierKey] = KeyedQueue(random=random.random, at_least=asked_to_wait)
    reconciler = Reconciler(
        api=api,
        probe=probe,
        clock=clock,
        recorder=EventRecorder(api, clock, instance=f"{socket.gethostname()}-{os.getpid()}"),
        store=store,
        records=records,
        metrics=metrics,
        plugin_source=plugin_source(),
        status_interval_seconds=settings.status_interval_seconds,
        tracer=tracer,
    )
    loop = SloLoop(
        store=store,
        records=records,
        snapshots=_snapshots(settings, sources, clock, metrics, tracer),
        clock=clock,
        rhythm=_rhythm(settings),
        wake=queue.add,
        metrics=metrics,
        health=health,
        tracer=tracer,
    )
    return Runtime(
        api=api,
        store=store,
        records=records,
        queue=queue,
        reconciler=reconciler,
        loop=loop,
        health=health,
        metrics=metrics,
        namespaces=settings.watch_namespaces,
        workers=settings.workers,
        resync_seconds=settings.resync_seconds,
        random=random.random,
        end=stop.set,
    )


def asked_to_wait(error: Exception) -> float:
    """Seconds that a throttling API server asked for; bounded, or a wrong header would end the tier's service."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return min(asked or 0.0, LONGEST_THROTTLE_SECONDS)


def _snapshots(settings: Settings, sources: Sources, clock: Clock, metrics: Metrics, tracer: Tracer) -> Snapshots:
    labels = MetricLabels(settings.namespace_label, settings.tier_label, settings.pod_label)
    windows = CONTROL_WINDOWS.for_scrape_interval(settings.scrape_interval_seconds)
    return Snapshots(sources.quick, sources.patient, clock, labels, windows, metrics, tracer)


def _rhythm(settings: Settings) -> Rhythm:
    return Rhythm(
        tick=settings.tick_seconds, scrape=settings.scrape_interval_seconds, status=settings.status_interval_seconds
    )


async def _watch(settings: Settings, runtime: Runtime, stop: asyncio.Event) -> None:
    """kopf is the root: it ends all tasks started under it, and a dead watcher ends it."""
    own_name: Any = "tierkeeper"  # else kopf asks for the user's name, and a container's user has none
    await kopf.operator(
        registry=build_registry(runtime),
        settings=build_settings(),
        identity=own_name,
        standalone=True,
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
        stop_flag=stop,
    )
    if runtime.failure is not None:
        raise runtime.failure
