"""The command line: one small module a command, each loaded only when it is called."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence

COMMANDS = ("run", "plan", "simulate", "crd")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name; the process ends with the command's exit code."""
    parser = argparse.ArgumentParser(
        prog="tierkeeper", description="Tiered LLM serving on Kubernetes, with latency promises that are kept."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules = {name: importlib.import_module(f"tierkeeper.cli.{name}") for name in COMMANDS}
    for name, module in modules.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    arguments, strange = parser.parse_known_args(argv)
    if strange:  # the command's own parser would have the parent tell its usage
        commands.choices[arguments.command].error(f"unrecognized arguments: {' '.join(strange)}")
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # what is piped is a file, and no locale's affair
    raise SystemExit(modules[arguments.command].execute(arguments))
