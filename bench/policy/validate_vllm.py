"""Sets the simulator beside real vLLM: the same excerpt of recorded traffic played against both.

    python -m bench.policy.validate_vllm [--seconds 300] [--json FILE]
    python -m bench.policy.validate_vllm --url http://127.0.0.1:8000 --model NAME --max-num-seqs 64 ...

Real vLLM runs on this machine's CPU (``real_vllm``: root, two processors and a quiet machine are needed; ten minutes),
or it is one that runs already, started with ``--no-enable-prefix-caching`` and with the limits that are given here.
Its step-time constants are fitted to batches of fixed size and length that are played first, and to nothing else
(``calibration``, ``fit``); the size of its KV cache is what it tells. Then ``e2e.load`` plays the excerpt, open loop,
and the simulator gets the same arrivals and lengths. Exits with 1 where a median differs by more than 15 % or a P99 by
more than 30 %.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.policy.calibration import Batch, CalibrationError, measure
from bench.policy.fit import Fit, Sample, fit
from bench.policy.real_vllm import Limits, Server, ServerError, processors, running, serve
from e2e.artifacts import BuildError
from e2e.load import LoadPlan, LoadReport, Phase, Status, TargetPlan, Trace, run
from e2e.load.plan import Arrival
from tierkeeper.sim.model import PoolConfig, Requests, Startup
from tierkeeper.sim.pool import Pool

TRACE = Path(__file__).parent / "data" / "azure2023_conv.csv.gz"
MEDIAN_SHARE, P99_SHARE = 0.15, 0.30
"""The tolerances."""

LIMITS = Limits(max_num_seqs=16, max_num_batched_tokens=256)
RATE, LENGTH_SCALE, MOST_PROMPT, MOST_OUTPUT = 1.0, 0.2, 1000, 200
"""The excerpt: requests/s, and the recording's lengths times a factor, cut: what one processor can serve."""


