"""What the operator asked the API server for, by the server's audit log: one JSON object a line. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

OPERATOR_USER = "system:serviceaccount:tierkeeper-system:tierkeeper"
WRITES = frozenset({"create", "update", "patch", "delete"})


def log_time(unix_seconds: float) -> str:
    """A wall time as the log's times compare with it: whole seconds, so that nothing of that second is missed."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_seconds))


def answered(lines: Iterable[str], *, since: str = "", namespace: str | None = None) -> Iterator[dict[str, Any]]:
    """The operator's requests that were answered, in the log's order; a watch counts at its start and at its end.

    ``since`` is a time as of ``log_time``. ``namespace`` is that of the object; None: any, and none.
    """
    for line in lines:
        if OPERATOR_USER not in line:
            continue
        event: dict[str, Any] = json.loads(line)
        if (
            event["stage"] != "RequestReceived"
            and event["user"]["username"] == OPERATOR_USER
            and event.get("requestReceivedTimestamp", "") >= since
            and (namespace is None or event.get("objectRef", {}).get("namespace") == namespace)
        ):
            yield event


def writes(lines: Iterable[str], *, since: str = "", namespace: str | None = None) -> list[dict[str, Any]]:
    """Those of the requests that would change something, refused ones included."""
    return [event for event in answered(lines, since=since, namespace=namespace) if event["verb"] in WRITES]
