"""``python -m e2e.demo``: the whole story, from an empty machine to a picture and a verdict."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from e2e import tools
from e2e.cluster import Cluster, ClusterError
from e2e.demo import checks, picture
from e2e.demo.checks import Check
from e2e.demo.story import ACTS, GOLD_RECOVERY_SECONDS, NAMESPACE, TIERS, total_seconds
from e2e.demo.table import Screen
from e2e.demo.tiers import demo_documents
from e2e.demo.timeline import Timeline, Watcher
from e2e.load.plan import LoadPlan, Phase, TargetPlan
from e2e.load.report import LoadReport, Status, percentile
from e2e.load.runner import run
from e2e.load.trace import EXCERPT, Trace
from e2e.platform import OPERATOR_NAMESPACE, RELEASE, bring_up, forget_tiers, images
from tierkeeper.engine.flags import HTTP_PORT

ROOT = Path(__file__).resolve().parents[2]

#: After the traffic, for replicas that are still to be given back: a calm window (30 s), a tick, and room for a stall.
END_SECONDS = 60

#: The recording's lengths, capped so that an answer fits into an act: its P90 is 430 output and 2,425 prompt tokens.
MAX_OUTPUT_TOKENS, MAX_PROMPT_TOKENS = 192, 2048


def say(text: str) -> None:
    print(f"\033[1m▸ {text}\033[0m" if sys.stdout.isatty() else f"▸ {text}", flush=True)


def prepare(cluster: Cluster) -> None:
    """Cluster, Prometheus, operator, tiers; returns once every tier is Ready."""
    say("a real Kubernetes on this machine")
    # The first time, all else comes from the network and is built while the compiler has Kubernetes.
    with ThreadPoolExecutor(max_workers=1) as beside:
        rest = beside.submit(lambda: (images(["engine", "operator", "prometheus"]), tools.helm4()))
        cluster.up()
        say("images: the operator, the vLLM-shaped engine")
        rest.result()
    forget_tiers(cluster, NAMESPACE)
    say("Prometheus, and the operator by Helm")
    bring_up(cluster, ["engine"])
    say("kubectl apply -f examples/ (with this machine's engine and sizes: build/demo/tiers.yaml)")
    documents = demo_documents()
    out = ROOT / "build/demo/tiers.yaml"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(documents, encoding="utf-8")
    cluster.kubectl("apply", "-f", str(out))
    say("waiting until every tier is Ready")
    cluster.kubectl(
        "wait", "-n", NAMESPACE, "servicetier", "--all", "--for=condition=Ready", "--timeout=180s", timeout=200
    )
    print(cluster.kubectl("get", "servicetiers", "-n", NAMESPACE))


def load_plan(cluster: Cluster) -> LoadPlan:
    targets = []
    for tier in TIERS:
        ip = cluster.kubectl("get", "svc", "-n", NAMESPACE, f"{tier}-pool", "-o", "jsonpath={.spec.clusterIP}")
        phases = [
            Phase(
                duration_s=act.seconds,
                rate_per_s=act.rates[tier],
                max_output_tokens=MAX_OUTPUT_TOKENS,
                max_prompt_tokens=MAX_PROMPT_TOKENS,
                name=act.name,
            )
            for act in ACTS
        ]
        targets.append(TargetPlan(name=tier, url=f"http://{ip.strip()}:{HTTP_PORT}", model=tier, phases=phases))
    return LoadPlan(trace=Trace.read(EXCERPT), targets=targets, seed=7)


def drive(cluster: Cluster) -> tuple[LoadReport, Timeline]:
    """Send the traffic and watch. The client goes first on the CPU, where it may: its clock is the one that counts."""
    with contextlib.suppress(PermissionError):
        os.nice(-5)
    plan, timeline = load_plan(cluster), Timeline()
    report = LoadReport.for_targets(TIERS)
    watcher = Watcher(
        [str(cluster.kubectl_binary), "--kubeconfig", str(cluster.kubeconfig)], namespace=NAMESPACE, timeline=timeline
    )
    try:
        with Screen(timeline) as screen:
            asyncio.run(run(plan, report=report, on_second=screen.show))
        see_the_end(timeline)
    finally:
        watcher.stop()
    return report, timeline


def see_the_end(timeline: Timeline) -> None:
    """Watch on while Gold has more replicas than it needs: a stall of the machine begins its calm window anew."""
    until = time.monotonic() + END_SECONDS
    while checks.scaled(timeline, "gold") == (True, False) and time.monotonic() < until:
        time.sleep(1)


def series_of(report: LoadReport, tier: str, *, step: int = 5, width: int = 20) -> picture.Series:
    """The client's P99 over sliding windows of ``width`` seconds."""
    records = report.targets[tier]
    at = [float(t) for t in range(step, total_seconds() + 1, step)]
    columns: dict[str, list[float | None]] = {}
    for signal in ("ttft", "tpot"):
        values = [percentile(records.latencies(signal, since=t - width, until=t), 0.99) for t in at]
        columns[signal] = [None if v is None else v * 1000 for v in values]
    return picture.Series(at, columns["ttft"], columns["tpot"])


