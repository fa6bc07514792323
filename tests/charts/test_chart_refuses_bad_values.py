"""A wrong value is refused before anything is sent, in a line that names it."""

from typing import Any

import pytest

from tests.charts.test_chart_files_agree import values

pytestmark = [pytest.mark.built, pytest.mark.timeout(1800)]

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("unknown top-level value", {"prometheusUrl": "http://p:9090"}, "prometheusUrl"),
    ("unknown nested value", {"image": {"name": "x"}}, "name"),
    ("digest without its algorithm", {"image": {"digest": "0123"}}, "/image/digest"),
    ("digest in the repository", {"image": {"repository": "r.example/t@sha256:0"}}, "/image/repository"),
    ("tag in the repository", {"image": {"repository": "r.example:5000/t:1"}}, "/image/repository"),
    ("capitals in the repository", {"image": {"repository": "Team/Operator"}}, "/image/repository"),
    ("url without a scheme", {"prometheus": {"url": "prometheus:9090"}}, "url"),
    ("scrape interval as text", {"prometheus": {"scrapeIntervalSeconds": "15s"}}, "scrapeIntervalSeconds"),
    ("scrapes too rare for a window", {"prometheus": {"scrapeIntervalSeconds": 30}}, "scrapeIntervalSeconds"),
    ("metric label with a dash", {"prometheus": {"labels": {"tier": "the-tier"}}}, "/prometheus/labels/tier"),
    ("tick of zero seconds", {"tickSeconds": 0}, "tickSeconds"),
    (
        "password in the collector's address",
        {"tracing": {"endpoint": "https://me:pw@otlp.example"}},
        "/tracing/endpoint",
    ),
    ("collector without a scheme", {"tracing": {"endpoint": "collector:4318"}}, "/tracing/endpoint"),
    ("unknown log format", {"log": {"format": "xml"}}, "format"),
    ("namespaces as one string", {"watch": {"namespaces": "llm"}}, "namespaces"),
    ("namespace that cannot exist", {"watch": {"namespaces": ["LLM"]}}, "namespaces"),
    ("the same namespace twice", {"watch": {"namespaces": ["llm", "llm"]}}, "namespaces"),
    ("pull policy in lower case", {"image": {"pullPolicy": "always"}}, "pullPolicy"),
    ("label that is no string", {"podLabels": {"team": 7}}, "team"),
    ("label with a blank", {"commonLabels": {"team": "llm serving"}}, "/commonLabels/team"),
    (
        "peer that Kubernetes does not know",
        {"networkPolicy": {"pools": {"fromPeers": [{"namespace": "a"}]}}},
        "fromPeers",
    ),
    ("no peer is Prometheus", {"networkPolicy": {"prometheus": {"peers": []}}}, "/networkPolicy/prometheus/peers"),
    ("address without a mask", {"networkPolicy": {"operator": {"apiServerCIDRs": ["10.0.0.1"]}}}, "apiServerCIDRs/0"),
    ("no port of the API server", {"networkPolicy": {"operator": {"apiServerPorts": []}}}, "apiServerPorts"),
    ("budget that blocks every drain", {"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
    ("budget of no percent", {"podDisruptionBudget": {"maxUnavailable": "0%"}}, "maxUnavailable"),
    ("priority beyond Kubernetes' own", {"priorityClasses": {"classes": {"gold": 2000000000}}}, "gold"),
    ("class that cannot be a name", {"priorityClasses": {"classes": {"Gold!": 1}}}, "Gold!"),
    ("no replica", {"replicas": 0}, "/replicas"),
    ("lease of zero seconds", {"leaderElection": {"leaseDurationSeconds": 0}}, "/leaderElection/leaseDurationSeconds"),
    ("root", {"runAsUser": 0}, "/runAsUser"),
]


@pytest.mark.parametrize(("values", "named"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_value_is_refused_by_name(values: dict[str, Any], named: str, render: Any) -> None:
    done = render(values)
    assert done.returncode != 0
    assert done.stdout == ""
    assert named in done.stderr
    assert "schema" in done.stderr


def wrong(default: object) -> object:
    """Something of another type than the default."""
    match default:
        case bool() | int():
            return ["wrong"]
        case str():
            return {"wrong": True}
    return "wrong"


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split(".")
        at = tree
        for part in parents:
            at = at.setdefault(part, {})
        at[last] = value
    return tree


def test_every_value_of_a_wrong_type_is_named_in_one_answer(render: Any) -> None:
    """All at once: a person sees every mistake in the first attempt."""
    everything = values()
    done = render(nested({name: wrong(default) for name, default in everything.items()}))
    assert done.returncode != 0
    assert done.stdout == ""
    missed = [name for name in everything if f"'/{name.replace('.', '/')}'" not in done.stderr]
    assert missed == []


def test_a_value_taken_away_is_named_and_never_an_error_of_a_template(render: Any) -> None:
    """As `null` does, and `helm upgrade --reuse-values` from a chart that did not have the value yet."""
    taken = {name: None for name in values() if name != "runAsUser"}
    done = render(nested(taken))
    assert done.returncode != 0
    missed = [name for name in taken if f"'{name.rpartition('.')[2]}'" not in done.stderr]
    assert missed == []
    assert "nil pointer" not in done.stderr


def test_query_timeout_above_the_tick_is_refused_with_both_numbers(render: Any) -> None:
    """The operator would refuse it at start, as a crash loop; Helm says it first."""
    done = render({"tickSeconds": 3})
    assert done.returncode != 0
    assert "prometheus.timeoutSeconds (5) must be below tickSeconds (3)" in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"replicas": 2}, "replicas (2) above 1 need leaderElection.enabled=true"),
        (
            {"leaderElection": {"renewDeadlineSeconds": 13}},
            "renewDeadlineSeconds (13) must be at most 4/5 of leaderElection.leaseDurationSeconds (15)",
        ),
        (
            {"leaderElection": {"retryPeriodSeconds": 6}},
            "retryPeriodSeconds (6) must be at most half of leaderElection.renewDeadlineSeconds (10)",
        ),
    ],
)
def test_what_would_let_two_operators_act_is_refused_with_its_numbers(
    given: dict[str, Any], said: str, render: Any
) -> None:
    done = render(given)
    assert done.returncode != 0
    assert said in done.stderr


def test_policies_for_pools_need_their_namespaces(render: Any) -> None:
    done = render({"networkPolicy": {"pools": {"enabled": True}}})
    assert done.returncode != 0
    assert "name the namespaces of the tiers in networkPolicy.pools.namespaces" in done.stderr
