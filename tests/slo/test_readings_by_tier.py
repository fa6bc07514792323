"""Taking the answers apart: whose figure it is, copies, spellings of an edge, names of a family."""

from math import inf, isnan, nan

import pytest

from tests.slo.world import GOLD, ITL, LABELS, OLD_TPOT, REQUEST_TPOT, Pod, Pool, look
from tierkeeper.slo.model import Sample, Sli
from tierkeeper.slo.readings import group
from tierkeeper.slo.signals import MetricLabels, Signal, SignalKind
from tierkeeper.tier import TierKey

CONTROL = (60, 300, 1800, 21600)
TPOT = SignalKind.TPOT_BUCKETS


def tpot_of(pool):
    return group(pool.answers(), LABELS)[pool.key].histograms(Sli.TPOT, control=CONTROL)


def counts(window):
    return dict(zip(window.histogram.edges, window.histogram.counts, strict=True))


def test_one_answer_holds_all_tiers_and_namespaces():
    silver = TierKey(namespace="llm", name="silver")
    other = TierKey(namespace="lab", name="gold")
    answers = {}
    for key, running in ((GOLD, 1.0), (silver, 2.0), (other, 3.0)):
        for signal, samples in Pool(key=key, pods={"p": Pod(running=running)}).answers().items():
            answers.setdefault(signal, []).extend(samples)
    found = group(answers, LABELS)
    assert {key: r.pods[SignalKind.RUNNING]["p"] for key, r in found.items()} == {GOLD: 1.0, silver: 2.0, other: 3.0}


def test_the_labels_are_settings():
    labels = MetricLabels(namespace="kubernetes_namespace", tier="tierkeeper_dev_tier", pod="pod_name")
    sample = Sample({"kubernetes_namespace": "llm", "tierkeeper_dev_tier": "gold", "pod_name": "p"}, 7.0, 1.0)
    found = group({Signal(SignalKind.RUNNING): [sample]}, labels)
    assert found[GOLD].pods[SignalKind.RUNNING] == {"p": 7.0}


def test_a_sample_without_tier_or_namespace_belongs_to_nobody():
    samples = [Sample({"namespace": "llm"}, 1.0, 1.0), Sample({"tier": "gold", "pod": "p"}, 1.0, 1.0)]
    assert group({Signal(SignalKind.RUNNING): samples}, LABELS) == {}


def test_m08_a_copy_of_a_series_does_not_count_twice():
    """Should copies of a scraping pair reach us after all, differing in a label nobody asked for."""
    pool = Pool(pods={"a": Pod(running=6)}).ttft({"1.0": 380.0, "2.5": 400.0, "+Inf": 400.0})
    twice = {
        signal: [Sample({**s.labels, "prometheus_replica": r}, s.value, s.at) for s in samples for r in ("a", "b")]
        for signal, samples in pool.answers().items()
    }
    assert group(twice, LABELS) == group(pool.answers(), LABELS)


def test_a_nan_beside_a_number_is_not_hidden():
    labels = {"namespace": "llm", "tier": "gold", "pod": "p"}
    for pair in ((nan, 3.0), (3.0, nan)):
        found = group({Signal(SignalKind.RUNNING): [Sample(labels, v, 1.0) for v in pair]}, LABELS)
        assert isnan(found[GOLD].pods[SignalKind.RUNNING]["p"])


@pytest.mark.parametrize("edge", ["1", "1.0"])
def test_m22_an_edge_is_found_in_either_spelling(edge):
    """Prometheus 3 writes le="1.0", Prometheus 2 what the target wrote."""
    seen = look(Pool().ttft({"0.5": 380.0, edge: 388.0, "2.5": 400.0, "+Inf": 400.0})).ttft
    assert seen.boundary_aligned
    assert seen.window(300).ratio.point == pytest.approx(0.03)


