"""``tierkeeper run``: the operator itself."""

from __future__ import annotations

import argparse
import sys

from pydantic import ValidationError

from tierkeeper.settings import Settings

HELP = "run the operator; settings come from TIERKEEPER_* variables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``run`` takes none: a setting is said once, in the environment."""


def execute(arguments: argparse.Namespace) -> int:  # noqa: ARG001  (every command has this shape)
    """Run until ended. Exit code 2 for wrong settings."""
    try:
        settings = Settings()
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            name = "_".join(("TIERKEEPER", *map(str, detail["loc"]))).upper().removesuffix("_")
            # Where several settings are at odds, what was found is all of them; and a URL may carry a password.
            shown = detail["loc"] and "@" not in str(detail["input"])
            found = f" (found {detail['input']!r})" if shown else ""
            print(f"tierkeeper: {name}: {detail['msg']}{found}", file=sys.stderr)
        return 2
    from tierkeeper.app import run  # here, because the other commands need neither watcher nor clients

    return run(settings)
