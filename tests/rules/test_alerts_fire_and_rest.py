"""Every alert fires where it should and rests where it should not, and its page says what to do."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

from e2e import tools
from tests import fast_yaml
from tests.obs.dashboards import ROOT, RULES, SCRAPED, engine_metrics, named, own_metrics
from tierkeeper.api.conditions import ConditionReason, ConditionType
from tierkeeper.scaling.model import Reason
from tierkeeper.tier import Mode

HERE = Path(__file__).parent
RUNBOOKS = ROOT / "docs/runbooks"
PAGES = sorted(page for page in RUNBOOKS.glob("*.md") if page.stem != "README")
MODES = set(Mode)
BASE = "docs/runbooks"
STORIES = sorted(HERE.glob("*.yaml"))

GROUPS = fast_yaml.load(RULES.read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
RECORDED = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}


@pytest.fixture(scope="module", params=["debian-prometheus-2", pytest.param("prometheus-3", marks=pytest.mark.built)])
def promtool(request):
    """The oldest release that is supported, and the one of the local cluster: that one may have to be built first."""
    return tools.promtool() if request.param == "prometheus-3" else tools.debian_prometheus().parent / "promtool"


def checked(promtool, *arguments):
    environment = os.environ | {"GOGC": "400"}  # it is soon gone: a fifth of its work would be to collect garbage
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_rules(promtool):
    checked(promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES)


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_stories_hold(promtool, story):
    checked(promtool, "test", "rules", story)


@cache
def expectations():
    """Alert and whether it is expected to fire, of every story."""
    tests = [test for story in STORIES for test in fast_yaml.load(story.read_text())["tests"]]
    checks = [check for test in tests for check in test.get("promql_expr_test", ())]
    return [(check["expr"].split('"')[1], bool(check["exp_samples"])) for check in checks]


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_story_in_which_it_fires_and_one_in_which_it_rests(alert):
    assert {fires for name, fires in expectations() if name == alert} == {True, False}


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_tells_how_bad_it_is_what_it_is_and_where_to_read_on(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["for"]
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{BASE}/{alert}.md"
    assert len(rule["annotations"]["summary"]) < 100


@pytest.mark.parametrize("alert", [name for name in ALERTS if not name.startswith(("TierkeeperOp", "TierkeeperLoop"))])
def test_an_alert_of_a_tier_is_routed_by_the_tiers_namespace(alert):
    assert ALERTS[alert]["labels"]["namespace"] == "{{ $labels.tier_namespace }}"


def test_each_alert_has_its_runbook_and_each_runbook_its_alert():
    assert {page.stem for page in PAGES} == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_says_what_it_means_what_to_look_at_and_what_to_do(alert):
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## What it means",
        "## What to look at",
        "## What to do",
    ]
    assert "kubectl " in text
    assert "```promql" in text


def test_the_list_of_runbooks_names_each_with_its_severity():
    text = (RUNBOOKS / "README.md").read_text()
    for alert, rule in ALERTS.items():
        assert f"| [{alert}]({alert}.md) | {rule['labels']['severity']} |" in text


def queries_of(page):
    return re.findall(r"```promql\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_queries_of_a_runbook_name_only_what_there_is(page):
    known = own_metrics() | engine_metrics() | {name: {"tier_namespace", "tier", "slo"} for name in RECORDED}
    for block in queries_of(page):
        for expr in block.splitlines():
            for name, labels in named(expr):
                assert name in known
                assert set(labels) <= known[name] | SCRAPED


def test_the_queries_of_the_runbooks_parse(promtool, tmp_path):
    lines = [line for page in PAGES for block in queries_of(page) for line in block.splitlines()]
    rules = [{"record": "a:query", "expr": line, "labels": {"place": str(at)}} for at, line in enumerate(lines)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    checked(promtool, "check", "rules", file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_runbook_names_only_reasons_that_there_are(page):
    words = {word for word in re.findall(r"`([A-Z][A-Za-z]+)`", page.read_text()) if word not in MODES}
    assert words <= {*ConditionReason, *ConditionType, *Reason}
