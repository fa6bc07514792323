"""The bench's scenarios: their data are what their sources publish, and each is a run that can be played."""

import numpy as np
import pytest

from bench.policy.scenarios import DATA, SCENARIOS, STARTUPS, TUNING, scenario
from tierkeeper.sim.traffic import read_azure, read_clients, read_lengths, read_mooncake, read_rate

LONG = {"azure-2024-week", "servegen-week", "tuning-servegen", "tuning-day", "idle-night"}
SHORT = sorted({*SCENARIOS, *TUNING} - LONG)


def test_the_azure_hour_has_its_published_requests():
    requests = read_azure(DATA / "azure2023_conv.csv.gz")
    assert len(requests) == 19_366
    assert len(requests) / requests.arrival[-1] == pytest.approx(5.53, abs=0.01)


def test_the_digitised_week_has_the_published_count_within_half_a_percent():
    rate = read_rate(DATA / "azure2024_conv_rate.csv.gz", lines=True)
    assert rate.total == pytest.approx(27_303_999, rel=0.005)
    assert rate.end == pytest.approx(7 * 86_400, rel=0.002)


def test_the_mooncake_hour_is_off_its_grid():
    requests = read_mooncake(DATA / "mooncake_conv.csv.gz", seed=1)
    assert len(requests) == 12_031
    assert len(requests) / requests.arrival[-1] == pytest.approx(3.40, abs=0.01)
    assert len(np.unique(requests.arrival)) > 12_000


def test_the_largest_servegen_clients_make_two_thirds_of_the_rate():
    total = read_rate(DATA / "servegen_m-large_rate.csv.gz")
    clients = read_clients(DATA / "servegen_m-large_top12_clients.csv.gz", total=total)
    assert len(clients.clients) == 12
    assert clients.rate.total == pytest.approx(total.total)
    assert 1 - clients.rest.mean() / total.mean == pytest.approx(0.68, abs=0.005)


def test_the_servegen_lengths_have_about_the_published_means():
    prompt, output = read_lengths(DATA / "servegen_m-large_token_quantiles.csv.gz").draw(
        np.random.default_rng(1), 200_000
    )
    assert prompt.mean() == pytest.approx(947, rel=0.06)
    assert output.mean() == pytest.approx(162, rel=0.06)


def test_every_data_file_is_named_in_the_folders_readme_with_its_licence():
    text = (DATA / "README.md").read_text()
    for path in DATA.glob("*.gz"):
        assert f"`{path.name}`" in text
    assert "CC BY 4.0" in text
    assert "Apache License 2.0" in text


@pytest.mark.parametrize("name", SHORT)
def test_a_scenario_starts_within_its_bounds_and_plays_in_its_time(name):
    one = scenario(name, startup_seconds=300.0, seed=1)
    assert one.name == name
    for tier in one.tiers:
        bounds = tier.spec.scaling
        assert bounds.replicas.min <= tier.start.replicas <= bounds.replicas.max
        assert bounds.max_num_seqs.min <= tier.start.max_num_seqs <= bounds.max_num_seqs.max
        assert tier.config.startup.median_seconds == 300.0
        assert tier.config.gpus_per_replica == tier.spec.resources.gpus_per_replica
        assert len(tier.requests) / one.seconds > 5
        assert one.seconds * 0.98 <= tier.requests.arrival[-1] <= one.seconds * 1.03
        longest = tier.requests.prompt.max() + tier.requests.output.max()
        assert longest < tier.config.kv_tokens
    assert all(0 <= at < one.seconds for at in one.changes)


def test_a_scenario_repeats_with_its_seed_and_not_with_another():
    one, same, other = (scenario("step-2x", seed=seed).tiers[0].requests for seed in (1, 1, 2))
    assert one.arrival.tolist() == same.arrival.tolist()
    assert one.arrival.tolist() != other.arrival.tolist()


def test_the_start_up_time_changes_nothing_in_the_traffic():
    arrivals = [scenario("cap-8", startup_seconds=s).tiers[0].requests.arrival.tolist() for s in STARTUPS]
    assert arrivals[0] == arrivals[1] == arrivals[2]


def test_the_tiers_of_one_run_ask_at_different_times_and_rank_by_priority():
    tiers = scenario("three-tiers").tiers
    assert len({tuple(tier.requests.arrival[:50]) for tier in tiers}) == 3
    assert [tier.spec.priority for tier in tiers] == sorted((tier.spec.priority for tier in tiers), reverse=True)


def test_an_unknown_scenario_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'azure' is not known; use one of azure-2023, mooncake"):
        scenario("azure")
