"""The command line: ``python -m e2e.compat [--only NAME[,NAME...]]``."""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.artifacts import BuildError, say
from e2e.cluster import ClusterError
from e2e.compat.targets import CheckError, Target, require_no_cluster, surroundings, targets

_EPILOG = """\
Kubernetes: the local cluster is built at each minor (ten minutes and more, once), every bound and rule of the CRD is
tried on its API server, and the scenario of a pool's lifecycle runs on it; then the cluster is ended.
Prometheus: the alerts' rules and their tests, and every query of the loop on a live server.
vLLM: the flags of the release's own parser, from its wheel, and every flag that is rendered for it.
Output of the tests goes to build/compat/.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one target came to: a few words by column, those after a failure missing."""

    target: Target
    cells: dict[str, str]
    problem: str
    seconds: float


def chosen(names: str) -> list[Target]:
    """The targets that a comma-separated list names, all where it is empty. Raises ValueError for an unknown one."""
    every = {target.name: target for target in targets()}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in every]:
        raise ValueError(f"no target {', '.join(unknown)}; there are: {', '.join(every)}")
    return [every[name] for name in wanted] or list(every.values())


def tried(target: Target) -> Outcome:
    """Run a target's steps up to the first that fails."""
    begun = time.monotonic()
    cells: dict[str, str] = {}
    problem = ""
    say(f"{target.product} {target.release}")
    column = ""
    try:
        with surroundings(target):
            for column, step in target.steps.items():
                cells[column] = step()
    except (BuildError, CheckError, ClusterError, subprocess.SubprocessError) as error:
        cells[column] = "FAILED"
        problem = str(error)
        say(f"{target.product} {target.release}: {column}: {problem}")
    return Outcome(target, cells, problem, time.monotonic() - begun)


def table(outcomes: Sequence[Outcome]) -> str:
    """One table a product: release, its columns, and the result."""
    blocks = []
    for product in dict.fromkeys(outcome.target.product for outcome in outcomes):
        of_product = [outcome for outcome in outcomes if outcome.target.product == product]
        columns = list(of_product[0].target.steps)
        rows = [[product, *columns, "result", "seconds"]]
        for each in of_product:
            cells = [each.cells.get(column, "-") for column in columns]
            result = "passed" if not each.problem else f"FAILED: {each.problem.splitlines()[0]}"
            rows.append([each.target.release, *cells, result, f"{each.seconds:.0f}"])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def main(arguments: Sequence[str]) -> int:
    """Try what was chosen and print the table; returns 1 where something failed."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.compat",
        description="Try Tierkeeper with each Kubernetes, Prometheus and vLLM release that it names.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(target.name for target in targets())
    parser.add_argument("--only", default="", metavar="NAMES", help=f"separated by commas, of: {names}")
    try:
        todo = chosen(parser.parse_args(arguments).only)
        if any(target.cluster for target in todo):
            require_no_cluster()
    except (ValueError, ClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    outcomes = [tried(target) for target in todo]
    print(table(outcomes))
    return int(any(outcome.problem for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
