"""What a run leaves in files: its figures, series and decisions as JSON, and the page."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic.alias_generators import to_camel

from tierkeeper.sim.record import Run, TierRun
from tierkeeper.sim.report import report
from tierkeeper.sim.score import inversion_seconds, score


class FileError(Exception):
    """A file that cannot be used; the text says which, why and what to do."""


def write(runs: Sequence[Run], arguments: argparse.Namespace, *, title: str) -> None:
    """Write what is asked for, and say so. Raises FileError."""
    if arguments.json:
        text = json.dumps({"runs": [as_dict(one) for one in runs]}, ensure_ascii=False, separators=(",", ":"))
        _save(arguments.json, text + "\n")
    if arguments.report:
        _save(arguments.report, report(runs, title=title))


def _save(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"{file}: cannot be written: {error.strerror}; give another path") from error
    print(f"wrote {file}", file=sys.stderr)


def as_dict(one: Run) -> dict[str, Any]:
    """A run as JSON holds it: names in camelCase, seconds, no number that JSON does not know."""
    return {
        "policy": one.policy,
        "seconds": one.seconds,
        "tickSeconds": one.tick_seconds,
        "gpus": one.gpus,
        "inversionSeconds": inversion_seconds(one),
        "tiers": {str(key): _tier_dict(one, tier) for key, tier in one.tiers.items()},
    }


def _tier_dict(one: Run, tier: TierRun) -> dict[str, Any]:
    objective = tier.spec.objective
    return {
        "objective": None if objective is None else _camel(dataclasses.asdict(objective)),
        "profile": tier.profile.name,
        "startupSeconds": tier.startup_seconds,
        "score": _camel(dataclasses.asdict(score(one, tier))),
        "series": _camel({f.name: getattr(tier.series, f.name) for f in dataclasses.fields(tier.series)}),
        "decisions": [_camel(dataclasses.asdict(entry)) for entry in tier.decisions],
    }


def _camel(values: Mapping[str, Any]) -> dict[str, Any]:
    return {to_camel(name): _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, dict):
        return _camel(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
