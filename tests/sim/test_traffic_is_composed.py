"""Requests made of requests: scaled, merged, cut, with other lengths, and composed of clients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierkeeper.sim.model import Requests
from tierkeeper.sim.traffic import (
    AZURE_CONVERSATION,
    POISSON,
    Client,
    Clients,
    Curve,
    Quantiles,
    TableLengths,
    TraceLengths,
    cut,
    gamma,
    merge,
    plateau,
    read_clients,
    read_lengths,
    read_rate,
    scale,
    shift_mix,
    step,
    synthesize,
    synthesize_clients,
)


def trace(count=20_000, seconds=2000.0, seed=5):
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.uniform(0, seconds, count))
    return Requests(arrival=arrival, prompt=rng.integers(1, 5000, count), output=rng.integers(1, 500, count))


TRACE = trace()


# --- lengths ------------------------------------------------------------------------------------------------------


def test_lengths_follow_their_quantiles_and_are_log_linear_between_them():
    law = Quantiles(np.array([0.1, 0.5, 0.9]), np.array([10.0, 100.0, 1000.0]))
    drawn = law.draw(np.random.default_rng(1), 200_000)
    assert np.quantile(drawn, [0.1, 0.3, 0.5, 0.7, 0.9]) == pytest.approx([10, 31.6, 100, 316, 1000], rel=0.04)
    assert (drawn.min(), drawn.max()) == (10, 1000)


def test_the_built_in_lengths_have_the_means_of_the_trace_they_come_from():
    prompt, output = AZURE_CONVERSATION.draw(np.random.default_rng(1), 200_000)
    assert prompt.mean() == pytest.approx(1155, rel=0.1)
    assert output.mean() == pytest.approx(211, rel=0.1)


def test_lengths_from_a_trace_keep_their_pairs():
    pairs = Requests(arrival=[0.0, 1.0], prompt=[100, 2000], output=[7, 9])
    prompt, output = TraceLengths(pairs).draw(np.random.default_rng(1), 5000)
    assert set(zip(prompt.tolist(), output.tolist(), strict=True)) == {(100, 7), (2000, 9)}


def test_lengths_are_the_same_in_blocks(monkeypatch):
    monkeypatch.setattr("tierkeeper.sim.traffic.lengths._BLOCK", 100)
    prompt, output = TraceLengths(TRACE).draw(np.random.default_rng(1), 1050)
    assert len(prompt) == len(output) == 1050
    assert prompt.min() >= 1
    assert output.min() >= 1
    assert len(AZURE_CONVERSATION.prompt.draw(np.random.default_rng(1), 1050)) == 1050


@pytest.mark.parametrize(
    ("quantiles", "tokens", "message"),
    [
        ([0.5, 0.5], [1, 2], "rise"),
        ([-0.1, 0.5], [1, 2], r"lie in \[0, 1\]"),
        ([0.1, 0.5], [2, 1], "not fall"),
        ([0.1], [0], "tokens must lie in"),
        ([], [], "at least one"),
        ([0.1, 0.5], [1], "one number of tokens for each quantile"),
        ([0.1, float("nan")], [1, 2], "quantiles must lie"),
    ],
)
def test_a_table_that_is_no_distribution_is_refused(quantiles, tokens, message):
    with pytest.raises(ValueError, match=message):
        Quantiles(np.array(quantiles), np.array(tokens))


def test_lengths_cannot_be_drawn_from_an_empty_trace():
    with pytest.raises(ValueError, match="no request to draw from"):
        TraceLengths(Requests(arrival=[], prompt=[], output=[]))


def test_a_length_table_is_read_from_a_file(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("field,quantile,tokens\nprompt_tokens,0.5,100\noutput_tokens,0.5,7\n")
    lengths = read_lengths(path)
    assert isinstance(lengths, TableLengths)
    assert [part.tolist() for part in lengths.draw(np.random.default_rng(1), 2)] == [[100, 100], [7, 7]]


# --- synthesis ----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_requests_and_another_one_others():
    make = lambda seed: synthesize(Curve.constant(20.0, seconds=100), lengths=AZURE_CONVERSATION, seed=seed)  # noqa: E731
    one, same, other = make(1), make(1), make(2)
    assert one.arrival.tolist() == same.arrival.tolist()
    assert one.prompt.tolist() == same.prompt.tolist()
    assert one.arrival.tolist() != other.arrival.tolist()


def test_another_arrival_law_leaves_the_first_lengths_as_they_are():
    rate = Curve.constant(20.0, seconds=100)
    calm = synthesize(rate, lengths=AZURE_CONVERSATION, seed=1)
    wild = synthesize(rate, lengths=AZURE_CONVERSATION, seed=1, law=gamma(cv=2))
    count = min(len(calm), len(wild))
    assert len(calm) != len(wild)
    assert calm.prompt[: count // 2].tolist() == wild.prompt[: count // 2].tolist()


# --- scaling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 1.7, 3.0])
def test_a_trace_is_scaled_in_rate(factor):
    scaled = scale(TRACE, factor, seed=1)
    assert len(scaled) == pytest.approx(factor * len(TRACE), abs=4 * np.sqrt(len(TRACE)))


def test_a_factor_of_one_keeps_the_trace_as_it_is():
    scaled = scale(TRACE, 1.0, seed=1)
    assert scaled.arrival.tolist() == TRACE.arrival.tolist()
    assert scaled.prompt.tolist() == TRACE.prompt.tolist()


def test_a_thinned_trace_is_a_part_of_the_trace():
    thin = scale(TRACE, 0.5, seed=1)
    assert set(thin.arrival.tolist()) <= set(TRACE.arrival.tolist())


def test_copies_are_moved_and_keep_their_pairs_and_the_demand_its_form():
    rising = synthesize(Curve.through([(0, 1), (4000, 21)]), lengths=AZURE_CONVERSATION, seed=1)
    triple = scale(rising, 3.0, seed=1, spread_seconds=60)
    assert len(triple) == 3 * len(rising)
    pairs = set(zip(rising.prompt.tolist(), rising.output.tolist(), strict=True))
    assert set(zip(triple.prompt.tolist(), triple.output.tolist(), strict=True)) == pairs
    once, thrice = (np.histogram(r.arrival, bins=4, range=(200, 3800))[0] for r in (rising, triple))
    assert thrice == pytest.approx(3 * once, rel=0.1)
    assert len(np.unique(triple.arrival)) == len(triple)


def test_a_step_is_laid_over_a_trace():
    doubled = scale(TRACE, step(2.5, at=1000), seed=1)
    before, after = np.histogram(doubled.arrival, bins=[0, 1000, 2000])[0]
    assert before == pytest.approx(10_000, rel=0.05)
    assert after == pytest.approx(25_000, rel=0.05)


def test_an_empty_trace_stays_empty():
    assert len(scale(Requests(arrival=[], prompt=[], output=[]), 3.0, seed=1)) == 0


@pytest.mark.parametrize("factor", [-0.1, 1001.0, float("nan")])
def test_a_factor_that_cannot_be_is_refused(factor):
    with pytest.raises(ValueError, match="must be between 0 and 1,000"):
        scale(TRACE, factor, seed=1)


@given(factor=st.floats(0, 4), seed=st.integers(0, 2**32), spread=st.floats(0, 1e4))
def test_a_scaled_trace_is_sorted_and_stays_within_its_time(factor, seed, spread):
    small = trace(count=40, seconds=30.0, seed=seed)
    scaled = scale(small, factor, seed=seed, spread_seconds=spread)
    assert (np.diff(scaled.arrival) >= 0).all()
    if len(scaled):
        assert scaled.arrival[0] >= 0
        assert scaled.arrival[-1] <= small.arrival[-1] * (1 + 1 / 40)


# --- parts and mixes ----------------------------------------------------------------------------------------------


def test_streams_are_merged_in_order_of_arrival():
    one = Requests(arrival=[1.0, 3.0], prompt=[1, 3], output=[1, 3])
    other = Requests(arrival=[2.0], prompt=[2], output=[2])
    both = merge([one, other])
    assert (both.arrival.tolist(), both.prompt.tolist()) == ([1.0, 2.0, 3.0], [1, 2, 3])
    assert len(merge([])) == 0


def test_a_part_is_cut_out_and_begins_at_zero():
    part = cut(TRACE, 500, 1000)
    inside = (TRACE.arrival >= 500) & (TRACE.arrival < 1000)
    assert len(part) == inside.sum()
    assert part.arrival == pytest.approx(TRACE.arrival[inside] - 500)


def test_prompts_become_four_times_as_long_within_ten_minutes_and_short_again():
    mixed = shift_mix(TRACE, prompt=plateau(4.0, start=100, end=1900, slope_seconds=600))
    ratio = mixed.prompt / TRACE.prompt
    assert ratio[TRACE.arrival < 100] == pytest.approx(1.0)
    assert ratio[(TRACE.arrival > 700) & (TRACE.arrival < 1300)] == pytest.approx(4.0)
    assert ratio[TRACE.arrival > 1900] == pytest.approx(1.0)
    assert mixed.output.tolist() == TRACE.output.tolist()


def test_shifted_lengths_stay_between_one_token_and_the_limit():
    assert shift_mix(TRACE, prompt=0.0001).prompt.max() == 1
    assert shift_mix(TRACE, prompt=100.0, output=100.0, max_tokens=8192).prompt.max() == 8192
    assert shift_mix(TRACE, output=1e12).output.max() == np.iinfo(np.int32).max


# --- clients ------------------------------------------------------------------------------------------------------


def two_clients():
    edges = np.array([0.0, 600.0, 1200.0, 1800.0])
    steady = Client("steady", np.array([5.0, 5.0, 5.0]), (POISSON,) * 3)
    shy = Client("shy", np.array([0.0, 20.0, 0.0]), (POISSON, gamma(cv=3.0), POISSON))
    return Clients(edges=edges, clients=(steady, shy), rest=np.array([2.0, 2.0, 4.0]))


def test_clients_and_the_rest_together_have_the_rate_they_are_said_to_have():
    clients = two_clients()
    assert clients.rate.starts.tolist() == [7.0, 27.0, 9.0]
    counts = np.mean(
        [
            np.histogram(synthesize_clients(clients, lengths=AZURE_CONVERSATION, seed=s).arrival, clients.edges)[0]
            for s in range(30)
        ],
        axis=0,
    )
    assert counts == pytest.approx(600 * clients.rate.starts, rel=0.05)


def test_clients_are_scaled_together_and_repeat_with_the_seed():
    half = synthesize_clients(two_clients(), lengths=AZURE_CONVERSATION, seed=1, factor=0.5)
    again = synthesize_clients(two_clients(), lengths=AZURE_CONVERSATION, seed=1, factor=0.5)
    assert len(half) == pytest.approx(0.5 * 600 * 43, rel=0.15)
    assert half.arrival.tolist() == again.arrival.tolist()


def test_a_part_of_the_clients_is_taken_in_whole_bins():
    part = two_clients().cut(500, 1800)
    assert part.edges.tolist() == [0.0, 600.0, 1200.0]
    assert part.rate.starts.tolist() == [27.0, 9.0]
    with pytest.raises(ValueError, match="no whole bin lies between"):
        two_clients().cut(100, 900)


def test_clients_are_read_beside_the_total_that_leaves_the_rest(tmp_path):
    file, total = tmp_path / "clients.csv", tmp_path / "total.csv"
    file.write_text(
        "client,t_s,rate_rps,cv,arrival,p1,p2\n7,0,3,1,Gamma,0.25,1\n7,60,0,0,,0,0\n9,0,1,1,Weibull,0.5,1\n9,60,4,1,Gamma,1,1\n"
    )
    total.write_text("t_s,rate_rps\n0,10\n60,3\n")
    clients = read_clients(file, total=read_rate(total))
    assert [client.name for client in clients.clients] == ["7", "9"]
    assert clients.clients[0].laws[0].cv == pytest.approx(2.0)
    assert clients.rest.tolist() == [6.0, 0.0]
    assert read_clients(file).rest.tolist() == [0.0, 0.0]
