"""The dashboards are what Grafana takes, and each of their queries names what there is."""

import itertools
import re
import subprocess

import pytest
import yaml

from e2e import tools
from e2e.dashboards.source import constants
from tests import fast_yaml
from tests.obs.dashboards import (
    DASHBOARDS,
    RULES,
    SCRAPED,
    engine_metrics,
    load,
    named,
    own_metrics,
    panel_queries,
)
from tierkeeper.api.conditions import ConditionReason, ConditionStatus, ConditionType
from tierkeeper.obs.tiers import window_label
from tierkeeper.scaling.model import Reason
from tierkeeper.slo.burn import CONTROL_WINDOWS
from tierkeeper.slo.model import SignalState, Sli

BOARDS = {path.stem: load(path) for path in DASHBOARDS}
QUERIES = [query for path in DASHBOARDS for query in panel_queries(path)]
ALL_RULES = [rule for group in fast_yaml.load(RULES.read_text())["groups"] for rule in group["rules"]]
RULE_EXPRESSIONS = [rule["expr"] for rule in ALL_RULES]
RECORDED = {rule["record"] for rule in ALL_RULES if "record" in rule}
OF_GRAFANA = {"__rate_interval", "__data", "__value", "__url_time_range"}
ANY = {"namespace": "llm", "tier": "gold", "namespace_label": "namespace", "tier_label": "tier", "pod_label": "pod"}

VALUES = {
    "window": {window_label(seconds) for seconds in CONTROL_WINDOWS.seconds},
    "type": set(ConditionType),
    "status": set(ConditionStatus),
    "reason": {*ConditionReason, *Reason},
    "slo": set(Sli),
    "state": {"desired", "set", "applied", "ready", "starting", "unschedulable", "failing", *SignalState},
    "result": {"ok", "error"},
    "quantile": {"0.5", "0.95", "0.99"},
}


def test_there_is_one_for_the_fleet_and_one_for_a_tier():
    assert set(BOARDS) == {"fleet", "tier"}
    assert {board["uid"] for board in BOARDS.values()} == {"tierkeeper-fleet", "tierkeeper-tier"}


def test_every_query_parses(tmp_path):
    """As recording rules, since promtool parses those without a server."""
    rules = [{"record": "a:query", "expr": query.filled(ANY)} for query in QUERIES]
    for place, rule in enumerate(rules):
        rule["labels"] = {"place": str(place)}
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool = tools.debian_prometheus().parent / "promtool"
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("expr", [*dict.fromkeys(q.filled(ANY) for q in QUERIES), *RULE_EXPRESSIONS])
def test_a_query_names_only_what_there_is(expr):
    known = own_metrics() | engine_metrics() | {name: {"tier_namespace", "tier", "slo"} for name in RECORDED}
    series = list(named(expr))
    assert series
    for name, labels in series:
        assert name in known
        assert set(labels) <= known[name] | SCRAPED


@pytest.mark.parametrize("expr", [*dict.fromkeys(q.filled(ANY) for q in QUERIES), *RULE_EXPRESSIONS])
def test_a_query_selects_only_by_values_that_there_are(expr):
    for label, value in re.findall(r'(\w+)!?="([^"]+)"', expr):
        assert value in VALUES.get(label, {value})


def test_the_operators_series_are_never_counted_twice_while_two_of_its_pods_are_known():
    """An old pod's series live on for minutes: a gauge is read as a maximum or minimum, never bare."""
    gauge = re.compile(r"(?<!\()\btierkeeper_(?!ticks|decisions|reconciles|writes|query_errors|\w+_bucket)\w+")
    for query in QUERIES:
        assert not gauge.search(query.expr), query


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_have_their_own_ids_and_do_not_overlap(board):
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in board["panels"])
        for x, y in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_panel_asks_the_chosen_data_source_and_says_what_it_shows(board):
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith(".")
        asked = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {(source["type"], source["uid"]) for source in asked} == {("prometheus", "${datasource}")}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_variable_that_is_used_is_defined(board):
    defined = {variable["name"] for variable in board["templating"]["list"]}
    text = str(board["panels"])
    used = set(re.findall(r"\$\{?([a-z_]\w*)", text)) - OF_GRAFANA
    assert used <= defined
    assert set(constants(board)) <= used
    assert board["templating"]["list"][0]["type"] == "datasource"


def test_the_dashboards_link_to_each_other():
    uids = {board["uid"] for board in BOARDS.values()}
    for board in BOARDS.values():
        links = set(re.findall(r"/d/([\w-]+)", str(board)))
        assert links == uids - {board["uid"]}


def test_m23_no_panel_and_no_rule_knows_a_bucket_edge():
    """A target may be any number of milliseconds: what a panel shows comes from the operator, not from a bucket."""
    asked = [query.expr for query in QUERIES] + [rule["expr"] for rule in ALL_RULES]
    assert [expr for expr in asked if re.search(r"\ble\s*=", expr)] == []
