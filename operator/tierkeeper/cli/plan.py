"""``tierkeeper plan``: what a ServiceTier file would become, without a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tierkeeper.api import KIND
from tierkeeper.api.convert import InvalidTier, to_tier
from tierkeeper.api.text import to_yaml
from tierkeeper.engine.flags import live_resize
from tierkeeper.plugin import plugin_source
from tierkeeper.render.pool import render_pool
from tierkeeper.scaling.levers import starting_levers
from tierkeeper.slo.messages import count
from tierkeeper.tier import TierKey, TierSpec

HELP = "check ServiceTier files and print the objects that the operator would make of them"


class PlanError(Exception):
    """A file that cannot be planned; the text says why and what to change."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="YAML with ServiceTiers; - is standard input")
    parser.add_argument("--full", action="store_true", help="print the engine plugin's source too, 200 lines a tier")


def execute(arguments: argparse.Namespace) -> int:
    """Print the objects of every tier, or every problem of every file on standard error and return 1."""
    tiers: list[TierSpec] = []
    failed = False
    for name in arguments.files:
        try:
            tiers += tiers_of(name)
        except PlanError as error:
            print(error, file=sys.stderr)
            failed = True
    if not tiers and not failed:
        print(f"no {KIND} in {', '.join(arguments.files)}: name a file that holds one", file=sys.stderr)
    if failed or not tiers:
        return 1
    for warning in _unknown_tiers(tiers):
        print(f"warning: {warning}", file=sys.stderr)
    for tier in tiers:
        sys.stdout.write(_planned(tier, full=arguments.full))
    return 0


def _unknown_tiers(tiers: Sequence[TierSpec]) -> Iterator[str]:
    """Tiers named that are not there. Of one tier alone nothing can be told: the others are in files not given."""
    known = {tier.key for tier in tiers}
    for tier in tiers if len(known) > 1 else ():
        to = tier.overflow.degrade_to
        if to is not None and TierKey(tier.key.namespace, to) not in known:
            others = ", ".join(sorted(key.name for key in known - {tier.key} if key.namespace == tier.key.namespace))
            remedy = f"name one of {others}" if others else "correct it"
            yield f"{tier.key}: spec.overflow.degradeTo: no such tier is given: {remedy} (found {to})"


def tiers_of(file: str) -> list[TierSpec]:
    """The tiers of one file; - is standard input. Raises PlanError, one line a problem."""
    tiers: list[TierSpec] = []
    complaints: list[str] = []
    try:
        objects = [obj for obj in _objects(_documents(file)) if obj.get("kind") == KIND]
    except RecursionError as error:  # brackets without end, or a List that holds itself by an anchor
        raise PlanError(f"{file}: is nested too deeply to be read; remove the anchor or bracket too many") from error
    for obj in objects:
        try:
            tiers.append(to_tier(obj, strict=True))
        except InvalidTier as error:
            complaints += [f"{file}: {problem}" for problem in error.problems]
    if complaints:
        raise PlanError("\n".join(complaints))
    return tiers


def kinds(file: str) -> list[str]:
    """The kinds of the objects of a file, for saying what it holds instead of tiers."""
    documents = [] if file == "-" else _documents(file)  # standard input is read but once
    return sorted({str(obj.get("kind", "an object without a kind")) for obj in _objects(documents)})


def _objects(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The objects, those of a ``kind: List`` (what ``kubectl get -o yaml`` prints) one by one."""
    for document in documents:
        if isinstance(document, dict) and document.get("kind") in ("List", f"{KIND}List"):
            items = document.get("items")
            yield from _objects(items if isinstance(items, list) else ())
        elif isinstance(document, dict):
            yield document


def _documents(file: str) -> Iterator[Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        yield from yaml.safe_load_all(text)
    except OSError as error:
        raise PlanError(f"{file}: cannot be read: {error.strerror}; correct the path") from error
    except (ValueError, yaml.YAMLError) as error:  # ValueError: no UTF-8, or a value that looks like a date and is none
        raise PlanError(f"{file}: is no YAML: {' '.join(str(error).split())}; correct it") from error


def _planned(tier: TierSpec, *, full: bool) -> str:
    """The tier's objects as a YAML stream, under a comment that says what is not in them."""
    levers = starting_levers(tier)
    objects = render_pool(tier, levers=levers, plugin_source=plugin_source())
    for one in objects:
        one["metadata"].pop("ownerReferences", None)  # the owner has no uid before it exists
        if not full and one["metadata"]["name"] == tier.plugin_name:
            one["data"] = {name: _abbreviated(text) for name, text in one["data"].items()}
    replicas = count(levers.replicas, "replica")
    heading = (
        f"# {tier.key}: starts with {replicas} at max-num-seqs {levers.max_num_seqs}"
        f"{f', token budget {levers.max_num_batched_tokens}' if levers.max_num_batched_tokens else ''}."
        f" {live_resize(tier).message}.\n"
    )
    return heading + "".join(f"---\n{to_yaml(one)}" for one in objects)


def _abbreviated(text: str) -> str:
    lines = len(text.splitlines())
    return text if lines <= 5 else f"# {lines} lines, shown with --full\n"
