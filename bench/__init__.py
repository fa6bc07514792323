"""Benchmarks: what the operator achieves beside others. Nothing here ships."""
