"""A vLLM plugin: a running server follows the limits in a folder, max-num-seqs and the scheduler's token budget.

vLLM loads it in each of its processes through the ``vllm.general_plugins`` entry point. In the engine core it wraps
``Scheduler.schedule``, so a limit changes between two steps and cuts no request; what is applied goes to a state file.
In the API server it adds gauges to vLLM's own /metrics. Whatever goes wrong here, vLLM goes on without live limits.
"""

import importlib
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FIRST_RELEASE, LAST_RELEASE = (0, 18), (0, 33)
"""vLLM releases, inclusive, whose scheduler is known to have the attributes set here."""
LIMIT_DIR_VARIABLE = "TIERKEEPER_LIMIT_DIR"
STATE_DIR_VARIABLE = "TIERKEEPER_STATE_DIR"
SEQS, TOKENS = "max-num-seqs", "max-num-batched-tokens"
READ_SECONDS = 0.5
PREFILL_TOKENS = 16
"""Tokens a step that are left to prompts however low the budget, so that a waiting request always moves on."""

logger = logging.getLogger("vllm.tierkeeper_live_limit")  # below "vllm": its handlers and level are set by vLLM


class LimitFolder:
    """The last good limits. The files are read at most twice a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, int] = {}
        self._next_read = float("-inf")
        self._complaints: dict[str, str] = {}

    def refresh(self) -> bool:
        """Read the files if it is time; true if it was. Never raises."""
        now = time.monotonic()
        if now < self._next_read:
            return False
        self._next_read = now + READ_SECONDS
        self._read(TOKENS, optional=self._read(SEQS))
        return True

    def _read(self, name: str, *, optional: bool = False) -> bool:
        """Take over a limit. A missing or malformed one stays as it was, and the log says so once."""
        path = self.path / name
        try:
            if optional and not path.exists():
                self.values.pop(name, None)  # the rest is there: the operator leaves this one to the engine
                return True
            value = int(path.read_text(encoding="ascii"))
            if value < 1:
                raise ValueError(f"{value} is below 1")
        except (OSError, ValueError) as error:
            if self._complaints.get(name) != str(error):
                logger.warning("%s stays at %s: %s", name, self.values.get(name, "its start value"), error)
            self._complaints[name] = str(error)
            return False
        self.values[name] = value
        self._complaints.pop(name, None)
        return True


class Governor:
    """Holds this process's scheduler at the limits, and says in a state file what it applies."""

    def __init__(self, limits: LimitFolder, state_dir: Path) -> None:
        self._limits = limits
        self._state_dir = state_dir
        self._start: tuple[int, int] | None = None
        self._written: dict[str, Any] | None = {}
        self._works = True

    def before_step(self, scheduler: Any) -> None:
        """Set the limits of the step to come. Never raises; after a surprise it does nothing any more."""
        if self._works:
            self._works = _guarded(lambda: self._apply(scheduler), otherwise=False)
            if not self._works:
                self._write({"supported": False})

    def _apply(self, scheduler: Any) -> bool:
        has_active_cap = hasattr(scheduler, "max_num_active_reqs")  # from 0.31
        cap = "max_num_active_reqs" if has_active_cap else "max_num_running_reqs"
        if self._start is None:
            self._start = (int(getattr(scheduler, cap)), int(scheduler.max_num_scheduled_tokens))
        due, (start_seqs, start_tokens) = self._limits.refresh(), self._start
        seqs = min(self._limits.values.get(SEQS, start_seqs), start_seqs)
        wanted = self._limits.values.get(TOKENS, start_tokens)
        tokens = min(wanted, start_tokens)
        running = len(scheduler.running)
        scheduler.max_num_scheduled_tokens = step_tokens(scheduler, tokens, start_tokens)
        # max_num_running_reqs is asserted to be at least what runs, and up to 0.23 admission stops only on equality.
        setattr(scheduler, cap, seqs if has_active_cap else max(seqs, running))
        if due:
            # With speculation the engine starts below its own --max-num-batched-tokens: a limit in between is kept.
            ceiling = max(start_tokens, getattr(scheduler.scheduler_config, "max_num_batched_tokens", None) or 0)
            self._write({"supported": True, SEQS: seqs, TOKENS: min(wanted, ceiling)})
        return True

    def _write(self, state: dict[str, Any]) -> None:
        """One file a process, because data parallel has several engines. Tried again until it is written."""
        if state == self._written:
            return
        target = self._state_dir / str(os.getpid())
        try:
            draft = target.with_suffix(".tmp")
            draft.write_text(json.dumps(state), encoding="ascii")
            draft.replace(target)
        except OSError as error:
            if self._written is not None:
                logger.warning("Cannot tell what applies: %s", error)
            self._written = None
        else:
            self._written = state
            logger.info("Live limits: %s", state)


