"""The dashboards' pictures: every panel's query is asked as Grafana would, and every panel is drawn."""

import pytest

from e2e.dashboards import __main__ as command
from e2e.dashboards.source import Prometheus, Series, Span, board, filled, variables
from e2e.dashboards.table import cells
from e2e.dashboards.units import shown
from tests.fakes.prometheus_server import api_error, as_json, serving, vector

SPAN = Span(1_790_000_000.0, 1_790_000_060.0)
CHOSEN = {"namespace": "llm", "tier": "gold"}
PANELS = [(name, panel) for name in ("fleet", "tier") for panel in board(name)["panels"]]


@pytest.fixture
def prometheus():
    """Whatever is asked, one tier answers: a number now, and a ramp with a gap over time."""
    labels = {
        "tier_namespace": "llm",
        "tier": "gold",
        "slo": "TTFT",
        "state": "ready",
        "type": "MetricsAvailable",
        "reason": "QueueBoundAddReplicas",
        "kind": "PodDisruptionBudget",
    }
    points = [[SPAN.start + 5 * k, str(k / 10)] for k in range(13) if k != 6]
    ranged = as_json(
        {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": labels, "values": points}]}}
    )
    with serving() as fake:
        fake.answer = lambda asked: ranged if asked.path.endswith("range") else vector((labels, "0.5"), at=SPAN.end)
        yield fake


@pytest.fixture
def drawn(monkeypatch):
    """Draws a dashboard and gives the figure. Loads matplotlib, a second that no other test has to wait for."""
    from e2e.dashboards import drawing

    figures = []
    monkeypatch.setattr(drawing.plt, "close", figures.append)

    def draw(dashboard, answers, out):
        drawing.draw(dashboard, answers, span=SPAN, subtitle="", out=out, dpi=20)
        return figures[-1]

    return draw


def _within(page, box):
    return page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1


def wanted(panel, known):
    return [filled(target["expr"], known) for target in panel.get("targets", ())]


@pytest.mark.parametrize("name", ["fleet", "tier"])
def test_each_panel_stands_in_the_picture_with_what_prometheus_answered(name, prometheus, tmp_path, drawn):
    dashboard = board(name)
    known = variables(dashboard, CHOSEN)
    source = Prometheus(prometheus.url)
    out = tmp_path / "picture.png"
    figure = drawn(dashboard, lambda panel: source.answers(panel, known, SPAN), out)
    assert out.read_bytes().startswith(b"\x89PNG")
    boxes = {axes.get_title(loc="left"): axes for axes in figure.axes}
    shown_panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert set(boxes) == {panel["title"] for panel in shown_panels}
    assert all(axes.texts or axes.lines or axes.collections for axes in boxes.values())
    page = figure.bbox
    cut = [title for title, axes in boxes.items() if not _within(page, axes.get_tightbbox())]
    assert cut == []
    asked = [(r.path, r.query) for r in prometheus.requests]
    assert sorted(query for _, query in asked) == sorted(q for panel in shown_panels for q in wanted(panel, known))
    instant = {filled(t["expr"], known) for p in shown_panels for t in p["targets"] if t.get("instant")}
    assert {query for path, query in asked if path.endswith("/query")} == instant


def test_a_range_is_asked_for_the_time_that_is_shown(prometheus):
    panel = {"targets": [{"expr": "up", "refId": "A"}]}
    (series,) = Prometheus(prometheus.url).answers(panel, {}, SPAN)
    params = prometheus.requests[0].params
    assert (params["start"], params["end"], params["step"]) == ([f"{SPAN.start}"], [f"{SPAN.end}"], ["5.0"])
    assert len(series.values) == 12


def test_a_refused_query_is_told_with_prometheus_own_words(prometheus):
    prometheus.answer = lambda _: api_error(400, "bad_data", "parse error: unexpected end")
    with pytest.raises(RuntimeError, match=r"up: .*unexpected end"):
        Prometheus(prometheus.url).answers({"targets": [{"expr": "up", "refId": "A"}]}, {}, SPAN)


def test_a_variable_without_a_value_is_not_sent():
    with pytest.raises(KeyError, match="pod"):
        filled('x{pod="$pod"}', {})
    assert filled("{{${pod_label}}} $__rate_interval", variables(board("tier"), CHOSEN)) == "{{pod}} 1m"


def test_a_panel_without_an_answer_says_so(tmp_path, drawn):
    figure = drawn(board("fleet"), lambda _: [], tmp_path / "empty.png")
    assert {text.get_text() for axes in figure.axes for text in axes.texts} == {"No data"}


def test_the_table_joins_the_answers_of_a_tier_and_colors_them_by_their_thresholds():
    panel = next(panel for _, panel in PANELS if panel["type"] == "table")

    def answer(ref, value, **labels):
        return Series("", {"tier_namespace": "llm", **labels}, ref, (0.0,), (value,))

    head, rows = cells(
        panel,
        [
            answer("A", 1.0, tier="gold"),
            answer("B", 0.4, tier="gold"),
            answer("A", 0.0, tier="batch"),
            answer("B", 7.0, tier="batch"),
            answer("D", 0.2, tier="gold"),
            answer("K", 1.0, tier="gold", reason="Steady"),
        ],
    )
    assert head == ["Namespace", "Tier", "SLOs met", "Burn, 5 min", "TTFT P99", "Decision"]
    assert [[text for text, _ in row] for row in rows] == [
        ["llm", "batch", "missed or unknown", "7x", "", ""],
        ["llm", "gold", "kept", "0.4x", "200 ms", "Steady"],
    ]
    assert rows[0][3][1] != rows[1][3][1]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.412, "s", "412 ms"),
        (2.5, "s", "2.5 s"),
        (0.43, "percentunit", "43%"),
        (3 * 2**20, "bytes", "3 MiB"),
        (1.5, "suffix:x", "1.5x"),
        (2.0, "reqps", "2 req/s"),
        (12_000.0, "short", "12 K"),
        (3.0, None, "3"),
    ],
)
def test_values_are_written_with_their_units(value, unit, text):
    assert shown(value, unit) == text


def test_the_links_stand_where_the_page_wants_them_and_once():
    page = command.PAGE.read_text()
    linked = command.with_links(page)
    assert command.with_links(linked) == linked
    assert linked.index(command.START) < linked.index("images/dashboard-fleet.png") < linked.index(command.END)
    with pytest.raises(ValueError, match="no place between"):
        command.with_links("nothing here")


def test_the_command_writes_both_pictures(prometheus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("e2e.dashboards.drawing.draw", lambda *_, out, **__: out.write_bytes(b"png"))
    monkeypatch.setattr("sys.argv", ["dashboards", "--prometheus", prometheus.url, "--out", str(tmp_path)])
    command.main()
    assert {path.name for path in tmp_path.iterdir()} == {"dashboard-fleet.png", "dashboard-tier.png"}
    assert "panels" in capsys.readouterr().out
