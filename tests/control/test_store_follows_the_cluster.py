"""The store follows watch events, and whole lists heal what a broken watch missed."""

from tierkeeper.control.store import Store, tier_of
from tierkeeper.ports import Kind
from tierkeeper.tier import TierKey

GOLD = TierKey("llm", "gold")


def obj(name, *, tier=None, namespace="llm", version=None, **more):
    labels = {"tierkeeper.dev/tier": tier} if tier else {}
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"metadata": meta | ({"resourceVersion": version} if version else {})} | more


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


def test_an_event_that_is_older_than_what_is_known_changes_nothing():
    store = Store()
    store.put(Kind.DEPLOYMENT, obj("gold-pool", tier="gold", version="100", mark="written by us"))
    assert store.put(Kind.DEPLOYMENT, obj("gold-pool", tier="gold", version="99", mark="late")) == GOLD
    assert store.drop(Kind.DEPLOYMENT, obj("gold-pool", tier="gold", version="99")) == GOLD
    assert store.child(GOLD, Kind.DEPLOYMENT, "gold-pool")["mark"] == "written by us"


def test_versions_are_compared_as_numbers_and_what_cannot_be_compared_is_believed():
    store = Store()
    store.put(Kind.POD, obj("a", tier="gold", version="9", mark=1))
    for version, mark in (("10", 2), ("opaque", 3), ("1", 4), (None, 5)):
        store.put(Kind.POD, obj("a", tier="gold", version=version, mark=mark))
        assert store.child(GOLD, Kind.POD, "a")["mark"] == mark


def test_a_whole_list_is_believed_even_where_its_versions_have_fallen():
    """As after the restore of an older etcd."""
    store = Store()
    store.put(Kind.SERVICE_TIER, obj("gold", version="900", mark="before"))
    store.replace(Kind.SERVICE_TIER, [obj("gold", version="100", mark="restored")], since=store.moment())
    assert store.tier(GOLD)["mark"] == "restored"