def test_m22_halves_of_one_edge_in_two_spellings_are_added():
    pool = Pool().histogram(
        SignalKind.TTFT_BUCKETS,
        "vllm:time_to_first_token_seconds",
        {"1": 194.0, "1.0": 194.0, "+Inf": 400.0},
        (60, 300),
        series={"1": 1, "1.0": 1, "+Inf": 2},
    )
    assert look(pool).ttft.window(300).ratio.point == pytest.approx(0.03)


def test_unlike_edge_sets_are_never_summed():
    """One of two pods already has an edge at the target: until the other has it, the bracket is what is known."""
    pool = Pool().histogram(
        SignalKind.TTFT_BUCKETS,
        "vllm:time_to_first_token_seconds",
        {"0.75": 380.0, "1.0": 195.0, "2.5": 396.0, "+Inf": 400.0},
        (60, 300),
        series={"0.75": 2, "1.0": 1, "2.5": 2, "+Inf": 2},
    )
    seen = look(pool).ttft
    assert not seen.boundary_aligned
    assert seen.nearest_aligned_seconds == (0.75, 2.5)
    assert (seen.window(300).ratio.lower, seen.window(300).ratio.upper) == pytest.approx((0.01, 0.05))


def test_m09_requests_are_preferred_to_tokens_and_the_family_is_named():
    pool = Pool().tpot({"0.1": 400.0, "+Inf": 400.0}).tpot({"0.1": 70000.0, "+Inf": 80000.0}, family=ITL)
    assert tpot_of(pool)[300].metric == REQUEST_TPOT
    assert counts(tpot_of(pool)[300]) == {0.1: 400.0, inf: 400.0}


@pytest.mark.parametrize("family", [ITL, OLD_TPOT])
def test_m09_without_the_preferred_family_the_next_one_is_used(family):
    assert tpot_of(Pool().tpot({"0.1": 70000.0, "+Inf": 80000.0}, family=family))[300].metric == family


def upgrade(*, windows_with_old_pods):
    """Two new pods, and in some windows an old one, which knows tokens only and by their old name."""
    pool = Pool()
    for window in CONTROL:
        old = window in windows_with_old_pods
        pool.histogram(TPOT, REQUEST_TPOT, {"0.1": 390.0, "+Inf": 400.0}, [window], series=2)
        pool.histogram(TPOT, ITL, {"0.1": 79000.0, "+Inf": 80000.0}, [window], series=2)
        if old:
            pool.histogram(TPOT, OLD_TPOT, {"0.1": 39000.0, "+Inf": 40000.0}, [window], series=1)
    return tpot_of(pool)


def test_m10_in_an_upgrade_both_halves_are_read_by_the_family_that_all_pods_have():
    found = upgrade(windows_with_old_pods=CONTROL)
    assert found[60].metric == f"{ITL} + {OLD_TPOT}"
    assert counts(found[60]) == {0.1: 118000.0, inf: 120000.0}


def test_m10_when_the_last_old_pod_leaves_the_family_stays_until_no_window_knows_it():
    """Requests and tokens are never compared within one pair of windows, and no ratio jumps at that moment."""
    found = upgrade(windows_with_old_pods=(300, 1800, 21600))
    assert found[60].metric == ITL
    assert counts(found[60])[inf] == 80000.0
    assert {w.metric for w in upgrade(windows_with_old_pods=()).values()} == {REQUEST_TPOT}


def test_an_edge_that_is_no_number_is_a_broken_histogram():
    found = tpot_of(Pool().tpot({"soon": 1.0, "+Inf": 4.0}))
    assert found[300].problem.reason == "MalformedHistogram"


@pytest.mark.parametrize(
    "names",
    [{"tier": "tierkeeper.dev/tier"}, {"pod": ""}, {"tier": "le"}, {"namespace": "tier"}],
)
def test_a_label_setting_that_cannot_work_is_refused(names):
    with pytest.raises(ValueError, match=r"_label \("):
        MetricLabels(**names)
