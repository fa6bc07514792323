"""The Lease as the API server keeps it."""

import pytest

from tests.fakes.kube import FakeKube
from tierkeeper.adapters.lease import KubernetesLease
from tierkeeper.ports import ApiError, Kind, Lease


@pytest.fixture
def kube():
    return FakeKube()


@pytest.fixture
def lock(kube):
    return KubernetesLease(kube, namespace="ops", name="tierkeeper")


MINE = Lease(holder="a_1", seconds=15, transitions=2, acquired=1_790_000_000.0, renewed=1_790_000_002.5)


async def test_where_there_is_none_it_is_made_and_read_again(kube, lock):
    assert await lock.read() is None
    written = await lock.write(MINE, over=None)
    assert await lock.read() == written
    obj = kube.objects[Kind.LEASE, "ops", "tierkeeper"]
    assert obj["apiVersion"] == "coordination.k8s.io/v1"
    assert obj["spec"] == {
        "holderIdentity": "a_1",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 2,
        "acquireTime": "2026-09-21T14:13:20.000000Z",
        "renewTime": "2026-09-21T14:13:22.500000Z",
    }


async def test_one_that_came_meanwhile_is_not_written_over(lock):
    await lock.write(MINE, over=None)
    with pytest.raises(ApiError) as refused:
        await lock.write(MINE, over=None)
    assert refused.value.status == 409


async def test_one_that_changed_meanwhile_is_not_written_over(lock):
    first = await lock.write(MINE, over=None)
    await lock.write(Lease(holder="b_1", seconds=15, renewed=1.0), over=first)
    with pytest.raises(ApiError) as refused:
        await lock.write(MINE, over=first)
    assert refused.value.status == 409


async def test_one_that_was_deleted_meanwhile_is_not_made_anew(kube, lock):
    """Or a request to take over that is late would make a second leader."""
    first = await lock.write(MINE, over=None)
    kube.delete(Kind.LEASE, "ops", "tierkeeper")
    with pytest.raises(ApiError) as refused:
        await lock.write(MINE, over=first)
    assert refused.value.status == 409
    assert await lock.read() is None


async def test_given_back_it_has_no_holder(kube, lock):
    first = await lock.write(MINE, over=None)
    await lock.write(Lease(transitions=2, seconds=15, renewed=5.0), over=first)
    assert "holderIdentity" not in kube.objects[Kind.LEASE, "ops", "tierkeeper"]["spec"]
    assert (await lock.read()).holder is None


async def test_one_that_somebody_made_by_hand_is_read_too(kube, lock):
    kube.put({"kind": "Lease", "metadata": {"namespace": "ops", "name": "tierkeeper"}})
    found = await lock.read()
    assert (found.holder, found.seconds, found.transitions) == (None, None, 0)
    assert (await lock.write(MINE, over=found)).holder == "a_1"