def step_tokens(scheduler: Any, wanted: int, start_tokens: int) -> int:
    """Tokens of a step: what is wanted, but never less than the running batch decodes and a prompt needs to move on.

    64 running requests without speculation need at least 64 + 16 = 80. Prompts of hybrid models advance by whole
    blocks, so there the prompts' part is whole blocks too, at least one: of 1,056 wanted beside 10 decoding requests
    and blocks of 528 it is 528, since a prompt that takes both blocks leaves nothing to those that decode behind it.
    Prompts or images that may not be split need the whole budget.
    """
    config = scheduler.scheduler_config
    splits = getattr(config, "enable_chunked_prefill", True) and not getattr(config, "disable_chunked_mm_input", False)
    if wanted >= start_tokens or not splits:
        return start_tokens
    decode = len(scheduler.running) * (1 + int(getattr(scheduler, "num_spec_tokens", 0) or 0))
    room = max(wanted - decode, PREFILL_TOKENS)
    if getattr(scheduler, "need_mamba_block_aligned_split", False):
        block = int(scheduler.cache_config.block_size)
        room = max(room // block, 1) * block
    return min(decode + room, start_tokens)


class Gauges:
    """A Prometheus collector: the limits in the folder, and what the engines apply. An unknown value has no sample."""

    def __init__(self, limits: LimitFolder, state_dir: Path, *, supported: bool) -> None:
        self._limits = limits
        self._state_dir = state_dir
        self._supported = supported

    def collect(self) -> Iterator[Any]:
        yield from _guarded(lambda: list(self._families()), otherwise=[])

    def _families(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        self._limits.refresh()
        paths = [path for path in self._state_dir.glob("*[0-9]") if Path("/proc", path.name).exists()]
        states = [json.loads(path.read_text(encoding="ascii")) for path in paths]
        supported = self._supported and all(state["supported"] for state in states)
        yield GaugeMetricFamily("tierkeeper_live_limit_supported", "1: follows live limits", float(supported))
        for name in (SEQS, TOKENS):
            seen = self._limits.values.get(name)
            # Of several engines the one that is furthest from the limit: all have it when this one does.
            applied = sorted((int(s[name]) for s in states if name in s), key=lambda value: abs(value - (seen or 0)))
            metric = f"tierkeeper_{name.replace('-', '_')}"
            yield GaugeMetricFamily(f"{metric}_seen", f"Limit of {name} in the mounted folder", seen)
            yield GaugeMetricFamily(f"{metric}_applied", f"Limit of {name} in force", applied[-1] if applied else None)


def register() -> None:
    """The entry point: called once or more in every vLLM process. Never raises."""
    if folder := os.environ.get(LIMIT_DIR_VARIABLE):
        _guarded(lambda: _register(Path(folder)), otherwise=None)


def _register(folder: Path) -> None:
    if STATE_DIR_VARIABLE not in os.environ:  # the first process makes it, the others inherit its name
        os.environ[STATE_DIR_VARIABLE] = tempfile.mkdtemp(prefix="tierkeeper-live-limit-")
    state_dir = Path(os.environ[STATE_DIR_VARIABLE])
    supported = _guarded(lambda: _wrap_scheduler(Governor(LimitFolder(folder), state_dir)), otherwise=False)
    _export(Gauges(LimitFolder(folder), state_dir, supported=supported))


def _guarded(call: Callable[[], Any], *, otherwise: Any) -> Any:
    try:
        return call()
    except Exception:
        logger.exception("Live limits are off: this vLLM is not as expected")
        return otherwise


def _wrap_scheduler(governor: Governor) -> bool:
    version = str(importlib.import_module("vllm").__version__)
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or not FIRST_RELEASE <= (int(match[1]), int(match[2])) <= LAST_RELEASE:
        logger.warning("Live limits are off: not made for vLLM %s", version)
        return False
    scheduler_class = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    original = scheduler_class.schedule

    def schedule(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        governor.before_step(scheduler)
        return original(scheduler, *args, **kwargs)

    if original.__module__ != __name__:
        scheduler_class.schedule = schedule
    return True


def _export(gauges: Gauges) -> None:
    """Onto the page of one API server, and onto that of several, which vLLM otherwise fills from files alone."""
    from prometheus_client import REGISTRY
    from prometheus_client.multiprocess import MultiProcessCollector

    original: Any = MultiProcessCollector.collect

    def collect(collector: Any) -> Iterator[Any]:
        yield from original(collector)
        yield from gauges.collect()

    if original.__module__ != __name__:
        MultiProcessCollector.collect = collect  # type: ignore[method-assign]
        REGISTRY.register(gauges)
