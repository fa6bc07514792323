"""``tierkeeper plan``: what a ServiceTier file would become, without a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
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
from tierkeeper.tier import TierSpec

HELP = "check ServiceTier files and print the objects that the operator would make of them"


class PlanError(Exception):
    """A file that cannot be planned; the text says why and what to change."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="YAML with ServiceTiers; - is standard input")


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
    for tier in tiers:
        sys.stdout.write(_planned(tier))
    return 0


def tiers_of(file: str) -> list[TierSpec]:
    """The tiers of one file; - is standard input. Raises PlanError, one line a problem."""
    tiers: list[TierSpec] = []
    complaints: list[str] = []
    for document in _documents(file):
        if not isinstance(document, dict) or document.get("kind") != KIND:
            continue
        try:
            tiers.append(to_tier(document, strict=True))
        except InvalidTier as error:
            complaints += [f"{file}: {problem}" for problem in error.problems]
    if complaints:
        raise PlanError("\n".join(complaints))
    return tiers


def _documents(file: str) -> Iterator[Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        yield from yaml.safe_load_all(text)
    except OSError as error:
        raise PlanError(f"{file}: cannot be read: {error.strerror}; correct the path") from error
    except (ValueError, yaml.YAMLError) as error:  # ValueError: no UTF-8, or a value that looks like a date and is none
        raise PlanError(f"{file}: is no YAML: {' '.join(str(error).split())}; correct it") from error
    except RecursionError as error:
        raise PlanError(f"{file}: is nested too deeply to be read; remove the anchor or bracket too many") from error


def _planned(tier: TierSpec) -> str:
    """The tier's objects as a YAML stream, under a comment that says what is not in them."""
    levers = starting_levers(tier)
    objects = render_pool(tier, levers=levers, plugin_source=plugin_source())
    for one in objects:
        one["metadata"].pop("ownerReferences", None)  # the owner has no uid before it exists
    heading = (
        f"# {tier.key}: starts with {levers.replicas} replicas at max-num-seqs {levers.max_num_seqs}"
        f"{f', token budget {levers.max_num_batched_tokens}' if levers.max_num_batched_tokens else ''}."
        f" {live_resize(tier).message}.\n"
    )
    return heading + "".join(f"---\n{to_yaml(one)}" for one in objects)
