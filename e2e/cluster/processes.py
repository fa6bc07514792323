"""Daemons: started apart from the caller, found again by mark and start time, ended by pid."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import Layout

# Every daemon carries this in its environment, and what it starts inherits it: the mark that `down` finds processes
# by when their pid files are gone.
OWNER = "TIERKEEPER_E2E_OWNER"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A long-running command under a name; its output goes to the log of that name."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Running:
    """A daemon that was started. `started` is the kernel's start time in clock ticks: with it, a pid used again is
    not mistaken for ours."""

    name: str
    pid: int
    started: int
    command: tuple[str, ...]

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def start(daemon: Daemon, layout: Layout) -> Running:
    """Start a daemon in a session of its own, reparented to init, and record it. Raises ClusterError where it cannot
    even be started."""
    # The shell prints the pid and leaves, so that the daemon is nobody's child here and never becomes this process's
    # zombie.
    script = 'log=$0; "$@" </dev/null >>"$log" 2>&1 & echo $!'
    shell = ["sh", "-c", script, str(layout.log(daemon.name)), *daemon.command]
    environment = {**os.environ, OWNER: str(layout.root)}
    output = subprocess.run(
        shell, env=environment, cwd="/", start_new_session=True, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    pid = int(output)
    started = start_time(pid)
    if started is None:
        raise ClusterError(f"{daemon.name} ended at once: see {layout.log(daemon.name)}")
    running = Running(name=daemon.name, pid=pid, started=started, command=daemon.command)
    record = {"name": running.name, "pid": pid, "started": started, "command": list(daemon.command)}
    (layout.run / f"{daemon.name}.json").write_text(json.dumps(record))
    return running


def recorded(layout: Layout) -> list[Running]:
    """All daemons recorded in the data folder, alive or not, in the order they were started."""
    found = []
    for path in sorted(layout.run.glob("*.json"), key=lambda p: p.stat().st_mtime_ns):
        record = json.loads(path.read_text())
        found.append(Running(record["name"], record["pid"], record["started"], tuple(record["command"])))
    return found


def stop(running: Running, *, grace_seconds: float = 10.0) -> None:
    """End one daemon: SIGTERM, and SIGKILL after the grace period. Returns when it is gone."""
    for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience
        if running.alive:
            _signal(running.pid, number)
        while running.alive and time.monotonic() < deadline:
            time.sleep(0.05)
    if running.alive:
        raise ClusterError(f"{running.name} (pid {running.pid}) does not end, not even on SIGKILL")


def start_time(pid: int) -> int | None:
    """The start time of a live process in clock ticks since boot; None for none, and for a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return parse_start_time(stat)


def parse_start_time(stat: str) -> int | None:
    """Field 22 of /proc/PID/stat. The command's name in parentheses may hold spaces and parentheses, so fields count
    from the last one."""
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def owned_pids(root: Path) -> list[int]:
    """Every process that belongs to the cluster at `root`: by the mark in its environment, or by a root file system
    that lies below `root`.

    The second finds the containers, which inherit no environment, also where their shim has been killed.
    """
    return [pid for pid in _pids() if pid != os.getpid() and _belongs(pid, root)]


def _belongs(pid: int, root: Path) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if f"{OWNER}={root}".encode() in environment.split(b"\0"):
            return start_time(pid) is not None
        return root_lies_below(Path(f"/proc/{pid}/mountinfo").read_text(), root) and start_time(pid) is not None
    except OSError:
        return False  # it ended meanwhile, or is a kernel thread


def root_lies_below(mountinfo: str, root: Path) -> bool:
    """Whether a process's `/` is an overlay kept below `root`, from the text of its /proc/PID/mountinfo."""
    for line in mountinfo.splitlines():
        if line.split(" ")[4] == "/":
            return f"upperdir={root}/" in line
    return False


def kill_all(root: Path, *, timeout: float = 20.0) -> int:
    """SIGKILL everything that belongs to the cluster until nothing is left; returns how many processes were ended.

    Nothing of the cluster outlives this, so nothing needs to end gracefully. Raises ClusterError with the pids that
    remain.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + timeout
    while pids := owned_pids(root):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes that do not end on SIGKILL: {', '.join(map(str, pids))}")
        for pid in pids:
            _signal(pid, signal.SIGKILL)
            killed.add(pid)
        time.sleep(0.1)
    return len(killed)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
