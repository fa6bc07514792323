"""The limit ConfigMap: what goes in comes out, and what is spoiled is no setting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierkeeper.engine.limits import Limits, limit_data, nudge_value, parse_limits
from tierkeeper.plugin import tierkeeper_live_limit as plugin

limits = st.builds(Limits, st.integers(1, 10**6), st.none() | st.integers(1, 10**6))


@given(limits)
def test_limits_survive_the_round_trip(value):
    assert parse_limits(limit_data(value)) == value


@given(limits, limits)
def test_the_nudge_changes_exactly_when_the_limits_do(one, other):
    assert (nudge_value(one) == nudge_value(other)) == (one == other)


@pytest.mark.parametrize(
    "data", [None, {}, {"max-num-batched-tokens": "512"}, {"max-num-seqs": "many"}, {"max-num-seqs": "0"}]
)
def test_a_config_map_without_a_usable_cap_holds_no_setting(data):
    assert parse_limits(data) is None


@pytest.mark.parametrize("text", ["", "-8", "+8", "8.0", "1e3", "1_000", "8 8", "٨", "1" + "0" * 9, "9" * 5000])
def test_what_no_limit_can_be_is_no_setting_and_no_error(text):
    """Beyond nine digits no status could show it, and beyond 4,300 Python itself refuses to read it."""
    assert parse_limits({"max-num-seqs": text}) is None
    assert parse_limits({"max-num-seqs": "8", "max-num-batched-tokens": text}) == Limits(8, None)


@pytest.mark.parametrize("text", ["8", " 8\n", "0008"])
def test_a_limit_may_stand_among_blanks_and_zeros_as_the_plugin_reads_it(text):
    assert parse_limits({"max-num-seqs": text}) == Limits(8)


def test_a_spoiled_token_budget_is_left_to_the_engine():
    assert parse_limits({"max-num-seqs": "8\n", "max-num-batched-tokens": "x"}) == Limits(8, None)


def test_the_keys_are_the_files_that_the_plugin_reads():
    assert set(limit_data(Limits(8, 512))) == {plugin.SEQS, plugin.TOKENS}
