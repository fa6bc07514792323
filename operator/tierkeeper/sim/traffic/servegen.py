"""Traffic composed of clients, each with its own rate and arrival law, after ServeGen's production characterization."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tierkeeper.sim.model import Requests
from tierkeeper.sim.traffic.arrivals import POISSON, Gaps, Law, arrivals, arrivals_in_bins, check_size
from tierkeeper.sim.traffic.compose import streams, with_lengths
from tierkeeper.sim.traffic.curve import Curve, Floats
from tierkeeper.sim.traffic.lengths import LengthLaw
from tierkeeper.sim.traffic.table import Column, Kind, TraceError, read_table
from tierkeeper.sim.traffic.traces import MAX_RATE, MAX_SECONDS

_LAWS = {"gamma": Gaps.GAMMA, "weibull": Gaps.WEIBULL, "poisson": Gaps.POISSON, "exponential": Gaps.POISSON}


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """One client: in bin i it sends ``rates[i]`` requests/s with gaps by ``laws[i]``. All clients share the bins."""

    name: str
    rates: Floats
    laws: tuple[Law, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Clients:
    """Clients over common bins, and the rate of all the others that are not told apart."""

    edges: Floats
    """[bins + 1] seconds from 0."""
    clients: tuple[Client, ...]
    rest: Floats = field(default_factory=lambda: np.zeros(0))
    """[bins] requests/s beside the clients."""

    @property
    def rate(self) -> Curve:
        """Requests/s of everyone."""
        total = self.rest + np.sum([client.rates for client in self.clients], axis=0)
        return Curve.hold(self.edges[:-1], total, end=float(self.edges[-1]))

    def cut(self, start: float, end: float) -> Clients:
        """The bins that lie wholly within [start, end] seconds, moved to begin at 0. Raises ValueError if none does."""
        first, last = np.searchsorted(self.edges, start), np.searchsorted(self.edges, end, side="right") - 1
        if last <= first:
            raise ValueError(f"clients: no whole bin lies between {start:g} s and {end:g} s")
        bins = slice(int(first), int(last))
        return Clients(
            edges=self.edges[first : last + 1] - self.edges[first],
            clients=tuple(Client(one.name, one.rates[bins], one.laws[bins]) for one in self.clients),
            rest=self.rest[bins],
        )


def read_clients(path: str | Path, *, total: Curve | None = None) -> Clients:
    """Read ``client,t_s,rate_rps,arrival,p1``, bins of equal length in the order of time for each client.

    ``arrival`` is Gamma, Weibull, Poisson or, where the rate is 0, empty; ``p1`` is the law's shape. ``total`` is the
    rate of all traffic: what it has above the sum of the clients becomes ``rest``. Raises TraceError.
    """
    columns = (
        Column({"client": 1.0}, "a name", kind=Kind.TEXT),
        Column({"t_s": 1.0}, f"seconds from 0 to {MAX_SECONDS:,.0f}", high=MAX_SECONDS),
        Column({"rate_rps": 1.0}, f"a rate from 0 to {MAX_RATE:,.0f} requests/s", high=MAX_RATE),
        Column({"arrival": 1.0}, "Gamma, Weibull or Poisson", kind=Kind.TEXT),
        Column({"p1": 1.0}, "the law's shape from 0 to 10,000", high=10_000.0),
    )
    table = read_table(path, columns)
    names = np.array(table.texts["client"])
    numbers, laws = table.numbers, table.texts["arrival"]
    clients: list[Client] = []
    edges: Floats | None = None
    for name in dict.fromkeys(table.texts["client"]):  # in the order of the file
        rows = np.flatnonzero(names == name)
        times = numbers["t_s"][rows]
        if edges is None:
            edges = _edges(path, name, times)
        if not np.array_equal(times, edges[:-1]):
            raise TraceError(
                path, f"client {name} has other times than the first one", remedy="give every client the same bins"
            )
        kept = tuple(_law(path, name, laws[row], float(numbers["p1"][row]), numbers["rate_rps"][row]) for row in rows)
        clients.append(Client(name, numbers["rate_rps"][rows], kept))
    assert edges is not None  # noqa: S101  (a table has at least one row)
    together = np.sum([client.rates for client in clients], axis=0)
    rest = np.zeros_like(together) if total is None else np.maximum(total.at(edges[:-1]) - together, 0.0)
    return Clients(edges=edges - edges[0], clients=tuple(clients), rest=rest)


def synthesize_clients(
    clients: Clients, *, lengths: LengthLaw, seed: int, factor: float = 1.0, rest_law: Law = POISSON
) -> Requests:
    """Requests of all clients at ``factor`` times their rates, each with its own random stream.

    A client's gaps keep their law when its rate is scaled, so its bursts stay as wild as they were. The rest is one
    process by ``rest_law``: many small clients together are close to Poisson. Raises ValueError on too large a run.
    """
    check_size(clients.rate.total * factor)
    *for_clients, for_rest, for_lengths = streams(seed, len(clients.clients) + 2)
    parts = [
        arrivals_in_bins(clients.edges, client.rates * factor, client.laws, rng=rng)
        for client, rng in zip(clients.clients, for_clients, strict=True)
    ]
    rest = Curve.hold(clients.edges[:-1], clients.rest * factor, end=float(clients.edges[-1]))
    parts.append(arrivals(rest, law=rest_law, rng=for_rest))
    arrival = np.concatenate(parts)
    parts.clear()
    arrival.sort()
    return with_lengths(arrival, lengths=lengths, rng=for_lengths)


def _edges(path: str | Path, name: str, times: NDArray[np.float64]) -> Floats:
    widths = np.diff(times)
    if not len(widths) or (widths <= 0).any() or not np.allclose(widths, widths[0]):
        raise TraceError(
            path,
            f"the times of client {name} are no bins of equal length",
            remedy="give each client at least two rows, equally far apart, in the order of time",
            column="t_s",
        )
    return np.append(times, times[-1] + widths[0])


def _law(path: str | Path, client: str, text: str, shape: float, rate: float) -> Law:
    if rate == 0:
        return POISSON
    gaps = _LAWS.get(text.strip().lower())
    if gaps is None:
        raise TraceError(
            path,
            f"{text!r} is no arrival law (client {client})",
            remedy="write Gamma, Weibull or Poisson where the rate is above 0",
            column="arrival",
        )
    try:
        return POISSON if gaps is Gaps.POISSON else Law(gaps, shape)
    except ValueError as error:
        raise TraceError(path, f"client {client}: {error}", remedy="correct its shape", column="p1") from error