def verdict(cluster: Cluster, report: LoadReport, timeline: Timeline) -> list[Check]:
    """The demo's checks over what was seen."""
    resizes, slowest = checks.live_resizes(timeline, "gold")
    up, down = checks.scaled(timeline, "gold")
    audit = cluster.audit_log.read_text(encoding="utf-8").splitlines()
    cut = sum(report.targets[tier].count(Status.CUT) for tier in TIERS)
    return [
        checks.at_least("platinum_isolated", checks.attainment(report, "platinum"), 0.99),
        replace(
            checks.at_least("gold", checks.gold_after_its_step(report), 0.99),
            wanted=f">= 0.99 from {GOLD_RECOVERY_SECONDS} s after its step at the latest",
        ),
        checks.at_least("gold_live_resizes", resizes, 1),
        checks.at_most("max_apply_seconds", slowest, 5.0),
        checks.is_zero("pods_restarted", timeline.restarts()),
        checks.is_zero("streams_cut", cut),
        checks.is_true("gold_scaled_up", up),
        checks.is_true("gold_scaled_down", down),
        checks.is_true("final_conditions", checks.all_ready(timeline.tiers.values())),
        checks.is_zero("writes_to_spec", checks.writes_by_operator(audit, resource="servicetiers")),
        checks.is_zero("finalizers", checks.footprint(timeline.tiers.values())),
    ]


def summary(
    report: LoadReport, timeline: Timeline, results: list[Check], *, operator: str, began: float
) -> dict[str, Any]:
    return {
        "operator": operator,
        "passed": all(check.ok for check in results),
        "seconds": round(time.monotonic() - began, 1),
        "checks": {check.name: {"value": check.value, "wanted": check.wanted, "ok": check.ok} for check in results},
        "attainment": {tier: checks.attainment(report, tier) for tier in TIERS},
        "decisions": [asdict(mark) for mark in timeline.marks],
        "load": {name: records.summary() for name, records in report.targets.items()},
    }


def tell(result: dict[str, Any], out: Path) -> None:
    """The verdict, the whole run's attainments, and where to look next."""
    for name, check in result["checks"].items():
        print(f"  {'✓' if check['ok'] else '✗'} {name:20} {check['value']!s:>8}   wanted {check['wanted']}")
    whole = ", ".join(f"{tier} {share:.2%}" for tier, share in result["attainment"].items() if share is not None)
    print(f"  whole run, recovery included: {whole}")
    other = out.with_name("summary-off.json" if result["operator"] == "on" else "summary.json")
    if other.exists():
        before = json.loads(other.read_text(encoding="utf-8"))
        print(
            f"  Gold's attainment over the whole run: {result['attainment']['gold']:.2%} with the operator "
            f"{result['operator']}, {before['attainment']['gold']:.2%} with it {before['operator']}"
        )
    verdict = "PASSED" if result["passed"] else "FAILED"
    expected = ", as it must without the operator" if result["operator"] == "off" and not result["passed"] else ""
    print(f"{verdict}{expected} after {result['seconds']:.0f} s. Figures: {out}")
    print(f"Picture: {out.with_name(out.name.replace('summary', 'timeline')).with_suffix('.png')}")
    print("The cluster is up until make down: .venv/bin/python -m e2e.cluster kubectl get servicetiers -n llm")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.demo", description="The whole story, from an empty machine to a picture and a verdict."
    )
    parser.add_argument(
        "--operator", choices=("on", "off"), default="on", help="off: stop the operator before the traffic starts"
    )
    options = parser.parse_args(arguments)
    began, cluster = time.monotonic(), Cluster()
    try:
        prepare(cluster)
        if options.operator == "off":
            say("operator off: from here on nobody keeps the promises")
            cluster.kubectl("scale", "-n", OPERATOR_NAMESPACE, f"deployment/{RELEASE}", "--replicas=0")
        say(f"traffic: {total_seconds()} s of the Azure 2023 conversation trace")
        report, timeline = drive(cluster)
        if options.operator == "off":
            cluster.kubectl("scale", "-n", OPERATOR_NAMESPACE, f"deployment/{RELEASE}", "--replicas=1")
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = verdict(cluster, report, timeline)
    suffix = "" if options.operator == "on" else "-off"
    out = ROOT / f"build/demo/summary{suffix}.json"
    result = summary(report, timeline, results, operator=options.operator, began=began)
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    series = {tier: series_of(report, tier) for tier in TIERS}
    title = "Three tiers, one burst, one step" + ("" if options.operator == "on" else " (operator off)")
    picture.draw(series, timeline, title=title, out=ROOT / f"build/demo/timeline{suffix}.svg")
    tell(result, out)
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
