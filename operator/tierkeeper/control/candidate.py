"""Stands for the lead as long as the process runs: waits for the Lease, renews it, gives it back at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from tierkeeper.control.election import Step, Terms, View, claim, leads, next_step, seen, won
from tierkeeper.obs.health import Health
from tierkeeper.obs.metrics import Metrics
from tierkeeper.ports import ApiError, Clock, LeaseLock

log = logging.getLogger(__name__)

LONGEST_CALL_SECONDS = 5.0
"""A call that hangs longer is given up, so that several fit into a renew deadline."""


class LeadLostError(RuntimeError):
    """The Lease is somebody else's, or could not be renewed in time."""


@dataclass(slots=True)
class Candidate:
    """One process that may lead. ``me`` is its name in the Lease, and no other process ever has it."""

    lock: LeaseLock
    me: str
    terms: Terms
    clock: Clock
    health: Health
    metrics: Metrics
    lost: Callable[[Exception], None]
    """Called when the lead is lost, or when the candidate itself is broken: the process is to end at once."""
    leading: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the lead is won. There is no way back: a process that loses it ends."""
    _view: View = field(default_factory=View)
    _task: asyncio.Task[None] | None = None
    _trouble: str = ""

    def may_write(self) -> bool:
        """Whether the term still runs. Asked before every write: after a stall it says no before any task has run."""
        return leads(self._view, self.clock.monotonic())

    @contextlib.asynccontextmanager
    async def standing(self) -> AsyncIterator[None]:
        """Stand for the lead while the block runs, then give the Lease back."""
        self._task = asyncio.create_task(self._stand(), name="lease")
        try:
            yield
        finally:
            await self.give_back()

    async def give_back(self) -> None:
        """Stand no more. From here on nothing may be written; whoever stands by takes over at its next look."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._view.until is not None:
            self._view = replace(self._view, until=None)
            self.metrics.leader.set(0)
            await self._free_the_lease()

    async def _stand(self) -> None:
        try:
            while True:
                await self._turn()
                self.health.beat("lease")
                await asyncio.sleep(min(self.terms.retry, self._left()))
        except Exception as error:
            self._view = View()
            self.metrics.leader.set(0)
            self.lost(error)

    def _left(self) -> float:
        """Seconds that the term still has; for ever where none runs."""
        until = self._view.until
        return float("inf") if until is None else max(0.0, until - self.clock.monotonic())

    async def _turn(self) -> None:
        """One look, one write, or both. Raises LeadLostError."""
        try:
            async with asyncio.timeout(min(LONGEST_CALL_SECONDS, self.terms.renew_deadline / 2, self._left())):
                try:
                    await self._look_and_act()
                except ApiError as error:
                    if error.status != 409:
                        raise
                    await self._look_and_act()  # somebody else has written it: see at once who
        except (ApiError, TimeoutError) as error:
            self._tell(str(error) or "no answer")
        else:
            self._tell("")

    async def _look_and_act(self) -> None:
        if not self._view.fresh and self._left():
            self._view = seen(self._view, await self.lock.read(), at=self.clock.monotonic())
        sent_at = self.clock.monotonic()
        step = next_step(self._view, me=self.me, terms=self.terms, now=sent_at)
        if step is Step.LOST:
            raise LeadLostError(self._why_lost())
        before, self._view = self._view, replace(self._view, fresh=False)
        if step is Step.WAIT:
            self.health.standing_by = True
            return
        wanted = claim(before, me=self.me, terms=self.terms, wall=self.clock.wall())
        written = await self.lock.write(wanted, over=before.lease)
        self._view = won(written, sent_at=sent_at, at=self.clock.monotonic(), terms=self.terms)
        if not self.leading.is_set():
            self._take_the_lead(before)

    def _take_the_lead(self, before: View) -> None:
        holder = before.lease.holder if before.lease else None
        others = holder not in (None, self.me)
        log.info("%s leads now: %s", self.me, f"{holder} renews no more" if others else "nobody else does")
        self.health.standing_by = False
        self.metrics.leader.set(1)
        self.leading.set()

    def _why_lost(self) -> str:
        holder = self._view.lease.holder if self._view.fresh and self._view.lease else None
        if holder not in (None, self.me):
            return f"{holder} holds the Lease"
        cause = self._trouble or "this process stood still"
        return f"the Lease could not be renewed for {self.terms.renew_deadline:g} s: {cause}"

    def _tell(self, trouble: str) -> None:
        """Once for each trouble, and once when it is over: a turn comes every few seconds."""
        if trouble and trouble != self._trouble:
            log.warning("Lease: %s; next try in %g s", trouble, self.terms.retry)
        elif self._trouble and not trouble:
            log.info("Lease: reached again")
        self._trouble = trouble

    async def _free_the_lease(self) -> None:
        try:
            async with asyncio.timeout(LONGEST_CALL_SECONDS):
                lease = self._view.lease if self._view.fresh else await self.lock.read()
                if lease is not None and lease.holder == self.me:
                    await self.lock.write(replace(lease, holder=None, renewed=self.clock.wall()), over=lease)
        except (ApiError, TimeoutError) as error:
            said = str(error) or "no answer"
            log.warning("the Lease was not given back, it runs out in %g s: %s", self.terms.duration, said)
        else:
            log.info("%s gave the lead back", self.me)
