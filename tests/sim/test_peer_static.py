"""The peak's replicas, all day long."""

from __future__ import annotations

import numpy as np

from tests.sim.laws import Story
from tierkeeper.sim.peers.static import StaticLaw, StaticSettings, peak_replicas


def test_nothing_moves_it():
    assert set(Story(StaticLaw(StaticSettings(5))).until(600, load=90.0)) == {5}


def test_the_busiest_window_sets_the_peak():
    quiet, busy = np.arange(0, 3600, 1.0), np.arange(1200, 1500, 0.1)
    arrival = np.sort(np.concatenate([quiet, busy]))
    # 11 requests a second for 300 s, 2.5 a replica: 4.4.
    assert peak_replicas(arrival, requests_per_second=2.5) == 5
    assert peak_replicas(arrival, requests_per_second=2.5, window_seconds=600.0) == 3


def test_no_traffic_needs_one():
    assert peak_replicas(np.zeros(0), requests_per_second=2.5) == 1
