"""A Ready pod without series may be busy: an idle pool is one whose every pod was seen to be idle."""

from tests.scaling.story import Story, tier
from tierkeeper.scaling.model import Reason


def quiet(*, observed: int) -> Story:
    story = Story(tier(window=60, replicas=(1, 8)), replicas=2)
    story.observed = observed
    return story.calm(running=0, requests_per_second=0, requests_5m=0)


def test_a_pool_with_a_pod_that_is_not_seen_does_not_go_to_its_minimum():
    story = quiet(observed=1)
    story.pass_time(300)
    assert story.changes() == []
    assert story.decisions[-1].reason is not Reason.IDLE


def test_once_every_pod_is_seen_to_be_idle_it_does():
    story = quiet(observed=2)
    story.pass_time(300)
    assert story.levers.replicas == 1
    assert story.decisions[-1].reason is Reason.IDLE
