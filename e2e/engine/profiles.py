"""How long a step takes: named profiles of the step-time model.

``step_ms = a + sum over decoding sequences of (b0 + b1 * context / 1000) + d * prefill tokens in the step``
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

PROFILE_VARIABLE = "TIERKEEPER_ENGINE_PROFILE"


@dataclass(frozen=True, slots=True)
class Profile:
    """The speed and the memory of one engine.

    ``a_ms``: fixed cost of a step. ``b0_ms``: cost of one decoding sequence. ``b1_ms_per_1k``: cost of 1,000 tokens
    of its context. ``d_ms``: cost of one prefill token. ``kv_tokens``: tokens that the KV cache holds, in blocks of
    ``block_size``.
    """

    name: str
    a_ms: float
    b0_ms: float
    b1_ms_per_1k: float
    d_ms: float
    kv_tokens: int
    block_size: int = 16

    def step_seconds(self, *, decode_sequences: int, decode_context_tokens: int, prefill_tokens: int) -> float:
        """The duration of one step; ``decode_context_tokens`` is the sum over the decoding sequences.

        The profile ``demo``, 24 sequences of 1,200 tokens beside a 512-token chunk:
        24 + 24 * 0.7 + 28.8 * 0.25 + 512 * 0.05 = 73.6 ms.
        """
        milliseconds = (
            self.a_ms
            + self.b0_ms * decode_sequences
            + self.b1_ms_per_1k * decode_context_tokens / 1000
            + self.d_ms * prefill_tokens
        )
        return milliseconds / 1000


# demo: several times slower than a GPU, so that eight engines and their clients fit on two cores with room to spare,
# and with a batch term large enough that the cap is a real lever: at 1,200 tokens of context a decode-only step takes
# 32 ms with 8 sequences, 48 ms with 24, 88 ms with 64 and 152 ms with 128. fast: for tests that want many requests in
# little time.
PROFILES: Mapping[str, Profile] = {
    "demo": Profile("demo", a_ms=24.0, b0_ms=0.7, b1_ms_per_1k=0.25, d_ms=0.05, kv_tokens=262_144),
    "fast": Profile("fast", a_ms=3.0, b0_ms=0.05, b1_ms_per_1k=0.01, d_ms=0.002, kv_tokens=65_536),
}


def profile_from_environment(environment: Mapping[str, str] = os.environ) -> Profile:
    """The profile that ``TIERKEEPER_ENGINE_PROFILE`` names: ``NAME`` or ``NAME:field=value,...`` to change some
    constants.

    Raises ValueError for an unknown name or field, or a value that is not a number.
    """
    text = environment.get(PROFILE_VARIABLE, "demo")
    name, _, changes = text.partition(":")
    if name not in PROFILES:
        raise ValueError(f"{PROFILE_VARIABLE}={text!r}: no profile {name!r}; choose one of {', '.join(PROFILES)}")
    types = {field.name: field.type for field in fields(Profile) if field.name != "name"}
    values: dict[str, float] = {}
    for change in filter(None, changes.split(",")):
        key, _, value = change.partition("=")
        if key not in types:
            raise ValueError(f"{PROFILE_VARIABLE}={text!r}: no field {key!r}; choose one of {', '.join(types)}")
        values[key] = int(value) if types[key] is int else float(value)
    return replace(PROFILES[name], **values)  # type: ignore[arg-type]
