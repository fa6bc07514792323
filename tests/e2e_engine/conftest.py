"""What the engine's tests share: a core in virtual time, a server in this process, a server of its own process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from e2e.engine.config import EngineConfig
from e2e.engine.core import EngineCore, Step
from e2e.engine.life import serve_until
from e2e.engine.profiles import PROFILES
from e2e.engine.scheduler import KVCache, Request, Scheduler, SchedulerConfig
from e2e.engine.server import EngineServer

ROOT = Path(__file__).parents[2]


@dataclass
class VirtualEngine:
    """An engine whose clock only this test moves."""

    cap: int = 4
    budget: int = 64
    blocks: int = 64
    before_step: Callable[["VirtualEngine"], None] | None = None
    steps: list[Step] = field(default_factory=list)
    running_after_schedule: list[int] = field(default_factory=list)
    in_system_seconds: float = 0.0
    now: float = 0.0

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            SchedulerConfig(self.cap, self.budget), KVCache(num_blocks=self.blocks, block_size=16)
        )
        self.core = EngineCore(self.scheduler, PROFILES["fast"], max_model_len=1024)

    def run(self, requests: Sequence[Request]) -> None:
        """Serves requests, ordered by arrival, until none is left."""
        pending = deque(requests)
        while pending or self.core.has_work:
            if not self.core.has_work:
                self.now = max(self.now, pending[0].arrival_time)
                self._admit(pending, self.now)
            if self.before_step:
                self.before_step(self)
            step = self.core.begin_step(self.now)
            self.steps.append(step)
            self.running_after_schedule.append(len(self.scheduler.running))
            end = self.now + step.seconds
            self._admit(pending, end)
            self._pass_time(end)
            self.core.finish_step(step, end)

    def _admit(self, pending: deque[Request], until: float) -> None:
        while pending and pending[0].arrival_time <= until:
            self._pass_time(max(self.now, pending[0].arrival_time))
            self.core.add(pending.popleft())

    def _pass_time(self, until: float) -> None:
        self.in_system_seconds += self.scheduler.get_num_unfinished_requests() * (until - self.now)
        self.now = until


@pytest.fixture
def wait_until_healthy() -> Callable[[str], Awaitable[None]]:
    return healthy


@pytest.fixture
def virtual_engine() -> type[VirtualEngine]:
    return VirtualEngine


Serving = Callable[..., AbstractAsyncContextManager[tuple[EngineServer, str]]]


@pytest.fixture
def serving() -> Serving:
    """``async with serving(cap=..., **config fields) as (server, url)``: a server in this process."""

    @asynccontextmanager
    async def start(*, cap: int = 8, budget: int = 256, **changes: object) -> AsyncIterator[tuple[EngineServer, str]]:
        config = EngineConfig(
            "tiny", ("tiny",), "127.0.0.1", 0, SchedulerConfig(cap, budget), PROFILES["fast"], 1024, num_blocks=4096
        )
        server = EngineServer(replace(config, **changes), CollectorRegistry())  # type: ignore[arg-type]
        runner = web.AppRunner(server.application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        engine = asyncio.create_task(server.loop.run())
        try:
            yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            engine.cancel()
            with suppress(asyncio.CancelledError):
                await engine
            await runner.cleanup()

    return start


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def healthy(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(400):
            with suppress(aiohttp.ClientError):
                async with session.get(f"{url}/health") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.02)
    raise AssertionError(f"{url} did not become ready")


@dataclass
class Life:
    """A server in this process with its whole life; ``stop`` is its SIGTERM."""

    stop: asyncio.Event
    url: str
    task: asyncio.Task[None]


@pytest.fixture
async def living() -> AsyncIterator[Callable[..., Life]]:
    """``living(**config fields)`` starts one and does not wait for it."""
    lives: list[Life] = []

    def start(**changes: object) -> Life:
        port, stop = free_port(), asyncio.Event()
        profile = replace(PROFILES["fast"], a_ms=15)
        config = EngineConfig(
            "tiny", ("tiny",), "127.0.0.1", port, SchedulerConfig(8, 256), profile, 4096, num_blocks=4096
        )
        task = asyncio.create_task(serve_until(stop, replace(config, **changes), CollectorRegistry()))  # type: ignore[arg-type]
        lives.append(Life(stop, f"http://127.0.0.1:{port}", task))
        return lives[-1]

    yield start
    for life in lives:
        life.stop.set()
        await life.task


@dataclass
class Process:
    """``vllm serve`` in a process of its own."""

    popen: subprocess.Popen[str]
    url: str

    def terminate(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self.popen.wait, 30)


@pytest.fixture
def vllm_serve() -> Iterator[Callable[..., Process]]:
    """Starts servers; those that still run at the end are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*flags: str, **environment: str) -> Process:
        port = free_port()
        popen = subprocess.Popen(
            [sys.executable, "-m", "e2e.engine", "serve", "tiny", "--host", "127.0.0.1", "--port", str(port), *flags],
            env={**os.environ, "TIERKEEPER_ENGINE_PROFILE": "fast:a_ms=15", **environment},
            cwd=ROOT,
            text=True,
            stderr=subprocess.PIPE,
        )
        started.append(popen)
        return Process(popen, f"http://127.0.0.1:{port}")

    yield start
    for popen in started:
        popen.kill()
        popen.communicate()
