"""Engine profiles for simulated pools: models on GPU classes by name, or one of your own from a file.

The KV cache of a replica follows from its memory. vLLM takes 90 % of each GPU (its default gpu-memory-utilization);
off go the weights in BF16 and 2 GiB a GPU for activations and CUDA graphs. An 80 GB card shows 79.6 GiB. A token of
context takes 2 (key and value) x layers x 8 KV heads x 128 x 2 bytes: 131,072 bytes for the 8B models (32 layers),
327,680 for the 70B models (80 layers). Worked, 8B on 2 GPUs: 0.9 x 159.2 - 15.0 - 4 = 124.3 GiB, 1,018,000 tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tierkeeper.engine.latency import LLAMA_8B_2XA100, Profile

_GIB = 1 << 30
_GPU_GIB = 79.6
_UTILIZATION = 0.9
_OVERHEAD_GIB = 2.0
_SHOWN_CHARACTERS = 60


class ProfileError(ValueError):
    """A profile that cannot be used; the text names file, field, value and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """What one replica can do and hold."""

    latency: Profile
    """Constants of a step; its name is the profile's."""
    kv_tokens: int
    """KV cache of the replica in tokens, over all its GPUs."""
    gpus_per_replica: int
    source: str
    """Where the constants come from."""


@dataclass(frozen=True, slots=True)
class _Size:
    weights_gib: float
    kv_bytes_per_token: int


_8B = _Size(weights_gib=15.0, kv_bytes_per_token=131_072)  # 8.03e9 parameters x 2 bytes
_70B = _Size(weights_gib=131.5, kv_bytes_per_token=327_680)  # 70.6e9 parameters x 2 bytes


def _kv_tokens(size: _Size, gpus: int) -> int:
    """Tokens that fit beside the weights, in whole thousands."""
    free = (_UTILIZATION * _GPU_GIB - _OVERHEAD_GIB) * gpus - size.weights_gib
    return int(free * _GIB / size.kv_bytes_per_token) // 1000 * 1000


def _swept(name: str, size: _Size, gpus: int, constants: tuple[float, float, float, float]) -> EngineProfile:
    """A profile fitted to NVIDIA aiconfigurator 0.12's measured vLLM kernels (H100: vLLM 0.24; A100: 0.14; BF16).

    ``constants`` as in the fit: a ms, b0 ms/sequence, b1 us/sequence/token, d ms/prefill token; batch 1 to 256, mean
    context 192 to 4,224, prompts of 1k to 8k tokens; largest error of the fit 3 to 11 %.
    """
    base, sequence, context, prefill = constants
    return EngineProfile(
        latency=Profile(
            name=name,
            base_seconds=base * 1e-3,
            per_sequence_seconds=sequence * 1e-3,
            per_context_token_seconds=context * 1e-6,
            per_prefill_token_seconds=prefill * 1e-3,
        ),
        kv_tokens=_kv_tokens(size, gpus),
        gpus_per_replica=gpus,
        source="fitted to the measured kernels of NVIDIA aiconfigurator 0.12",
    )


#: By name. The 2 x A100 row is the shipped one, fitted to SageServe's measurements (MIT licence; see engine.latency).
#: The row of 8 x A100 is fitted to the medians of splitwise-sim's table of Llama-2-70B (MIT licence): decode a = 44.0
#: ms, 0.188 ms a sequence, 0.372 ms per 1,000 tokens of context (mean error 1.8 %), prefill 196.5 ms per 1,000 tokens
#: (13 %); a vLLM of 2023 with much more overhead on the host, so it is a slow replica rather than a current one.
PROFILES: Mapping[str, EngineProfile] = {
    "8b-2xa100": EngineProfile(
        latency=LLAMA_8B_2XA100,
        kv_tokens=_kv_tokens(_8B, 2),
        gpus_per_replica=2,
        source="fitted to SageServe's measurements (MIT licence)",
    ),
    "8b-a100": _swept("Llama-3.1-8B on 1 x A100", _8B, 1, (11.5, 0.032, 0.081, 0.067)),
    "8b-h100": _swept("Llama-3.1-8B on 1 x H100", _8B, 1, (6.35, 0.011, 0.041, 0.024)),
    "70b-4xa100": _swept("Llama-3.1-70B on 4 x A100", _70B, 4, (27.5, 0.095, 0.060, 0.165)),
    "70b-4xh100": _swept("Llama-3.1-70B on 4 x H100", _70B, 4, (15.2, 0.031, 0.027, 0.069)),
    "70b-8xh100": _swept("Llama-3.1-70B on 8 x H100", _70B, 8, (10.1, 0.023, 0.014, 0.041)),
    "70b-8xa100": EngineProfile(
        latency=Profile(
            name="Llama-2-70B on 8 x A100 (vLLM of 2023)",
            base_seconds=0.0440,
            per_sequence_seconds=0.000188,
            per_context_token_seconds=0.372e-6,
            per_prefill_token_seconds=196.5e-6,
        ),
        kv_tokens=_kv_tokens(_70B, 8),
        gpus_per_replica=8,
        source="fitted to splitwise-sim's measurements (MIT licence)",
    ),
}

