"""What kopf watches and how. Only ``on.event``: no finalizer, no annotation, no state on anybody's object."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import kopf

from tierkeeper.api import GROUP, PLURAL, VERSION
from tierkeeper.control.runtime import Runtime
from tierkeeper.control.store import TIER_LABEL
from tierkeeper.ports import Kind

WATCHED: Mapping[Kind, tuple[str, str, str]] = {
    Kind.SERVICE_TIER: (GROUP, VERSION, PLURAL),
    Kind.DEPLOYMENT: ("apps", "v1", "deployments"),
    Kind.POD: ("", "v1", "pods"),
    Kind.CONFIG_MAP: ("", "v1", "configmaps"),
    Kind.SERVICE: ("", "v1", "services"),
    Kind.POD_DISRUPTION_BUDGET: ("policy", "v1", "poddisruptionbudgets"),
}
"""Group, version and plural of each watched kind."""

EXIT_SECONDS = 25.0
"""Below the 30 s that Kubernetes gives: if stopping hangs, the process ends itself rather than be killed."""

ERROR_BACKOFFS = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between kopf's tries. A watcher that is refused for half a minute ends the process, which says more than a
log line does; rights that arrive a moment after the pod are not worth a restart."""

CONNECT_SECONDS, ANSWER_SECONDS, SILENCE_SECONDS = 10.0, 30.0, 70.0
"""For a connection, for a list, and without a word on a watch: after that kopf tries anew. Its own five minutes for a
list would hold back every edit for so long where a network drops packets instead of refusing them. A watch that
nothing happens on is told so by the API server about once a minute."""


def build_registry(runtime: Runtime) -> kopf.OperatorRegistry:
    """All handlers, for one runtime. kopf's global registry is not used."""
    registry = kopf.OperatorRegistry()
    _log_in(registry)
    for kind in WATCHED:
        _watch(registry, runtime, kind)

    @kopf.on.startup(registry=registry, id="start")
    async def start(**_: Any) -> None:
        runtime.start()

    @kopf.on.cleanup(registry=registry, id="stop")
    async def stop(**_: Any) -> None:
        await runtime.stop()

    return registry


def build_settings() -> kopf.OperatorSettings:
    """kopf's settings: no Events of its own, no peering, no discovery after the start, pods filtered by the server."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.posting.level = logging.CRITICAL
    settings.scanning.disabled = True
    settings.networking.error_backoffs = ERROR_BACKOFFS
    settings.networking.connect_timeout = CONNECT_SECONDS
    settings.networking.request_timeout = ANSWER_SECONDS
    settings.watching.inactivity_timeout = SILENCE_SECONDS
    settings.process.ultimate_exiting_timeout = EXIT_SECONDS
    for kind, resource in WATCHED.items():
        if kind is not Kind.SERVICE_TIER:
            settings.watching.label_selectors[resource] = TIER_LABEL
    return settings


def _watch(registry: kopf.OperatorRegistry, runtime: Runtime, kind: Kind) -> None:
    group, version, plural = WATCHED[kind]

    @kopf.on.event(group, version, plural, registry=registry, id=f"see-{plural}")
    async def see(event: kopf.RawEvent, **_: Any) -> None:
        runtime.seen(kind, dict(event["object"]), deleted=event["type"] == "DELETED")


def _log_in(registry: kopf.OperatorRegistry) -> None:
    """The service account, else the kubeconfig: without kopf's own detour over the official synchronous client."""

    @kopf.on.login(registry=registry, id="service-account", errors=kopf.ErrorsMode.PERMANENT)
    def by_service_account(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs)

    @kopf.on.login(registry=registry, id="kubeconfig", errors=kopf.ErrorsMode.PERMANENT)
    def by_kubeconfig(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**kwargs)
