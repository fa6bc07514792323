"""A keyed work queue: one piece of work a key at a time, repeated adds merged, failures retried ever more slowly."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delay with full jitter over its upper half, so that a failed fleet does not retry in step.

    The nth failure in a row waits ``base * 2**(n-1)``, at most ``ceiling`` seconds, times a factor in [0.5, 1).
    With base 0.5 and ceiling 60: 0.25-0.5 s, 0.5-1 s, ... 30-60 s from the eighth failure on.
    """

    base: float = 0.5
    ceiling: float = 60.0

    def delay(self, failures: int, random: Callable[[], float]) -> float:
        exponent = min(failures - 1, 32)  # 2**32 is past any ceiling; a larger power would only grow the integer
        return min(self.ceiling, self.base * float(2**exponent)) * (0.5 + 0.5 * random())


@dataclass(slots=True)
class _Later:
    at: float
    handle: asyncio.TimerHandle


@dataclass(slots=True)
class KeyedQueue(Generic[K]):
    """Holds keys, never work: what is to be done is read anew when the key's turn comes.

    A key added while it is worked on is worked on once more afterwards. Must be used inside a running event loop.
    """

    random: Callable[[], float]
    backoff: Backoff = field(default_factory=Backoff)
    at_least: Callable[[Exception], float] = lambda _: 0.0
    """Seconds that a failure itself asks to wait."""
    _ready: deque[K] = field(default_factory=deque)
    _waiting: set[K] = field(default_factory=set)
    _active: set[K] = field(default_factory=set)
    _again: set[K] = field(default_factory=set)
    _later: dict[K, _Later] = field(default_factory=dict)
    _failures: dict[K, int] = field(default_factory=dict)
    _wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    def add(self, key: K) -> None:
        """Make the key due now."""
        if self._closed:
            return
        if key in self._active:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._wakeup.set()

    def add_after(self, key: K, delay: float) -> None:
        """Make the key due in ``delay`` seconds; of several such wishes the earliest one counts."""
        loop = asyncio.get_running_loop()
        at = loop.time() + max(0.0, delay)
        if (known := self._later.get(key)) is not None:
            if known.at <= at:
                return
            known.handle.cancel()
        self._later[key] = _Later(at, loop.call_at(at, self._due, key))

    def forget(self, key: K) -> None:
        """Drop what is remembered of a key that no longer exists. Work in progress is left to finish."""
        if (known := self._later.pop(key, None)) is not None:
            known.handle.cancel()
        self._failures.pop(key, None)

    @property
    def depth(self) -> int:
        """Keys that are due and not yet worked on."""
        return len(self._ready) + len(self._again)

    @property
    def busy(self) -> bool:
        """Whether some key is worked on at this moment."""
        return bool(self._active)

    def failures(self, key: K) -> int:
        """Failures in a row so far."""
        return self._failures.get(key, 0)

    async def worker(self, work: Callable[[K], Awaitable[float | None]]) -> None:
        """Work on due keys until cancelled. ``work`` returns seconds until the key is due again, or None.

        An exception of ``work`` makes the key due again after the back-off; reporting it is the work's own affair.
        """
        while True:
            key = await self._next()
            try:
                delay = await work(key)
            except Exception as error:
                self._failures[key] = self._failures.get(key, 0) + 1
                delay = self.backoff.delay(self._failures[key], self.random)
                self.add_after(key, max(delay, self.at_least(error)))
            else:
                self._failures.pop(key, None)
                if delay is not None:
                    self.add_after(key, delay)
            finally:
                self._done(key)

    def close(self) -> None:
        """Hand out no more keys: neither those that are due, nor delayed or later ones. Work in progress may finish."""
        self._closed = True
        self._ready.clear()
        for later in self._later.values():
            later.handle.cancel()
        self._later.clear()

    def _due(self, key: K) -> None:
        self._later.pop(key, None)
        self.add(key)

    async def _next(self) -> K:
        while not self._ready:
            self._wakeup.clear()
            await self._wakeup.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._active.add(key)
        return key

    def _done(self, key: K) -> None:
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)
