"""NVIDIA Dynamo's mocker and the simulator tell the same of the Azure hour on static pools."""

import pytest

from bench.policy.validate_mocker import JUDGED, MOCKER, TRACE, misses, static
from tierkeeper.sim.traffic.traces import read_azure


@pytest.fixture(scope="module")
def hour():
    return read_azure(TRACE)


@pytest.mark.parametrize("replicas", JUDGED)
def test_joint_attainment_and_p99s_are_the_mockers(hour, replicas):
    ours = static(hour, replicas=replicas)
    assert misses(ours, MOCKER[replicas]) == [], f"{ours} against the mocker's {MOCKER[replicas]}"
