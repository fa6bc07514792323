"""Little's law: what is there on average is the rate times the mean stay, in the queue and in the batch alike."""

import numpy as np
import pytest

from tests.sim.pools import config, poisson, pool


@pytest.mark.parametrize(
    ("rate", "cap", "kv_tokens"),
    [(30.0, 32, 100_000), (30.0, 8, 100_000), (20.0, 32, 3_000)],
    ids=["no queue", "queue behind the cap", "queue behind the KV cache"],
)
def test_running_and_waiting_are_rate_times_stay(rate, cap, kv_tokens):
    requests = poisson(seed=11, count=20_000, rate=rate, prompt=100.0, output=40.0)
    chosen = pool(requests, config(kv_tokens=kv_tokens), replicas=4, max_num_seqs=cap)
    end = float(requests.arrival[-1])
    running, waiting = [], []
    for moment in np.arange(0.0, end, 1.0):
        chosen.advance(moment)
        pages = chosen.pages()
        running.append(sum(page.running for page in pages))
        waiting.append(sum(page.waiting for page in pages))
    chosen.advance(np.inf)
    seen = chosen.outcomes()
    observed_rate = len(requests) / end
    stay = seen.finish - requests.arrival
    assert np.mean(running) + np.mean(waiting) == pytest.approx(observed_rate * stay.mean(), rel=0.03)
    if not seen.preemptions.any():  # else a stay has more than one wait
        assert np.mean(waiting) == pytest.approx(observed_rate * seen.queue_seconds.mean(), rel=0.05, abs=0.05)
