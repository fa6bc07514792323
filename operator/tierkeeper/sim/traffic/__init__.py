"""Traffic for simulated pools: recorded traces, rate curves with arrival laws, and shapes laid over either.

Everything ends in ``Requests``; everything random takes a seed. Examples::

    requests = scale(read_azure("azure2023_conv.csv.gz"), 3.0, seed=1)
    day = read_rate("week.csv", lines=True).cut(0, 86_400).with_mean(12.0).times(step(2.0, at=3600))
    requests = synthesize(day, law=gamma(cv=1.1), lengths=TraceLengths(requests), seed=1)
"""

from tierkeeper.sim.traffic.arrivals import MAX_REQUESTS, POISSON, Law, gamma, parse_law, weibull
from tierkeeper.sim.traffic.compose import cut, merge, scale, shift_mix, synthesize
from tierkeeper.sim.traffic.curve import Curve
from tierkeeper.sim.traffic.lengths import (
    AZURE_CONVERSATION,
    LengthLaw,
    Quantiles,
    TableLengths,
    TraceLengths,
    read_lengths,
)
from tierkeeper.sim.traffic.servegen import Client, Clients, read_clients, synthesize_clients
from tierkeeper.sim.traffic.shapes import burst, jitter, night, plateau, ramp, step
from tierkeeper.sim.traffic.table import TraceError
from tierkeeper.sim.traffic.traces import TraceFormat, load_requests, read_azure, read_mooncake, read_rate

__all__ = [
    "AZURE_CONVERSATION",
    "MAX_REQUESTS",
    "POISSON",
    "Client",
    "Clients",
    "Curve",
    "Law",
    "LengthLaw",
    "Quantiles",
    "TableLengths",
    "TraceError",
    "TraceFormat",
    "TraceLengths",
    "burst",
    "cut",
    "gamma",
    "jitter",
    "load_requests",
    "merge",
    "night",
    "parse_law",
    "plateau",
    "ramp",
    "read_azure",
    "read_clients",
    "read_lengths",
    "read_mooncake",
    "read_rate",
    "scale",
    "shift_mix",
    "step",
    "synthesize",
    "synthesize_clients",
    "weibull",
]