DEFAULT_PROFILE = "8b-2xa100"


def find_profile(name_or_path: str) -> EngineProfile:
    """A profile by its name in PROFILES, or read from a file. Raises ProfileError."""
    if name_or_path in PROFILES:
        return PROFILES[name_or_path]
    if not Path(name_or_path).exists():
        raise ProfileError(
            f"profile {name_or_path!r}: neither a file nor a known name; give a YAML or JSON file or one of"
            f" {', '.join(PROFILES)}"
        )
    return read_profile(name_or_path)


def read_profile(path: str | Path) -> EngineProfile:
    """Read a profile from YAML or JSON; raises ProfileError naming file, field, value and remedy.

    ::

        name: Llama-3.1-8B on 2 x A100
        gpusPerReplica: 2                  # optional, 1
        kvTokens: 1018000                  # KV cache of a replica: vLLM logs it at start ("GPU KV cache size")
        stepMilliseconds:
          base: 8.5                        # a: a step, whatever is in it
          perSequence: 0.03                # b0: a decoding sequence
          perThousandContextTokens: 0.076  # b1: 1,000 tokens of context of a decoding sequence
          perThousandPrefillTokens: 62     # d: 1,000 prompt tokens in the step
    """
    known = {"name", "gpusPerReplica", "kvTokens", "stepMilliseconds"}
    whole = _Fields(path, "", _document(path), known)
    step = _Fields(
        path,
        "stepMilliseconds.",
        whole.get("stepMilliseconds"),
        {"base", "perSequence", "perThousandContextTokens", "perThousandPrefillTokens"},
    )
    return EngineProfile(
        latency=Profile(
            name=whole.text("name"),
            base_seconds=step.number("base", low=0.001) * 1e-3,
            per_sequence_seconds=step.number("perSequence") * 1e-3,
            per_context_token_seconds=step.number("perThousandContextTokens") * 1e-6,
            per_prefill_token_seconds=step.number("perThousandPrefillTokens") * 1e-6,
        ),
        kv_tokens=whole.whole("kvTokens", low=16, high=10**9),
        gpus_per_replica=whole.whole("gpusPerReplica", low=1, high=1024, default=1),
        source=str(path),
    )


class _Fields:
    """The fields of a mapping, each checked as it is taken."""

    def __init__(self, path: str | Path, prefix: str, value: Any, known: set[str]) -> None:
        self.path, self.prefix = path, prefix
        if not isinstance(value, dict):
            where = f"{prefix.rstrip('.')}: " if prefix else ""
            problem = "is empty" if value is None else f"{_shown(value)} is no mapping"
            raise ProfileError(f"{path}: {where}{problem}; give the fields {', '.join(sorted(known))}")
        self.fields = value
        for name in value:
            if name not in known:
                raise self.error(
                    str(name), "is not a known field", f"remove it or use one of {', '.join(sorted(known))}"
                )

    def error(self, name: str, problem: str, remedy: str) -> ProfileError:
        return ProfileError(f"{self.path}: {self.prefix}{name}: {problem}; {remedy}")

    def get(self, name: str) -> Any:
        if name not in self.fields:
            raise self.error(name, "is missing", "add it")
        return self.fields[name]

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str) or not value.strip():
            raise self.error(name, f"{_shown(value)} is no text", "write the model and its GPUs")
        return value.strip()

    def number(self, name: str, *, low: float = 0.0, high: float = 1e6) -> float:
        value = self.get(name)
        wanted = f"write milliseconds from {low:g} to {high:,.0f}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"{_shown(value)} is {_no_number(value)}", wanted)
        if not low <= value <= high:  # NaN is in no range
            raise self.error(name, f"{_shown(value)} is out of range", wanted)
        return float(value)

    def whole(self, name: str, *, low: int, high: int, default: int | None = None) -> int:
        if default is not None and name not in self.fields:
            return default
        value = self.get(name)
        wanted = f"write a whole number from {low:,} to {high:,}"
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"{_shown(value)} is no whole number", wanted)
        if not low <= value <= high:
            raise self.error(name, f"{_shown(value)} is out of range", wanted)
        return value


def _shown(value: Any) -> str:
    """The value, of a long one its beginning: a file of another kind is one long text to YAML."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _no_number(value: Any) -> str:
    try:
        float(value)
    except (TypeError, ValueError):
        return "no number"
    return "text to YAML, which takes 1.0e+6 for a number, and neither 1e6 nor what is in quotes"


def _document(path: str | Path) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        return json.loads(text) if Path(path).suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}; correct the path") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # JSON and UTF-8 errors are ValueErrors
        problem = " ".join(str(error).split())
        raise ProfileError(f"{path}: is neither YAML nor JSON: {problem[:200]}; correct it") from error
