"""A wrong value is refused before anything is sent, in a line that names it."""

from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("unknown top-level value", {"prometheusUrl": "http://p:9090"}, "prometheusUrl"),
    ("unknown nested value", {"image": {"name": "x"}}, "name"),
    ("url without a scheme", {"prometheus": {"url": "prometheus:9090"}}, "url"),
    ("scrape interval as text", {"prometheus": {"scrapeIntervalSeconds": "15s"}}, "scrapeIntervalSeconds"),
    ("scrapes too rare for a window", {"prometheus": {"scrapeIntervalSeconds": 30}}, "scrapeIntervalSeconds"),
    ("tick of zero seconds", {"tickSeconds": 0}, "tickSeconds"),
    ("unknown log format", {"log": {"format": "xml"}}, "format"),
    ("namespaces as one string", {"watch": {"namespaces": "llm"}}, "namespaces"),
    ("namespace that cannot exist", {"watch": {"namespaces": ["LLM"]}}, "namespaces"),
    ("the same namespace twice", {"watch": {"namespaces": ["llm", "llm"]}}, "namespaces"),
    ("pull policy in lower case", {"image": {"pullPolicy": "always"}}, "pullPolicy"),
    ("label that is no string", {"podLabels": {"team": 7}}, "team"),
]


@pytest.mark.parametrize(("values", "named"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_value_is_refused_by_name(values: dict[str, Any], named: str, render: Any) -> None:
    done = render(values)
    assert done.returncode != 0
    assert done.stdout == ""
    assert named in done.stderr
    assert "schema" in done.stderr


def test_query_timeout_above_the_tick_is_refused_with_both_numbers(render: Any) -> None:
    """The operator would refuse it at start, as a crash loop; Helm says it first."""
    done = render({"tickSeconds": 3})
    assert done.returncode != 0
    assert "prometheus.timeoutSeconds (5) must be below tickSeconds (3)" in done.stderr
