"""Tierkeeper: tiered LLM serving on Kubernetes, with latency promises that are kept."""

__version__ = "0.1.0"
