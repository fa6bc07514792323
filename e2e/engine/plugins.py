"""Loads plugins as vLLM does: by entry point, all of them or those that ``VLLM_PLUGINS`` names."""

import importlib.metadata
import logging
from collections.abc import Mapping

GROUP = "vllm.general_plugins"
logger = logging.getLogger("vllm.plugins")


def load_general_plugins(environment: Mapping[str, str]) -> None:
    """Calls every allowed plugin. One that cannot be loaded is logged and skipped; one that raises ends the engine."""
    names = environment.get("VLLM_PLUGINS")
    allowed = None if names is None else names.split(",")
    for entry in importlib.metadata.entry_points(group=GROUP):
        if allowed is None or entry.name in allowed:
            try:
                register = entry.load()
            except Exception:
                logger.exception("Failed to load plugin %s", entry.name)
            else:
                register()
                logger.info("Loaded plugin %s (%s)", entry.name, entry.value)
