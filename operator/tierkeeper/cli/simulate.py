"""``tierkeeper simulate``: a policy over recorded traffic, without a cluster or a GPU."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

from tierkeeper.sim.profiles import DEFAULT_PROFILE, PROFILES

HELP = "run a policy over recorded traffic in simulated pools, and report what it kept and what it cost"

DESCRIPTION = """\
Runs the operator's own code over a traffic file in simulated vLLM replicas: they start slowly, prefill in chunks,
queue, run out of KV cache and drain. The policy sees what a cluster would show it: metrics scraped every 15 s, one
scrape old. Prints what was promised, what was kept, and what it cost.
"""

EXAMPLES = """\
examples, from the folder of the repository:
  An hour of an Azure LLM inference trace, with a page of plots and every decision with its reason:
    tierkeeper simulate --trace bench/policy/data/azure2023_conv.csv.gz --format azure --report hour.html

  The same at three times the rate, for your own tier, with replicas that take five minutes to start:
    tierkeeper simulate --trace bench/policy/data/azure2023_conv.csv.gz --format azure --scale 3 \\
        --tier examples/gold.yaml --profile 8b-h100 --start-up 300

  Platinum and Batch share five GPUs, by their priorities; the first trace belongs to the first tier, and so on:
    tierkeeper simulate --format azure --scale 1.5 --profile 8b-a100 --gpus 5 \\
        --trace bench/policy/data/azure2023_conv.csv.gz --tier examples/platinum.yaml \\
        --trace bench/policy/data/azure2023_conv.csv.gz --tier examples/batch.yaml

  A week of a rate curve with bursty arrivals, a 70B model, at most 64 GPUs, and a peer beside ours (some minutes):
    tierkeeper simulate --trace bench/policy/data/azure2024_conv_rate.csv.gz --format rate --law gamma:1.5 \\
        --scale 0.02 --profile 70b-4xh100 --gpus 64 --policy tierkeeper --policy hpa --json week.json

formats, plain or gzip-compressed; case does not matter, other columns are ignored:
  azure     TIMESTAMP (UTC date and time, or seconds), ContextTokens, GeneratedTokens: a request a line
  mooncake  timestamp or timestamp_ms (milliseconds), input_length, output_length: a request a line, CSV or JSON lines
  rate      a rate from each time on. Time: t_s, time_s, seconds or time, in seconds; minute or minutes. Rate: rate_rps,
            rps or rate, a second; req_per_min, requests_per_minute or req_per_min_mid, a minute. Lengths are drawn
            from those of Azure's conversations of 2023: 1,155 prompt and 211 output tokens on average

docs/how-to/simulate.md has the recorded hours that ship, the profile's fields and the layout of the JSON.
"""

EXIT_CODES = """
exit codes:
  0    the run is done, whatever came of it
  1    a file cannot be used, or a package is missing: the message says which
  2    an option is unknown, missing, or cannot be
  130  interrupted
"""


class OptionError(Exception):
    """An option that cannot be; the text names it, its value and what to give."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES + EXIT_CODES
    parser.usage = "%(prog)s --trace FILE --format FORMAT [option ...]   (-h tells them)"
    traffic = parser.add_argument_group(
        "traffic", "One --trace for each tier, in the tiers' order; the other options once for all, or once a trace."
    )
    traffic.add_argument("--trace", required=True, action="append", metavar="FILE", help="who asks, and when")
    traffic.add_argument(
        "--format",
        required=True,
        action="append",
        choices=("azure", "mooncake", "rate"),
        help="what the trace is",
    )
    traffic.add_argument(
        "--scale",
        type=_number("more than 0", above=0.0),
        action="append",
        metavar="N",
        help="play it at N times its rate (1)",
    )
    traffic.add_argument(
        "--law",
        action="append",
        metavar="LAW",
        help="arrivals of a rate curve: poisson (default), gamma:CV, weibull:SHAPE",
    )
    traffic.add_argument(
        "--where",
        type=_pair,
        action="append",
        default=[],
        metavar="COLUMN=TEXT",
        help="pick one series of rate files with several; again for another column",
    )
    pool = parser.add_argument_group("pools", "--gpus is for all tiers, the rest as above.")
    pool.add_argument(
        "--tier",
        action="append",
        metavar="TIER.yaml",
        help="a file with one or more ServiceTiers, of which model and GPUs are not used: the profile stands for them; "
        "without it a usual promise, chosen from profile and trace",
    )
    pool.add_argument(
        "--profile",
        action="append",
        metavar="NAME|FILE",
        help=f"what a replica can do: {', '.join(PROFILES)}, or your own YAML ({DEFAULT_PROFILE})",
    )
    pool.add_argument(
        "--start-up",
        type=_number("seconds from 0 on", least=0.0),
        action="append",
        metavar="SECONDS",
        help="from a pod scheduled to Ready, median (120)",
    )
    pool.add_argument(
        "--replicas",
        type=_whole(1),
        action="append",
        metavar="N",
        help="with how many it starts (what the first minutes need, where there are GPUs for it)",
    )
    pool.add_argument(
        "--gpus", type=_whole(1), metavar="N", help="GPUs that the tiers share by priority (as many as asked for)"
    )
    run = parser.add_argument_group("run")
    run.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help="tierkeeper (default), static, or a peer: hpa, keda, kpa, apa, llm-d, wva, dynamo; "
        "give the option again to compare",
    )
    run.add_argument("--seed", type=_whole(0), default=0, metavar="N", help="of everything that is drawn (0)")
    run.add_argument("--json", metavar="FILE", help="write figures, series and decisions")
    run.add_argument("--report", metavar="FILE.html", help="write one page with plots and every decision")


def _number(wanted: str, *, least: float = -math.inf, above: float = -math.inf) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value >= least and value > above:
            return value
        raise argparse.ArgumentTypeError(f"{text!r} cannot be; give a number, {wanted}")

    return read


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value >= least:
            return value
        raise argparse.ArgumentTypeError(f"{text!r} cannot be; give a whole number from {least} on")

    return read


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be; write COLUMN=TEXT")
    return name, value


def execute(arguments: argparse.Namespace) -> int:
    """Run and print; the exit codes are those of ``EXIT_CODES``."""
    try:
        from tierkeeper.cli.simulation import run  # here, because only this command needs the extra

        return run(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("numpy", "numba", "rich"):
            raise
        print(f"tierkeeper simulate needs {error.name}: pip install 'tierkeeper[sim]'", file=sys.stderr)
        return 1
    except OptionError as error:
        print(f"tierkeeper simulate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tierkeeper simulate: interrupted", file=sys.stderr)
        return 130