def calibration(limits: Limits) -> Sequence[Batch]:
    """What is played to fit the constants: batches up to the cap, prompts in one chunk and in several, alone and beside
    streams. No traffic."""
    seqs, budget = limits.max_num_seqs, limits.max_num_batched_tokens
    shares = sorted({max(1, round(seqs * share)) for share in (0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)})
    return (
        *(Batch(streams, 64, 49) for streams in shares),
        *(Batch(streams, 384, 33) for streams in shares[::2]),
        *(Batch(1, round(budget * share), 2) for share in (1 / 16, 1 / 8, 1 / 2, 3 / 4, 1, 2, 3, 4)),
        *(
            Batch(streams, 64, 160, joined=(budget // 2, round(1.25 * budget), round(2.5 * budget)))
            for streams in (2, seqs // 2, seqs - 1)
        ),
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run of the excerpt, seconds."""

    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float
    """Of requests with two tokens or more."""


BOUNDS: Mapping[str, float] = {
    "ttft_p50": MEDIAN_SHARE,
    "ttft_p99": P99_SHARE,
    "tpot_p50": MEDIAN_SHARE,
    "tpot_p99": P99_SHARE,
}


def figures(ttft: np.ndarray, tpot: np.ndarray) -> Figures:
    """Quantiles of latencies in seconds; NaN stands for a request that has none."""
    return Figures(*(float(np.nanpercentile(values, share)) for values in (ttft, tpot) for share in (50, 99)))


def simulated(found: Fit, arrivals: Sequence[Arrival], *, kv_tokens: int, limits: Limits) -> Figures:
    """The excerpt on one simulated replica; the way to the engine and back is added to each TTFT."""
    config = PoolConfig(profile=found.profile, kv_tokens=kv_tokens, startup=Startup(0.0, sigma=0.0), drain_seconds=0.0)
    requests = Requests(
        np.array([arrival.at_s for arrival in arrivals]),
        np.array([arrival.prompt_tokens for arrival in arrivals]),
        np.array([arrival.output_tokens for arrival in arrivals]),
    )
    pool = Pool(
        config,
        requests,
        replicas=1,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        seed=0,
    )
    pool.advance(math.inf)
    seen = pool.outcomes()
    return figures(seen.ttft + found.front_seconds, seen.tpot)


def excerpt(server_url: str, model: str, trace: Path, *, seconds: float, rate: float) -> LoadPlan:
    """What is played. ``trace``: Azure's columns, gzip-compressed."""
    phase = Phase(
        seconds,
        rate_per_s=rate,
        length_scale=LENGTH_SCALE,
        max_prompt_tokens=MOST_PROMPT,
        max_output_tokens=MOST_OUTPUT,
    )
    with tempfile.NamedTemporaryFile(suffix=".csv") as plain:
        plain.write(gzip.decompress(trace.read_bytes()))
        plain.flush()
        recording = Trace.read(Path(plain.name))
    return LoadPlan(recording, [TargetPlan("vllm", server_url, model, (phase,))], drain_s=120.0)


def real(report: LoadReport) -> Figures:
    """What the clients saw. Raises ServerError where a request was not answered."""
    records = report.targets["vllm"]
    failed = len(records) - records.count(Status.OK)
    if failed:
        raise ServerError(f"{failed} of {len(records)} requests failed: {dict(records.errors)}")
    return figures(np.array(records.ttft), np.array(records.tpot))


def table(theirs: Figures, ours: Figures) -> tuple[list[str], bool]:
    """The lines of the comparison, and whether all is within bounds."""
    lines = ["| | real ms | simulated ms | difference | bound | |", "|---|---:|---:|---:|---:|---|"]
    well = True
    for name, bound in BOUNDS.items():
        measured, found = getattr(theirs, name), getattr(ours, name)
        off = found / measured - 1
        ok = abs(off) <= bound
        well &= ok
        label = name.replace("ttft_", "TTFT ").replace("tpot_", "TPOT ").replace("p", "P")
        lines.append(
            f"| {label} | {1000 * measured:.1f} | {1000 * found:.1f} | {100 * off:+.1f} % | {100 * bound:.0f} % "
            f"| {'ok' if ok else 'off'} |"
        )
    return lines, well


async def play(server: Server, plan: LoadPlan, limits: Limits) -> tuple[list[Sample], LoadReport]:
    """Warm up, calibrate, then the excerpt."""
    budget = limits.max_num_batched_tokens
    await measure(server.url, server.model, [Batch(4, 64, 33), Batch(1, 2 * budget, 2)], budget=budget)
    samples = await measure(server.url, server.model, calibration(limits), budget=budget)
    return samples, await run(plan)


def about(server: Server, found: Fit, arrivals: Sequence[Arrival], limits: Limits, *, seconds: float) -> str:
    """What was measured and fitted, in three lines."""
    step = found.profile
    prompt, output = (
        np.mean([getattr(arrival, name) for arrival in arrivals]) for name in ("prompt_tokens", "output_tokens")
    )
    return "\n".join(
        (
            f"vLLM {server.version}: KV cache of {server.kv_tokens:,} tokens, max-num-seqs {limits.max_num_seqs}, token"
            f" budget {limits.max_num_batched_tokens}",
            f"step: a {1e3 * step.base_seconds:.2f} ms, b0 {1e3 * step.per_sequence_seconds:.3f} ms a sequence, b1"
            f" {1e6 * step.per_context_token_seconds:.3f} ms per 1,000 tokens of context, d"
            f" {1e3 * step.per_prefill_token_seconds:.3f} ms a prompt token; {1e3 * found.front_seconds:.1f} ms a"
            f" request outside the engine ({found.samples} samples, mean error {100 * found.mean_error:.1f} %, largest"
            f" {100 * found.largest_error:.0f} %)",
            f"excerpt: {len(arrivals)} requests in {seconds:g} s, {prompt:.0f} + {output:.0f} tokens in the mean",
        )
    )


def main() -> int:
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that the server ends with us
    limits = Limits(max_num_seqs=options.max_num_seqs, max_num_batched_tokens=options.max_num_batched_tokens)
    try:
        with _server(options, limits) as server:
            plan = excerpt(server.url, server.model, options.trace, seconds=options.seconds, rate=options.rate)
            samples, report = asyncio.run(play(server, plan, limits))
        theirs = real(report)
    except (BuildError, ServerError, CalibrationError) as error:
        print(f"bench.policy.validate_vllm: {error}", file=sys.stderr)
        return 2
    found = fit(samples, name=f"vLLM {server.version}, CPU")
    arrivals = plan.arrivals(plan.targets[0])
    ours = simulated(found, arrivals, kv_tokens=server.kv_tokens, limits=limits)
    print(about(server, found, arrivals, limits, seconds=options.seconds), end="\n\n")
    lines, well = table(theirs, ours)
    print("\n".join(lines))
    if options.json:
        document = {
            "fit": asdict(found),
            "kvTokens": server.kv_tokens,
            "real": asdict(theirs),
            "simulated": asdict(ours),
            "samples": [asdict(sample) for sample in samples],
            "arrivals": [asdict(arrival) for arrival in arrivals],
            "report": report.to_dict(),
        }
        options.json.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return int(not well)


@contextmanager
def _server(options: argparse.Namespace, limits: Limits) -> Iterator[Server]:
    """The one that runs already, or one of our own, with the engine's processor left to it."""
    if options.url:
        yield running(options.url.rstrip("/"), options.model)
        return
    log = Path(tempfile.gettempdir()) / "validate-vllm.log"
    engine, front = processors()
    with serve(limits, port=options.port, log=log) as server:
        os.sched_setaffinity(0, {front})
        try:
            yield server
        finally:
            os.sched_setaffinity(0, {engine, front})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Set the simulator beside real vLLM on this machine's CPU.")
    parser.add_argument("--trace", type=Path, default=TRACE, help="the Azure 2023 conversation trace")
    parser.add_argument("--seconds", type=float, default=300.0, help="length of the excerpt (300)")
    parser.add_argument("--rate", type=float, default=RATE, help=f"requests/s of the excerpt ({RATE:g})")
    parser.add_argument("--port", type=int, default=18000, help="of vLLM on loopback (18000)")
    parser.add_argument("--url", help="of a vLLM on this machine that runs already")
    parser.add_argument("--model", default="", help="its served model name")
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        limit = getattr(LIMITS, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=limit, help=f"vLLM's ({limit})")
    parser.add_argument("--json", type=Path, help="write the figures, samples and requests there too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
