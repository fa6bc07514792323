"""An answer that serves many snapshots is sorted by tier once; what is put together from old and new is the same."""

from math import inf, isnan, nan

from hypothesis import given
from hypothesis import strategies as st

from tests.slo.world import GOLD, ITL, LABELS, REQUEST_TPOT, TTFT, Pool, cumulative
from tierkeeper.slo.model import Sample, Sli
from tierkeeper.slo.readings import BUCKET_SIGNALS, POD_SIGNALS, group, join, sort
from tierkeeper.slo.signals import Signal, SignalKind
from tierkeeper.tier import TierKey

CONTROL = (60, 300, 1800, 21600)
SIGNALS = (
    Signal(SignalKind.RUNNING),
    Signal(SignalKind.SAMPLE_AGE),
    Signal(SignalKind.REQUESTS, 60),
    Signal(SignalKind.QUEUE_TIME, 60),
    Signal(SignalKind.TTFT_BUCKETS, 300),
    Signal(SignalKind.TPOT_BUCKETS, 300),
    Signal(SignalKind.TPOT_BUCKETS, 21600),
)
LABEL_VALUES = {
    "namespace": ("llm", "lab", ""),
    "tier": ("gold", "silver"),
    "pod": ("a", "b"),
    "stat": ("sum", "count", "series"),
    "family": (TTFT, REQUEST_TPOT, ITL),
    "le": ("0.5", "1", "1.0", "+Inf", "soon"),
}

samples = st.builds(
    Sample,
    st.fixed_dictionaries({}, optional={label: st.sampled_from(values) for label, values in LABEL_VALUES.items()}),
    st.one_of(st.integers(0, 50).map(float), st.sampled_from([nan, inf, -inf])),
    st.integers(1, 9).map(float),
)
news = st.dictionaries(st.sampled_from(SIGNALS), st.lists(samples, max_size=6), max_size=3)


def told(readings):
    """All that readings say, with what follows from their buckets. As text, in which a NaN equals itself."""
    return {key: repr((one, [one.histograms(sli, control=CONTROL) for sli in Sli])) for key, one in readings.items()}


@given(st.lists(news, min_size=1, max_size=3))
def test_old_answers_with_new_ones_tell_the_same_as_all_of_them_sorted_anew(snapshots):
    answers, shares = {}, {}
    for new in snapshots:
        answers |= new
        shares |= {signal: sort(signal, found, LABELS) for signal, found in new.items()}
        assert told(join(shares)) == told(group(answers, LABELS))


def places(signal, found):
    """Each figure's values by its tier and its names there, one sample after the other."""
    by_place = {}
    for sample in found:
        label = dict.fromkeys(LABEL_VALUES, "") | sample.labels
        key, names = TierKey(label["namespace"], label["tier"]), (label["stat"],)
        if signal.kind in BUCKET_SIGNALS:
            names = label["family"], label["stat"], label["le"]
        elif signal.kind in POD_SIGNALS:
            names = (label["pod"],)
        if all(key) and (names != ("",) or signal.kind not in POD_SIGNALS):
            by_place.setdefault((key, *names), []).append(sample.value)
    return by_place


def figures(shares):
    """All that shares hold, by the same places."""
    by_place = {(key, name): value for key, one in shares.items() for name, value in one.figures.items()}
    for key, one in shares.items():
        for family, stats in one.buckets.families.items() if one.buckets else ():
            by_place |= {(key, family, stat, le): value for stat, at in stats.items() for le, value in at.items()}
    return by_place


@given(st.sampled_from(SIGNALS), st.lists(samples, max_size=20))
def test_every_figure_is_found_in_its_place_and_of_two_the_larger(signal, found):
    wanted = {at: nan if any(map(isnan, values)) else max(values) for at, values in places(signal, found).items()}
    shown = figures(sort(signal, found, LABELS))
    assert sorted(map(repr, shown.items())) == sorted(map(repr, wanted.items()))


def test_an_answer_that_still_holds_is_not_built_into_a_histogram_again():
    counts = cumulative([0.2] * 97 + [1.2] * 3)
    pool = Pool().ttft(counts, windows=(60, 300, 1800))
    shares = {signal: sort(signal, found, LABELS) for signal, found in pool.answers().items()}
    before = join(shares)[GOLD].histograms(Sli.TTFT, control=CONTROL)
    fresh = Signal(SignalKind.TTFT_BUCKETS, 60)
    shares[fresh] = sort(fresh, pool.answers()[fresh], LABELS)
    after = join(shares)[GOLD].histograms(Sli.TTFT, control=CONTROL)
    assert after == before
    assert after[1800].histogram is before[1800].histogram
    assert after[60].histogram is not before[60].histogram
