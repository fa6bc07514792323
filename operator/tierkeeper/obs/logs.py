"""One log format for everything, as text or JSON; each line names its tier, its work and whose decision that serves."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tierkeeper.settings import LogFormat
from tierkeeper.tier import TierKey


@dataclass(frozen=True, slots=True)
class Work:
    """What the present task is busy with."""

    id: str
    """Of the tick or of the reconcile."""
    key: TierKey | None = None
    decision: str | None = None
    """Id of the tick whose decision this reconcile carries out."""


_work: ContextVar[Work | None] = ContextVar("tierkeeper_work", default=None)


@contextlib.contextmanager
def working(*, id: str, key: TierKey | None = None) -> Iterator[None]:  # noqa: A002  (the field's name)
    """Every log line inside names this work."""
    token = _work.set(Work(id, key))
    try:
        yield
    finally:
        _work.reset(token)


def carrying_out(decision: str | None) -> None:
    """From here to the end of this work every log line names the tick whose decision is carried out, too.

    One search for that id then finds a decision's whole life: made, written, read back from the pods.
    """
    if (work := _work.get()) is not None:
        _work.set(replace(work, decision=decision))


class _AddWork(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        work = _work.get()
        own, decision = (work.id, work.decision) if work else ("-", None)
        record.work_id, record.decision_id = own, decision or "-"
        record.work = f"{own}/{decision}" if decision else own
        record.tier = str(work.key) if work and work.key else "-"
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line, ASCII only, so that no locale can break it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("work_id", "decision_id", "tier"):
            if (value := getattr(record, name, "-")) != "-":
                line[name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


TEXT_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(tier)s %(work)s %(message)s"

LOUD = ("kopf", "httpx", "httpcore", "asyncio", "urllib3", "aiohttp.access")
"""Loggers whose INFO lines say nothing of a tier; they speak from WARNING on."""


def configure_logs(*, format: LogFormat, level: str) -> None:  # noqa: A002  (the setting's name)
    """Set up the root logger. Raises ValueError for an unknown level."""
    handler = logging.StreamHandler(sys.stderr)
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="backslashreplace")  # a pod's text under LANG=C must not end in a traceback
    handler.addFilter(_AddWork())
    formatter = JsonFormatter() if format is LogFormat.JSON else logging.Formatter(TEXT_FORMAT, "%Y-%m-%dT%H:%M:%S")
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in LOUD:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
