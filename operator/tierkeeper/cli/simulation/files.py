"""What a run leaves in files: its figures, series and decisions as JSON, and the page."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic.alias_generators import to_camel

from tierkeeper.cli.simulate import OptionError
from tierkeeper.sim.record import Run, TierRun
from tierkeeper.sim.report import report
from tierkeeper.sim.score import inversion_seconds, score


class FileError(Exception):
    """A file that cannot be used; the text says which, why and what to do."""


def check_outputs(arguments: argparse.Namespace) -> None:
    """Before the run: that what is asked for can be written, and over nothing that is read. Raises OptionError."""
    outputs = [(f"--{name}", file) for name in ("json", "report") if (file := getattr(arguments, name))]
    taken = [(f"--{name}", file) for name in ("trace", "tier", "profile") for file in getattr(arguments, name) or []]
    for option, file in outputs:
        for other, read in taken:
            if _same(file, read):
                raise OptionError(f"{option} {file} is what {other} names, and would be overwritten; give another file")
        _check_writable(option, file)
        taken.append((option, file))


def _same(one: str, other: str) -> bool:
    """Whether two paths are one file, by name or by a link."""
    try:
        return Path(one).samefile(other)
    except OSError:  # one of them is not there
        return Path(one).resolve() == Path(other).resolve()


def _check_writable(option: str, file: str) -> None:
    if file == "-":
        raise OptionError(f"{option} -: standard output has the table; give a file")
    path = Path(file)
    if not path.parent.is_dir():
        raise OptionError(f"{option} {file}: the folder {path.parent} does not exist; create it or give another")
    there = path.exists()
    try:
        with path.open("ab", buffering=0) as stream:
            stream.write(b"")  # a full device says so
        if not there:
            path.unlink()
    except OSError as error:
        raise OptionError(f"{option} {file}: cannot be written: {error.strerror}; give another path") from error


def write(runs: Sequence[Run], arguments: argparse.Namespace, *, title: str) -> None:
    """Write what is asked for, and say so. Raises FileError."""
    if arguments.json:
        text = json.dumps({"runs": [as_dict(one) for one in runs]}, ensure_ascii=False, separators=(",", ":"))
        _save(arguments.json, text + "\n")
    if arguments.report:
        command = shlex.join(["tierkeeper", *sys.argv[1:]])
        _save(arguments.report, report(runs, title=title, seed=arguments.seed, command=command))


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
