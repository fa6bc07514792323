"""Runs a plan: every arrival at its time, whatever the answers do."""

import asyncio
import math
import time
from collections.abc import Callable

import aiohttp

from e2e.load.client import Outcome, body, complete
from e2e.load.guard import check_address
from e2e.load.plan import Arrival, LoadPlan, TargetPlan
from e2e.load.report import LoadReport, Status, TargetRecords


async def run(
    plan: LoadPlan, *, report: LoadReport | None = None, on_second: Callable[[LoadReport], None] | None = None
) -> LoadReport:
    """Sends the whole plan and waits for the answers, at most ``drain_s`` after the last arrival.

    ``report``: to watch the run from outside. Each request has a connection of its own, so that a Service's balancing
    sees every one. Raises ValueError for a target outside loopback and 198.18.0.0/15.
    """
    if not plan.any_address:
        for target in plan.targets:
            check_address(target.url)
    report = report or LoadReport.for_targets([target.name for target in plan.targets])
    schedules = [(target, plan.arrivals(target)) for target in plan.targets]
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    report.start()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        senders = [_Sender(plan, target, report, session) for target, _ in schedules]
        ticker = asyncio.create_task(_tick(report, on_second)) if on_second else None
        try:
            async with asyncio.TaskGroup() as group:
                for sender, (_, arrivals) in zip(senders, schedules, strict=True):
                    group.create_task(sender.send_all(arrivals))
            await _sleep_until(report.started_monotonic + plan.duration_s)
            await asyncio.gather(*(sender.drain(plan.drain_s) for sender in senders))
        finally:
            if ticker:
                ticker.cancel()
            for sender in senders:
                await sender.drain(0)
    return report


class _Sender:
    """One target."""

    def __init__(self, plan: LoadPlan, target: TargetPlan, report: LoadReport, session: aiohttp.ClientSession) -> None:
        self._plan = plan
        self._target = target
        self._records = report.targets[target.name]
        self._start = report.started_monotonic
        self._session = session
        self._tasks: set[asyncio.Task[None]] = set()

    async def send_all(self, arrivals: list[Arrival]) -> None:
        for number, arrival in enumerate(arrivals):
            await _sleep_until(self._start + arrival.at_s)
            if len(self._tasks) >= self._plan.max_in_flight:
                self._records.open_row(scheduled=arrival.at_s, sent=math.nan, status=Status.NOT_SENT)
                continue
            task = asyncio.create_task(self._send(arrival, number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def drain(self, seconds: float) -> None:
        """Waits for the answers, then gives the rest up."""
        if self._tasks and seconds > 0:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, arrival: Arrival, number: int) -> None:
        payload = body(
            model=self._target.model,
            prompt_tokens=arrival.prompt_tokens,
            output_tokens=arrival.output_tokens,
            number=number,
        )
        outcome = Outcome()
        sent = time.monotonic()
        row = self._records.open_row(scheduled=arrival.at_s, sent=sent - self._start)
        try:
            await complete(
                self._session,
                self._target.url.rstrip("/"),
                payload,
                outcome=outcome,
                on_first_token=lambda now: self._records.ttft.__setitem__(row, now - sent),
            )
        except asyncio.CancelledError:
            outcome.status = Status.TIMEOUT
            raise
        finally:
            _note(self._records, row, outcome, self._start)


def _note(records: TargetRecords, row: int, outcome: Outcome, start: float) -> None:
    records.status[row] = outcome.status
    records.tokens[row] = outcome.tokens
    records.finished[row] = (outcome.last_token or time.monotonic()) - start
    if outcome.error:
        records.errors[outcome.error] += 1
    if outcome.tokens > 1:
        records.tpot[row] = (outcome.last_token - outcome.first_token) / (outcome.tokens - 1)


async def _tick(report: LoadReport, on_second: Callable[[LoadReport], None]) -> None:
    second = 0
    while True:
        second += 1
        await _sleep_until(report.started_monotonic + second)
        on_second(report)


async def _sleep_until(moment: float) -> None:
    delay = moment - time.monotonic()
    if delay > 0:
        await asyncio.sleep(delay)
