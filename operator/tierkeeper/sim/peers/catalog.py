"""All peers by name, and a policy from any one's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tierkeeper.sim.peers.apa import RESYNC_SECONDS, ApaLaw, ApaSettings
from tierkeeper.sim.peers.base import Law, Peer
from tierkeeper.sim.peers.dynamo import LOAD_SECONDS, DynamoLaw, DynamoSettings
from tierkeeper.sim.peers.hpa import SYNC_SECONDS, HpaLaw, HpaSettings
from tierkeeper.sim.peers.keda import KedaLaw, KedaSettings
from tierkeeper.sim.peers.kpa import TICK_SECONDS, KpaLaw, KpaSettings
from tierkeeper.sim.peers.llmd import LlmdLaw, LlmdSettings
from tierkeeper.sim.peers.static import StaticLaw, StaticSettings
from tierkeeper.sim.peers.wva import LOOP_SECONDS, WvaLaw, WvaSettings
from tierkeeper.tier import TierSpec

Settings: TypeAlias = (
    StaticSettings
    | HpaSettings
    | KedaSettings
    | KpaSettings
    | ApaSettings
    | LlmdSettings
    | WvaSettings
    | DynamoSettings
)


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    interval_seconds: float
    make: Callable[[TierSpec, Any], Law]


_KINDS: Mapping[type, _Kind] = {
    StaticSettings: _Kind("static", SYNC_SECONDS, lambda _, settings: StaticLaw(settings)),
    HpaSettings: _Kind("hpa", SYNC_SECONDS, lambda _, settings: HpaLaw(settings)),
    KedaSettings: _Kind("keda", SYNC_SECONDS, lambda _, settings: KedaLaw(settings)),
    KpaSettings: _Kind("kpa", TICK_SECONDS, lambda _, settings: KpaLaw(settings)),
    ApaSettings: _Kind("apa", RESYNC_SECONDS, lambda _, settings: ApaLaw(settings)),
    LlmdSettings: _Kind("llm-d", SYNC_SECONDS, lambda _, settings: LlmdLaw(settings)),
    WvaSettings: _Kind("wva", LOOP_SECONDS, lambda _, settings: WvaLaw(settings)),
    DynamoSettings: _Kind("dynamo", LOAD_SECONDS, DynamoLaw),
}

DEFAULTS: Mapping[str, Settings] = {
    _KINDS[type(settings)].name: settings
    for settings in (
        HpaSettings(),
        KedaSettings(),
        KpaSettings(),
        ApaSettings(),
        LlmdSettings(),
        WvaSettings(),
        DynamoSettings(),
    )
}
"""Published settings by the peer's name. Not here: ``static``, whose one setting is the peak of the traffic itself."""


def peer(settings: Settings, *, name: str | None = None) -> Peer:
    """A policy that scales by one law. ``name``: how it is called in a report, e.g. "hpa, tuned".

    Dynamo's planner is only looked for when the policy meets its first tier.
    """
    kind = _KINDS[type(settings)]
    return Peer(name or kind.name, kind.interval_seconds, lambda spec: kind.make(spec, settings))
