"""The files that go into every vLLM pod."""

from importlib.resources import files


def plugin_source() -> str:
    """Text of the live-limit plugin, as it is put into a pool's plugin ConfigMap."""
    return files(__name__).joinpath("tierkeeper_live_limit.py").read_text(encoding="utf-8")
