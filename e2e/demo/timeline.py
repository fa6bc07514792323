"""What the cluster showed while the traffic ran: tiers and pods, watched through kubectl."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TierSample:
    """One status of one tier. ``at``: seconds since the traffic began."""

    at: float
    tier: str
    ready: int
    desired: int
    max_num_seqs: int
    token_budget: int | None
    burn: str
    conditions: dict[str, str]
    reason: str
    message: str
    resizes: int = 0
    last_apply_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DecisionMark:
    """A decision that moved a lever."""

    at: float
    tier: str
    reason: str
    message: str


def sample_of(obj: Object, *, at: float) -> TierSample:
    """Read a ServiceTier's status; missing parts read as zero, as before the operator's first visit."""
    status = obj.get("status", {})
    replicas = status.get("replicas", {})
    decision = status.get("lastDecision", {})
    live = status.get("liveResize", {})
    apply_ms = live.get("lastApplyMilliseconds")
    return TierSample(
        at=at,
        tier=obj["metadata"]["name"],
        ready=replicas.get("ready", 0),
        desired=replicas.get("desired", 0),
        max_num_seqs=status.get("maxNumSeqs", {}).get("desired", 0),
        token_budget=status.get("maxNumBatchedTokens", {}).get("desired"),
        burn=status.get("burn", ""),
        conditions={c["type"]: c["status"] for c in status.get("conditions", [])},
        reason=decision.get("reason", ""),
        message=decision.get("message", ""),
        resizes=live.get("count", 0),
        last_apply_seconds=None if apply_ms is None else apply_ms / 1000,
    )


@dataclass
class Timeline:
    """Everything seen, in order. ``pods`` keeps the last state of every pod that ever lived."""

    samples: list[TierSample] = field(default_factory=list)
    marks: list[DecisionMark] = field(default_factory=list)
    pods: dict[str, Object] = field(default_factory=dict)
    tiers: dict[str, Object] = field(default_factory=dict)

    def add_tier(self, obj: Object, *, at: float) -> None:
        sample = sample_of(obj, at=at)
        last = self.last(sample.tier)
        self.samples.append(sample)
        self.tiers[sample.tier] = obj
        moved = last is not None and (
            (last.desired, last.max_num_seqs, last.token_budget)
            != (sample.desired, sample.max_num_seqs, sample.token_budget)
        )
        if moved:
            self.marks.append(DecisionMark(at, sample.tier, sample.reason, sample.message))

    def last(self, tier: str) -> TierSample | None:
        return next((s for s in reversed(self.samples) if s.tier == tier), None)

    def of(self, tier: str) -> list[TierSample]:
        return [s for s in self.samples if s.tier == tier]

    def restarts(self) -> int:
        """Container restarts over every pod that lived, those deleted since included."""
        return sum(
            container.get("restartCount", 0)
            for pod in self.pods.values()
            for container in pod.get("status", {}).get("containerStatuses", [])
        )


def objects_in(stream: Iterator[str]) -> Iterator[Object]:
    """Split kubectl's watch output, JSON objects one after the other, into objects."""
    decoder, buffer = json.JSONDecoder(), ""
    for chunk in stream:
        buffer += chunk
        while buffer := buffer.lstrip():
            try:
                obj, end = decoder.raw_decode(buffer)
            except json.JSONDecodeError:
                break
            yield obj
            buffer = buffer[end:]


class Watcher:
    """Fills a Timeline from ``kubectl get -w``, in threads that end with the kubectl processes."""

    def __init__(self, kubectl: list[str], *, namespace: str, timeline: Timeline, started: float | None = None) -> None:
        self.timeline = timeline
        self._started = time.monotonic() if started is None else started
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        for resource, handle in (("servicetiers", self._tier), ("pods", self._pod)):
            command = [*kubectl, "get", resource, "-n", namespace, "-w", "-o", "json"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._processes.append(process)
            threading.Thread(target=self._read, args=(process, handle), daemon=True).start()

    def _read(self, process: subprocess.Popen[str], handle: Any) -> None:
        assert process.stdout is not None
        for obj in objects_in(iter(process.stdout.readline, "")):
            with self._lock:
                handle(obj)

    def _tier(self, obj: Object) -> None:
        self.timeline.add_tier(obj, at=time.monotonic() - self._started)

    def _pod(self, obj: Object) -> None:
        self.timeline.pods[obj["metadata"]["uid"]] = obj

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()
