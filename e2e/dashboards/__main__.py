"""``python -m e2e.dashboards``: pictures of both dashboards after a demo, and their links in the docs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from e2e.cluster import Cluster
from e2e.dashboards.source import ROOT, Prometheus, Span, board, variables
from e2e.demo.story import NAMESPACE

PAGE = ROOT / "docs/metrics.md"
IMAGES = ROOT / "docs/images"
START, END = "<!-- pictures: `python -m e2e.dashboards` writes these lines -->", "<!-- end of pictures -->"

LINKS = """The two dashboards after `make demo`, drawn by `python -m e2e.dashboards` from their own panels and
queries over the demo's Prometheus; Grafana draws the same figures in its own hand. What is left of the error
budget is not known yet there: one of 30 days is counted in steps of 15 minutes.

![The fleet: every tier's promise, burn, budget and levers](images/dashboard-fleet.png)

![One tier: latencies and targets, where the time goes, levers, load, conditions](images/dashboard-tier.png)"""


def with_links(page: str) -> str:
    """The page with the pictures between its two marks. Raises ValueError where they are not there."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page has no place between {START} and {END}")
    return f"{before}{START}\n\n{LINKS}\n\n{END}{after}"


def pictures(source: Prometheus, chosen: Mapping[str, str], span: Span, images: Path, *, note: str, dpi: int) -> None:
    """Write dashboard-fleet.png and dashboard-tier.png. Raises RuntimeError where Prometheus refuses a query."""
    from e2e.dashboards.drawing import draw  # here: matplotlib takes a second to load

    for name in ("fleet", "tier"):
        dashboard = board(name)
        known = variables(dashboard, chosen)
        about = (
            f"{chosen['namespace']}/{chosen['tier']}, {note}" if name == "tier" else f"{chosen['namespace']}, {note}"
        )
        out = images / f"dashboard-{name}.png"
        answers = partial(source.answers, known=known, span=span)
        draw(dashboard, answers, span=span, subtitle=about, out=out, dpi=dpi)
        print(f"{out}: {len(dashboard['panels'])} panels")


def of_the_local_cluster() -> str:
    """Address of the Prometheus that the demo has left in the local cluster."""
    service = json.loads(Cluster().kubectl("-n", "monitoring", "get", "service", "prometheus", "-o", "json"))
    return f"http://{service['spec']['clusterIP']}:9090"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.dashboards", description="Draw both dashboards as a demo has left them."
    )
    parser.add_argument(
        "--prometheus", metavar="URL", help="default: that of the local cluster, as `make demo` leaves it"
    )
    parser.add_argument("--namespace", default=NAMESPACE)
    parser.add_argument("--tier", default="gold")
    parser.add_argument("--minutes", type=float, default=6.0, help="how far back the pictures reach (default: 6)")
    parser.add_argument("--end", type=float, default=time.time(), metavar="UNIX_SECONDS", help="default: now")
    parser.add_argument("--out", type=Path, help="a folder; default: docs/images, and the links in docs/metrics.md too")
    parser.add_argument("--note", default="", help="one more word under the titles, such as where the data is from")
    given = parser.parse_args()
    span = Span(given.end - 60 * given.minutes, given.end)
    note = given.note or f"{given.minutes:g} minutes to {datetime.fromtimestamp(span.end, UTC):%Y-%m-%d %H:%M} UTC"
    chosen = {"namespace": given.namespace, "tier": given.tier}
    source = Prometheus(given.prometheus or of_the_local_cluster())
    pictures(source, chosen, span, given.out or IMAGES, note=note, dpi=75)
    if given.out is None:
        PAGE.write_text(with_links(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{PAGE}: links")


if __name__ == "__main__":
    main()
