"""The command ``python -m e2e.load``."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from e2e.load.plan import LoadPlan, Phase, TargetPlan, read_targets
from e2e.load.report import LoadReport
from e2e.load.runner import run
from e2e.load.trace import Trace

WINDOW_SECONDS = 10.0


def main(argv: list[str] | None = None) -> int:
    """0 when the run is complete, whatever the answers were; 2 on a bad command line or plan."""
    args = _parser().parse_args(argv)
    try:
        plan = _plan(args)
        report = asyncio.run(run(plan, on_second=_show))
    except ValueError as error:
        print(f"e2e.load: error: {error}", file=sys.stderr)
        return 2
    summary = report.to_dict(records=False)
    print(json.dumps(summary, indent=2))
    if args.json:
        args.json.write_text(json.dumps(report.to_dict()), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.load", description="Open-loop load from recorded traffic")
    replay = parser.add_subparsers(required=True, dest="command").add_parser("replay", help="replay a recording")
    replay.add_argument("--trace", type=Path, required=True, help="CSV: TIMESTAMP, ContextTokens, GeneratedTokens")
    replay.add_argument("--target", action="append", default=[], metavar="NAME=URL", help="may be given several times")
    replay.add_argument("--model", default="", help="served model name; empty takes the server's own")
    replay.add_argument("--plan", type=Path, help="JSON with targets and phases, instead of --target and a rate")
    pace = replay.add_mutually_exclusive_group()
    pace.add_argument("--rate", type=float, help="mean requests a second, each target")
    pace.add_argument("--speed", type=float, default=1.0, help="times the recording's rate (default 1)")
    replay.add_argument("--duration", type=float, default=60.0, help="seconds (default 60)")
    replay.add_argument("--length-scale", type=float, default=1.0, help="factor on all lengths (default 1)")
    replay.add_argument("--max-prompt-tokens", type=int)
    replay.add_argument("--max-output-tokens", type=int)
    replay.add_argument("--seed", type=int, default=1)
    replay.add_argument("--max-in-flight", type=int, default=2000, help="each target (default 2000)")
    replay.add_argument("--drain", type=float, default=60.0, help="seconds to wait for the last answers (default 60)")
    replay.add_argument("--json", type=Path, help="write the full report here")
    replay.add_argument("--any-address", action="store_true", help="load machines outside loopback and 198.18.0.0/15")
    return parser


def _plan(args: argparse.Namespace) -> LoadPlan:
    """Raises ValueError when there is no target or one is malformed."""
    targets = read_targets(args.plan) if args.plan else []
    phase = Phase(
        args.duration,
        rate_per_s=args.rate,
        speed=None if args.rate is not None else args.speed,
        length_scale=args.length_scale,
        max_prompt_tokens=args.max_prompt_tokens,
        max_output_tokens=args.max_output_tokens,
    )
    for text in args.target:
        name, equals, url = text.partition("=")
        if not (name and equals and url):
            raise ValueError(f"--target {text!r}: write NAME=URL")
        targets.append(TargetPlan(name, url, args.model, (phase,)))
    if not targets:
        raise ValueError("nothing to load: give --target NAME=URL or --plan FILE")
    return LoadPlan(
        Trace.read(args.trace),
        tuple(targets),
        seed=args.seed,
        max_in_flight=args.max_in_flight,
        drain_s=args.drain,
        any_address=args.any_address,
    )


def _show(report: LoadReport) -> None:
    parts = [
        f"{name} {s.arrivals_per_s:.1f}/s in flight {s.in_flight} "
        f"TTFT p99 {_ms(s.ttft_p99_ms)} TPOT p99 {_ms(s.tpot_p99_ms)} failed {s.failed}"
        for name, s in report.window(WINDOW_SECONDS).items()
    ]
    print(f"{report.elapsed:5.0f}s  " + "  |  ".join(parts), file=sys.stderr, flush=True)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
