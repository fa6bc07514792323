"""Sets the simulator beside measurements that others published. Seconds, and no other package is needed.

    python -m bench.policy.validate_published [--rows] [--json FILE]

*Steps*: static batches of Llama and BLOOM on A100 and H100 (``data/published_steps.csv``). For each model and set of
GPUs the constants are fitted to a few rows, and every other row is replayed in the simulator: within the range of what
was fitted (between its prompt lengths and batches, longer outputs) and beyond it (longer prompts, larger batches).

*Servers*: closed loops of equal requests on one GPU, against the shipped profiles, which come from measured kernels and
never saw these servers.

There is no bound here: the differences are told as they are.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from bench.policy.fit import Fit, Sample, fit
from tierkeeper.engine.latency import Profile
from tierkeeper.sim.model import PoolConfig, Requests, Startup
from tierkeeper.sim.pool import Pool
from tierkeeper.sim.profiles import PROFILES

TABLE = Path(__file__).parent / "data" / "published_steps.csv"
FITTED_BATCHES, FITTED_PROMPTS, FITTED_OUTPUT = (1, 4, 16), (128, 512, 2048), 128
BUDGETS = {"splitwise-sim": 10**6, "SageServe": 1024}
"""Tokens that a step takes. splitwise-sim computes the prompts of a batch together. SageServe's rows time the first
request of a batch: its TTFT doubles with the second prompt of 512 tokens and stays there, so two share a step."""
KV_TOKENS = 10**9
"""These batches fit: rows that were short of KV cache are left out (``_short``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Medians of a static batch: ``batch`` requests at once on an engine with nothing else."""

    source: str
    model: str
    gpu: str
    gpus: int
    prompt: int
    batch: int
    output: int
    runs: int
    prompt_seconds: float
    """Until the first token: of the whole batch (splitwise-sim), of its first request (SageServe)."""
    token_seconds: float
    """Between two tokens, in the mean."""
    total_seconds: float
    """Until the last token."""

    @property
    def engine(self) -> str:
        return f"{self.model}, {self.gpus} x {self.gpu} ({self.source})"

    @property
    def fitted(self) -> bool:
        """Whether the constants may see it. SageServe's batches hold the prefill of the others in their decoding: of
        them the time of a token is fitted with that prefill in it, and the time of the prompts is not."""
        return self.output == FITTED_OUTPUT and self.batch in FITTED_BATCHES and self.prompt in FITTED_PROMPTS

    @property
    def within(self) -> bool:
        """Whether it lies in the range of what is fitted."""
        return self.prompt <= max(FITTED_PROMPTS) and self.batch <= max(FITTED_BATCHES)

    @property
    def ended_early(self) -> bool:
        """Whether it wrote less than it was asked for (the time of a token is right, the whole is not)."""
        return self.total_seconds < 0.9 * (self.prompt_seconds + (self.output - 1) * self.token_seconds)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same of the simulator."""

    prompt_seconds: float
    token_seconds: float
    total_seconds: float


def published(path: Path = TABLE) -> list[Published]:
    """The table's rows; those short of KV cache left out."""
    with path.open(newline="", encoding="utf-8") as file:
        found = [
            Published(
                source=row["source"],
                model=row["model"],
                gpu=row["gpu"],
                gpus=int(row["gpus"]),
                prompt=int(row["prompt"]),
                batch=int(row["batch"]),
                output=int(row["output"]),
                runs=int(row["runs"]),
                prompt_seconds=float(row["prompt_seconds"]),
                token_seconds=float(row["token_seconds"]),
                total_seconds=float(row["total_seconds"]),
            )
            for row in csv.DictReader(file)
        ]
    return [row for row in found if not _short(row)]


def _short(row: Published) -> bool:
    """A batch that took turns: its first token came sooner than that of half the batch."""
    return row.source == "splitwise-sim" and row.gpus == 2 and row.batch == 64


def samples(rows: Sequence[Published]) -> Iterator[Sample]:
    """What the fitted rows tell of single steps."""
    for row in rows:
        prompts, gaps = row.batch * row.prompt, row.output - 1
        late = row.source == "SageServe" and row.batch > 1
        if not late:
            yield Sample(seconds=row.prompt_seconds, sequences=row.batch, context=prompts, prefill=prompts)
        yield Sample(
            seconds=row.token_seconds * gaps,
            steps=gaps,
            sequences=gaps * row.batch,
            context=gaps * (prompts + row.batch * row.output / 2),
            prefill=(row.batch - 2) * row.prompt if late else 0,
        )


def replayed(profile: Profile, row: Published) -> Replayed:
    """The batch in the simulator, measured as its source did."""
    seen = _outcomes(
        profile,
        Requests(np.zeros(row.batch), np.full(row.batch, row.prompt), np.full(row.batch, row.output)),
        max_num_seqs=row.batch,
        budget=BUDGETS[row.source],
    )
    first = row.source == "SageServe"
    return Replayed(
        prompt_seconds=float(seen.ttft[0] if first else seen.ttft.max()),
        token_seconds=float(seen.tpot[0] if first else seen.tpot.mean()),
        total_seconds=float(seen.finish[0] if first else seen.finish.max()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A closed loop: so many clients, each with the next request as soon as it has its answer."""

    what: str
    source: str
    profile: str
    clients: int
    prompt: int
    output: int
    budget: int
    figures: dict[str, float]
    """Published, by the names of ``Loop``."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The same of the simulator."""

    requests_per_second: float
    tokens_per_second: float
    """Of output."""
    ttft: float
    """Median, seconds."""
    ttft_p99: float
    tpot: float
    tpot_p99: float


WVA = "llm-d-incubation/workload-variant-autoscaler, docs/tutorials/parameter-estimation.md"
SWEEP = "johnmusgrave.com, vLLM throughput-latency sweep on NVIDIA A100 (vLLM 0.23.0)"
SERVED = (
    Served(
        what="8B on H100, 64 clients",
        source=WVA,
        profile="8b-h100",
        clients=64,
        prompt=128,
        output=128,
        budget=8192,
        figures={
            "requests_per_second": 56.65,
            "tokens_per_second": 7252.0,
            "ttft": 0.0260,
            "ttft_p99": 0.0354,
            "tpot": 0.0087,
            "tpot_p99": 0.0088,
        },
    ),
    Served(
        what="8B on A100, 1 client",
        source=SWEEP,
        profile="8b-a100",
        clients=1,
        prompt=1024,
        output=128,
        budget=2048,
        figures={"tokens_per_second": 75.0},
    ),
    Served(
        what="8B on A100, 8 clients",
        source=SWEEP,
        profile="8b-a100",
        clients=8,
        prompt=1024,
        output=128,
        budget=2048,
        figures={"tokens_per_second": 6.6 * 75.0},
    ),
)


def closed_loop(case: Served, *, rounds: int = 20) -> Loop:
    """Clients that are never idle: a queue that is never empty, behind as many slots.

    A request counts from the step that takes it in, as a client's does that asks the moment it has its answer. The
    clients' first requests are cut short at lengths spread evenly, so that they do not end in one step; those count for
    nothing.
    """
    output = np.full(case.clients * (rounds + 1), case.output)
    output[: case.clients] = np.linspace(2, case.output, case.clients).round()
    seen = _outcomes(
        PROFILES[case.profile].latency,
        Requests(np.zeros(len(output)), np.full(len(output), case.prompt), output),
        max_num_seqs=case.clients,
        budget=case.budget,
    )
    full = slice(case.clients, case.clients * rounds)
    ends = np.sort(seen.finish)[full]
    rate = (len(ends) - 1) / float(ends[-1] - ends[0])
    ttft = (seen.ttft - seen.queue_seconds)[full]
    tpot = seen.tpot[full]
    return Loop(
        requests_per_second=rate,
        tokens_per_second=rate * case.output,
        ttft=float(np.median(ttft)),
        ttft_p99=float(np.percentile(ttft, 99)),
        tpot=float(np.median(tpot)),
        tpot_p99=float(np.percentile(tpot, 99)),
    )


def _outcomes(profile: Profile, requests: Requests, *, max_num_seqs: int, budget: int):  # type: ignore[no-untyped-def]
    config = PoolConfig(profile=profile, kv_tokens=KV_TOKENS, startup=Startup(0.0, sigma=0.0), drain_seconds=0.0)
    pool = Pool(config, requests, replicas=1, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget, seed=0)
    pool.advance(math.inf)
    return pool.outcomes()


def differences(found: Fit, rows: Sequence[Published]) -> list[dict[str, float]]:
    """By row: simulated / published - 1 of the first token, the time a token and output tokens/s."""
    seen = []
    for row in rows:
        ours = replayed(found.profile, row)
        one = {
            "ttft": ours.prompt_seconds / row.prompt_seconds - 1,
            "tpot": ours.token_seconds / row.token_seconds - 1,
        }
        if not row.ended_early:
            one["throughput"] = row.total_seconds / ours.total_seconds - 1
        seen.append(one)
    return seen


def spread(values: Sequence[dict[str, float]], name: str) -> str:
    """Median of the absolute differences, and the largest one with its sign, percent."""
    known = [100 * one[name] for one in values if name in one]
    if not known:
        return "-"
    return f"{np.median(np.abs(known)):.1f} ({max(known, key=abs):+.0f})"


def main() -> int:
    parser = argparse.ArgumentParser(description="Set the simulator beside published measurements.")
    parser.add_argument("--rows", action="store_true", help="show every scored row too")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    document = {"steps": _steps(options.rows), "servers": _servers()}
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


def _steps(shown: bool) -> list[dict[str, object]]:
    print("difference of the simulated to the published figure in %: median of the absolute ones (the largest)\n")
    print("| engine | rows fitted / scored | range | TTFT | TPOT | tokens/s |")
    print("|---|---|---|---|---|---|")
    document: list[dict[str, object]] = []
    for engine, group in groupby(published(), key=lambda row: row.engine):
        rows = list(group)
        found = fit(list(samples([row for row in rows if row.fitted])), name=engine)
        scored = [row for row in rows if not row.fitted]
        for name, part in (
            ("within", [row for row in scored if row.within]),
            ("beyond", [row for row in scored if not row.within]),
        ):
            seen = differences(found, part)
            cells = " | ".join(spread(seen, figure) for figure in ("ttft", "tpot", "throughput"))
            print(f"| {engine} | {len(rows) - len(scored)} / {len(part)} | {name} | {cells} |")
            pairs = zip(part, seen, strict=True)
            document += [{**asdict(row), "range": name, "differences": one} for row, one in pairs]
            if shown:
                for row, one in zip(part, seen, strict=True):
                    told = ", ".join(f"{figure} {100 * value:+.1f}" for figure, value in one.items())
                    print(f"|  | {row.batch} x {row.prompt} + {row.output} | {told} | | | |")
    return document


def _servers() -> list[dict[str, object]]:
    print("\n| server | figure | published | simulated | difference |")
    print("|---|---|---:|---:|---:|")
    document: list[dict[str, object]] = []
    for case in SERVED:
        ours = asdict(closed_loop(case))
        for name, theirs in case.figures.items():
            scale, unit = (1, "/s") if name.endswith("second") else (1000, " ms")
            label = {"requests_per_second": "requests", "tokens_per_second": "output tokens"}.get(name, name)
            print(
                f"| {case.what}, {case.prompt} + {case.output} | {label} | {scale * theirs:.4g}{unit} "
                f"| {scale * ours[name]:.4g}{unit} | {100 * (ours[name] / theirs - 1):+.1f} % |"
            )
        document.append({**asdict(case), "simulated": ours})
    return document


if __name__ == "__main__":
    sys.exit(main())
