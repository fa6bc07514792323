"""The store follows watch events, and whole lists heal what a broken watch missed."""

from tierkeeper.control.store import Store, tier_of
from tierkeeper.ports import Kind
from tierkeeper.tier import TierKey

GOLD = TierKey("llm", "gold")


def obj(name, *, tier=None, namespace="llm", **more):
    labels = {"tierkeeper.dev/tier": tier} if tier else {}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}} | more


def test_a_child_belongs_to_the_tier_of_its_label():
    assert tier_of(Kind.POD, obj("gold-pool-x", tier="gold")) == GOLD
    assert tier_of(Kind.POD, obj("stranger")) is None
    assert tier_of(Kind.SERVICE_TIER, obj("gold")) == GOLD


def test_objects_come_and_go_with_their_events():
    store = Store()
    store.put(Kind.SERVICE_TIER, obj("gold"))
    store.put(Kind.POD, obj("a", tier="gold"))
    store.put(Kind.POD, obj("b", tier="gold"))
    assert store.drop(Kind.POD, obj("a", tier="gold")) == GOLD
    assert [pod["metadata"]["name"] for pod in store.children(GOLD, Kind.POD)] == ["b"]
    assert store.tiers() == [GOLD]


def test_a_whole_list_removes_what_a_broken_watch_did_not_tell():
    store = Store()
    store.put(Kind.SERVICE_TIER, obj("gold"))
    store.put(Kind.SERVICE_TIER, obj("lost"))
    store.replace(Kind.SERVICE_TIER, [obj("gold"), obj("new")], since=store.moment())
    assert [key.name for key in store.tiers()] == ["gold", "new"]


def test_events_that_arrive_while_a_list_is_under_way_win_over_the_list():
    store = Store()
    store.put(Kind.POD, obj("a", tier="gold", mark=1))
    begun = store.moment()
    store.put(Kind.POD, obj("a", tier="gold", mark=2))
    store.put(Kind.POD, obj("born", tier="gold"))
    store.put(Kind.POD, obj("died", tier="gold"))
    store.drop(Kind.POD, obj("died", tier="gold"))
    store.replace(Kind.POD, [obj("a", tier="gold", mark=1), obj("died", tier="gold")], since=begun)
    pods = {pod["metadata"]["name"]: pod for pod in store.children(GOLD, Kind.POD)}
    assert pods.keys() == {"a", "born"}
    assert pods["a"]["mark"] == 2


def test_the_same_name_in_two_namespaces_is_two_tiers():
    store = Store()
    for namespace in ("llm", "other"):
        store.put(Kind.SERVICE_TIER, obj("gold", namespace=namespace))
        store.put(Kind.POD, obj("gold-pool-1", tier="gold", namespace=namespace))
    assert store.tiers() == [GOLD, TierKey("other", "gold")]
    assert len(store.children(GOLD, Kind.POD)) == 1


def test_a_child_that_changes_its_label_changes_its_tier():
    store = Store()
    store.put(Kind.POD, obj("a", tier="gold"))
    store.put(Kind.POD, obj("a", tier="standard"))
    assert store.children(GOLD, Kind.POD) == []
