"""Results by content: a run whose traffic, settings and code are the same is not run again.

The key of a result is a hash of its job (scenario, start-up, seed, faults, what the policy is set to) and of the code
that could change it. A peer's result does not depend on our law, so a change of the law reruns ours alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import tierkeeper
from bench.policy.measures import Row
from bench.policy.policies import Kind

ROOT = Path(tierkeeper.__file__).parent
HERE = Path(__file__).parent
FOLDER = Path("build/bench/cache")

_SIMULATOR = ("sim/[!_]*.py", "sim/traffic/*.py", "slo/*.py", "render/promql.py", "tier.py")
_CODE = {
    Kind.OURS: (*_SIMULATOR, "engine/*.py", "scaling/*.py"),
    Kind.PEER: (*_SIMULATOR, "sim/peers/*.py", "engine/flags.py", "engine/latency.py", "scaling/model.py"),
    Kind.BOUND: (*_SIMULATOR, "sim/peers/static.py", "engine/flags.py", "engine/latency.py", "scaling/model.py"),
}
_SHOWN = ("report.py", "plot.py", "binned.py")
"""What only shows results."""
_BENCH = {
    Kind.OURS: ("variants.py", "faults.py"),
    Kind.PEER: ("faults.py",),
    Kind.BOUND: ("bounds.py",),
}


@cache
def code(kind: Kind) -> str:
    """A hash of all code and data that a result of this kind rests on."""
    found = {path for pattern in _CODE[kind] for path in ROOT.glob(pattern) if path.name not in _SHOWN}
    if kind is not Kind.BOUND:
        found = {path for path in found if not path.name.startswith("oracle")}
    if kind is not Kind.OURS:  # it holds the face of a policy, and ours
        found = {path for path in found if path.name != "policy.py"}
    bench = [HERE / name for name in ("scenarios.py", "play.py", "measures.py", *_BENCH[kind])]
    return _hash([*found, *bench, *(HERE / "data").glob("*.gz")])


def key(kind: Kind, job: Iterable[object]) -> str:
    """The name of a result."""
    return hashlib.sha256(f"{code(kind)} {[str(part) for part in job]}".encode()).hexdigest()[:32]


def load(name: str) -> Row | None:
    """A result that was stored; None where there is none, or one that was not written to its end."""
    try:
        found: Row = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def store(name: str, row: Row) -> None:
    """Written whole or not at all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = FOLDER / f"{name}.{os.getpid()}.part"
    part.write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")
    part.replace(FOLDER / f"{name}.json")


def _hash(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in sorted(paths, key=lambda path: (path.name, str(path.parent)[-12:])):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
