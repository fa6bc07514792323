"""Simulated pools that run the shipped ``slo``, ``engine`` and ``scaling`` code over recorded traffic.

Needs the extra ``tierkeeper[sim]`` (numpy, numba); the operator in the cluster does not.
"""
