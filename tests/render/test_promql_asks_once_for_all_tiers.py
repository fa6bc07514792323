"""The queries as text: one golden file, and the properties that make their answers right."""

import re
from pathlib import Path

import pytest

from tierkeeper.render.promql import Query, queries
from tierkeeper.slo.burn import BurnPair, Windows
from tierkeeper.slo.signals import MetricLabels, Signal, SignalKind

GOLDEN = Path(__file__).parents[1] / "golden/promql"
LABELS = MetricLabels()
ALL = queries(LABELS, budget_days=(30,))
SELECTOR = re.compile(r"vllm:\w+\{[^}]*\}")


def by_signal(kind: SignalKind, window: int = 0) -> str:
    return next(q.promql for q in ALL if q.signal == Signal(kind, window))


def written(asked: tuple[Query, ...]) -> str:
    return "".join(
        f"# {q.signal}, every {q.every_seconds:g} s{', optional' if q.optional else ''}\n{q.promql}\n\n" for q in asked
    )


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("default.promql", LABELS),
        (
            "other_labels.promql",
            MetricLabels(namespace="exported_namespace", tier="tierkeeper_dev_tier", pod="pod_name"),
        ),
    ],
)
def test_the_queries_are_the_golden_ones(name, labels):
    assert written(queries(labels, budget_days=(30, 7))) == (GOLDEN / name).read_text()


def test_each_signal_is_asked_for_once_however_many_tiers_there_are():
    assert len({q.signal for q in ALL}) == len(ALL)
    assert len(queries(LABELS, budget_days=(30, 30, 7))) == len(ALL) + 2


def test_only_the_tier_label_selects():
    """M11, M13: no model name enters a query, whatever characters it holds; the pods' tier label finds the series."""
    for query in ALL:
        for selector in SELECTOR.findall(query.promql):
            assert selector.endswith('{tier!=""}')


def test_m08_copies_of_a_series_are_merged_before_anything_is_summed():
    copies = "max by (namespace, tier, pod, engine, model_name"
    for query in ALL:
        if query.signal.kind is not SignalKind.SAMPLE_AGE:
            assert query.promql.count(copies) == len(SELECTOR.findall(query.promql))


def test_m19_rates_are_taken_from_each_series_before_the_sum():
    for query in ALL:
        assert not re.search(r"(rate|increase)\((sum|max|avg)", query.promql)


def test_m21_the_engines_of_a_pod_are_summed_and_their_cache_use_averaged():
    assert by_signal(SignalKind.RUNNING).startswith("sum by (namespace, tier, pod) (max by (")
    assert by_signal(SignalKind.KV_CACHE_USAGE).startswith("avg by (namespace, tier, pod) (max by (")


def test_m22_no_query_names_a_bucket_edge():
    assert not any(re.search(r"\ble\s*(=|!)", q.promql) for q in ALL)


def test_m18_no_counter_is_read_as_it_stands():
    for query in ALL:
        bare = re.findall(
            r"(?<!rate\()(?<!increase\()(?<!increase\(\()vllm:\w+_(?:total|count|sum|bucket)\{", query.promql
        )
        assert bare == []


def test_m17_error_ratios_come_from_the_buckets_of_one_family_each():
    assert "request_success" not in by_signal(SignalKind.TTFT_BUCKETS, 300)
    assert set(re.findall(r"vllm:\w+_bucket", by_signal(SignalKind.TTFT_BUCKETS, 300))) == {
        "vllm:time_to_first_token_seconds_bucket"
    }


def test_m02_no_query_divides():
    """0/0 is NaN; sums and counts come side by side instead."""
    assert not any(re.search(r"\)\s*/\s*", q.promql) for q in ALL)


def test_m09_m10_every_name_of_tpot_is_asked_for():
    asked = by_signal(SignalKind.TPOT_BUCKETS, 60)
    for name in ("request_time_per_output_token", "inter_token_latency", "time_per_output_token"):
        assert f"vllm:{name}_seconds_bucket" in asked


def test_m09_the_cache_gauge_has_its_older_name_to_fall_back_to():
    assert re.search(r"vllm:kv_cache_usage_perc.* or .*vllm:gpu_cache_usage_perc", by_signal(SignalKind.KV_CACHE_USAGE))


def test_t13_freshness_is_measured_on_prometheus_clock_alone():
    age = by_signal(SignalKind.SAMPLE_AGE)
    assert age == 'time() - max by (namespace, tier, pod) (timestamp(vllm:num_requests_running{tier!=""}))'
    assert not any("@" in q.promql for q in ALL)


def test_m24_a_nan_sample_is_left_out_of_the_period():
    budget = next(q for q in ALL if q.signal.window_seconds == 30 * 86400)
    assert ">= 0)[2592000s:900s]" in budget.promql


def test_the_budget_may_fail_and_is_asked_for_rarely():
    slow = {
        q.signal.window_seconds: (q.every_seconds, q.optional) for q in ALL if q.signal.kind is SignalKind.TTFT_BUCKETS
    }
    assert slow == {
        60: (0.0, False),
        300: (0.0, False),
        1800: (30.0, False),
        21600: (360.0, False),
        2592000: (600.0, True),
    }


def test_a_budget_of_thirty_days_stays_below_three_thousand_points_a_series():
    for days in (2, 7, 28, 30, 90):
        seconds = days * 86400
        text = next(q.promql for q in queries(LABELS, budget_days=(days,)) if q.signal.window_seconds == seconds)
        step = int(re.search(rf"\[{seconds}s:(\d+)s\]", text)[1])
        assert step >= 60
        assert seconds / step <= 3_000


def test_the_windows_are_an_argument():
    asked = queries(LABELS, windows=Windows((BurnPair(4, 8, 6.0),)))
    assert {q.signal.window_seconds for q in asked} == {0, 4, 8}


def test_a_query_fits_a_url():
    """The longest one, percent-encoded, stays below the 8 KiB that common proxies allow for a request line."""
    from urllib.parse import quote_plus

    assert max(len(quote_plus(q.promql)) for q in ALL) < 8000
