"""Constants of a step from measured times: least squares on ``a + B * (b0 + b1 * context) + d * (prefill tokens)``.

What is measured from outside is a time that covers one step or several; of each it must be known what was in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tierkeeper.engine.latency import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A measured time, and the sums over the steps in it."""

    seconds: float
    steps: int = 1
    sequences: int = 0
    """Sequences that got a token, summed over the steps."""
    context: float = 0.0
    """Tokens of context of those sequences, summed over the steps."""
    prefill: int = 0
    """Prompt tokens computed."""
    fronts: int = 0
    """Ways from client to engine and back (HTTP, processes) in the time: 0 between two tokens, 1 in a TTFT."""

    @property
    def terms(self) -> tuple[float, ...]:
        """What each constant of ``Fit`` is multiplied with."""
        return (self.steps, self.sequences, self.context, self.prefill, self.fronts)


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants that explain the samples, seconds; and how well they do."""

    profile: Profile
    front_seconds: float
    """Of each request outside the engine; 0 where no sample shows it."""
    mean_error: float
    """Mean of |fitted / measured - 1|."""
    largest_error: float
    samples: int


def fit(samples: Sequence[Sample], *, name: str) -> Fit:
    """The constants, none below zero, with the least squares of the relative errors.

    Relative, because a step with a long prompt takes a hundred times one that decodes and either counts. What comes
    out negative is held at zero and the others are fitted anew. Raises ValueError where the samples do not tell a
    constant from the others: vary batch, context and prompt length independently.
    """
    seconds = np.array([sample.seconds for sample in samples])
    terms = np.array([sample.terms for sample in samples], dtype=float)
    if not (seconds > 0).all():
        raise ValueError("a sample took no time; every time must be above 0")
    weighed = terms / seconds[:, None]
    used = [place for place in range(terms.shape[1]) if terms[:, place].any()]
    found = np.zeros(terms.shape[1])
    while used:
        scale = np.linalg.norm(weighed[:, used], axis=0)
        solved, _, rank, _ = np.linalg.lstsq(weighed[:, used] / scale, np.ones(len(samples)), rcond=1e-9)
        if rank < len(used):
            raise ValueError(f"{len(samples)} samples do not tell {len(used)} constants apart; vary batch and lengths")
        found[:] = 0.0
        found[used] = solved / scale
        if (found >= 0).all():
            break
        used.remove(int(np.argmin(found * np.linalg.norm(weighed, axis=0))))
    errors = np.abs(weighed @ found - 1)
    base, sequence, context, prefill, front = found.tolist()
    return Fit(
        profile=Profile(
            name=name,
            base_seconds=base,
            per_sequence_seconds=sequence,
            per_context_token_seconds=context,
            per_prefill_token_seconds=prefill,
        ),
        front_seconds=front,
        mean_error=float(errors.mean()),
        largest_error=float(errors.max()),
        samples=len(samples),
    )
