"""A Lease on a server that may be slow, lose requests and answers, or be asked to forget it. All in loop time."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tierkeeper.ports import ApiError, Lease


@dataclass(frozen=True)
class Way:
    """How one call fares: seconds to the server and back, and what gets lost."""

    there: float = 0.01
    back: float = 0.01
    lost: str = ""
    """"request", "answer", or nothing."""


@dataclass
class LeaseServer:
    """What the API server holds. Versions never repeat, also after a deletion."""

    lease: Lease | None = None
    writes: list[Lease] = field(default_factory=list)
    _versions: itertools.count = field(default_factory=lambda: itertools.count(1))
    _under_way: set[asyncio.Task] = field(default_factory=set)

    def put(self, lease: Lease, over: Lease | None) -> Lease:
        if (self.lease.version if self.lease else None) != (over.version if over else None):
            raise ApiError(status=409, reason="Conflict", message="not the version named")
        self.lease = replace(lease, version=str(next(self._versions)))
        self.writes.append(self.lease)
        return self.lease

    def lands(self, there: float, act: Callable[[], Lease | None]) -> asyncio.Task:
        """What is sent arrives, whatever becomes of its sender."""

        async def arrive():
            await asyncio.sleep(there)
            return act()

        task = asyncio.create_task(arrive())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # a sender that is gone never asks
        return task


@dataclass
class FakeLease:
    """See ``ports.LeaseLock``; one candidate's way to the server."""

    server: LeaseServer
    way: Callable[[], Way] = Way

    async def read(self):
        return await self._call(lambda: self.server.lease)

    async def write(self, lease, *, over):
        return await self._call(lambda: self.server.put(lease, over))

    async def _call(self, act):
        way = self.way()
        if way.lost == "request":
            await asyncio.sleep(3600)
        answer = self.server.lands(way.there, act)
        await asyncio.wait([answer])
        await asyncio.sleep(way.back if way.lost != "answer" else 3600)
        return answer.result()
