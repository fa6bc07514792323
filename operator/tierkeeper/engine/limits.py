"""The live limits as a ConfigMap holds them: one key a limit, its value in decimal.

The plugin in each vLLM process reads these keys as files. The ConfigMap is also where the operator keeps the current
setting: a restarted operator reads it back from here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_NUM_SEQS_KEY = "max-num-seqs"
MAX_NUM_BATCHED_TOKENS_KEY = "max-num-batched-tokens"

NUDGE_ANNOTATION = "tierkeeper.dev/limits"
"""Pod annotation whose change makes the kubelet refresh the mounted limits at once (0.6 s, against 72 s without)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What every pod of a pool should obey."""

    max_num_seqs: int
    """Requests in the running batch."""
    max_num_batched_tokens: int | None = None
    """Tokens the scheduler may place in one step; None: the value the engine started with."""


def limit_data(limits: Limits) -> dict[str, str]:
    """The ConfigMap's ``data``. An absent token budget tells the plugin to go back to the engine's own value."""
    data = {MAX_NUM_SEQS_KEY: str(limits.max_num_seqs)}
    if limits.max_num_batched_tokens is not None:
        data[MAX_NUM_BATCHED_TOKENS_KEY] = str(limits.max_num_batched_tokens)
    return data


def parse_limits(data: Mapping[str, str] | None) -> Limits | None:
    """Read ``data`` back. None where it holds no usable max-num-seqs: there is no setting to take over."""
    values = {key: _positive(text) for key, text in (data or {}).items()}
    max_num_seqs = values.get(MAX_NUM_SEQS_KEY)
    if max_num_seqs is None:
        return None
    return Limits(max_num_seqs=max_num_seqs, max_num_batched_tokens=values.get(MAX_NUM_BATCHED_TOKENS_KEY))


def nudge_value(limits: Limits) -> str:
    """Value of the nudge annotation: it changes exactly when the limits do."""
    return ",".join(f"{key}={value}" for key, value in sorted(limit_data(limits).items()))


def _positive(text: str) -> int | None:
    """At most nine digits: no limit has more, and no status could show it."""
    match = re.fullmatch(r"\s*0*([1-9][0-9]{0,8})\s*", text)
    return int(match[1]) if match else None
