"""The names of the vllm package that plugins reach for; the engine behind them is e2e.engine."""

from importlib.metadata import version

__version__ = version("vllm")
