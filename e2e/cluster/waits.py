"""Waiting that says what it waits for, and on failure shows the log that explains it."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from e2e.cluster.errors import ClusterError

_TAIL_LINES = 25


def wait_for(
    what: str,
    check: Callable[[], bool],
    *,
    timeout: float,
    log: Path | None = None,
    alive: Callable[[], bool] | None = None,
) -> None:
    """Call `check` until it is true, showing a live line with the seconds that went by.

    Raises ClusterError after `timeout` seconds, or at once when `alive` says that the process behind it has ended;
    the message holds the end of `log`.
    """
    started = time.monotonic()
    live = sys.stderr.isatty()
    if not live:
        print(f"waiting for {what} ...", file=sys.stderr, flush=True)
    pause = 0.1
    while True:
        dead = alive is not None and not alive()
        if not dead and check():
            break
        waited = time.monotonic() - started
        if dead or waited > timeout:
            why = "the process has ended" if dead else f"not within {timeout:.0f} s"
            raise ClusterError(f"waiting for {what}: {why}{tail_of(log)}")
        if live:
            print(f"\r\033[Kwaiting for {what} ... {waited:.0f} s", end="", file=sys.stderr, flush=True)
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)
    prefix = "\r\033[K" if live else ""
    print(f"{prefix}{what}: after {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


def tail_of(log: Path | None, lines: int = _TAIL_LINES) -> str:
    """The end of a log as a block to append to a message; empty without a log."""
    if log is None or not log.exists():
        return ""
    end = "\n".join("  " + line for line in log.read_text(errors="replace").splitlines()[-lines:])
    return f"\nend of {log}:\n{end}"
