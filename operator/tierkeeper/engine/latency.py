"""The latency model of one replica: how long a step of the running batch takes, and what TPOT follows from it.

A step of ``B`` decoding sequences lasts ``a + B * (b0 + b1 * context) + d * (prefill tokens in the step)``. Each
sequence gains one token a step, so the step time is the time per output token.

A profile gives the *shape* of that law. Decisions never use its absolute seconds: they scale a measured TPOT by a
ratio of the model, so an engine that is uniformly slower or faster than the profile is predicted just as well.
"""

from __future__ import annotations

from tierkeeper.values import value


@value(frozen=True, slots=True)
class Profile:
    """The constants of a model on a GPU class. Seconds, tokens."""

    name: str
    base_seconds: float
    """``a``: cost of a step whatever is in it."""
    per_sequence_seconds: float
    """``b0``: cost of one more decoding sequence."""
    per_context_token_seconds: float
    """``b1``: cost of one more token of context of one decoding sequence."""
    per_prefill_token_seconds: float
    """``d``: cost of one prefill token that shares the step."""


#: Fitted to SageServe's measured tables of Llama-3.1-8B on 2 x A100 (MIT licence): decode a = 8.5 ms, b0 = 0.03 ms,
#: b1 = 0.076 ms per 1,000 tokens, mean error 0.3 %; prefill d = 62 ms per 1,000 tokens, mean error 5.4 %. With 1,000
#: tokens of context a sequence costs 1.2 % of the base; the 70B rows on 8 x H100, 4 x H100 and 8 x A100 give 1.3, 1.4
#: and 1.3 %, so the shape holds across models.
LLAMA_8B_2XA100 = Profile(
    name="Llama-3.1-8B on 2 x A100",
    base_seconds=0.0085,
    per_sequence_seconds=0.00003,
    per_context_token_seconds=0.076e-6,
    per_prefill_token_seconds=62e-6,
)

#: Mean lengths of the Azure 2023 conversation trace, used until a pool has shown its own.
DEFAULT_PROMPT_TOKENS = 1155.0
DEFAULT_OUTPUT_TOKENS = 211.0


@value(frozen=True, slots=True)
class Lengths:
    """Mean tokens of a request. Output is at least one token."""

    prompt_tokens: float = DEFAULT_PROMPT_TOKENS
    output_tokens: float = DEFAULT_OUTPUT_TOKENS

    @property
    def context_tokens(self) -> float:
        """Mean context of a decoding sequence: the prompt and half of what it will write."""
        return self.prompt_tokens + self.output_tokens / 2

    @property
    def prompt_tokens_per_step(self) -> float:
        """Prompt tokens that each decoding sequence of a saturated replica stands for in a step."""
        return self.prompt_tokens / max(self.output_tokens, 1.0)


def decode_slope_seconds(profile: Profile, lengths: Lengths) -> float:
    """Seconds that one more decoding sequence adds to a step."""
    return profile.per_sequence_seconds + profile.per_context_token_seconds * lengths.context_tokens


def saturated_slope_seconds(profile: Profile, lengths: Lengths) -> float:
    """The same with the prefill that the sequence brings along. See ``saturated_tpot_seconds``."""
    return decode_slope_seconds(profile, lengths) + profile.per_prefill_token_seconds * lengths.prompt_tokens_per_step


def decode_step_seconds(profile: Profile, *, batch: float, lengths: Lengths) -> float:
    """Seconds of a step that only decodes ``batch`` sequences."""
    return profile.base_seconds + batch * decode_slope_seconds(profile, lengths)


def saturated_tpot_seconds(profile: Profile, *, batch: float, lengths: Lengths) -> float:
    """Mean TPOT in seconds of a replica whose queue keeps ``batch`` sequences running.

    In a steady state each step finishes ``batch / output`` requests and so admits as many new prompts, which makes
    ``batch * prompt / output`` prefill tokens a step. For the profile above, 1,155 prompt and 211 output tokens: 24
    sequences cost 8.5 + 24 * 0.126 + 24 * 5.47 * 0.062 = 19.7 ms, 64 cost 38.3 ms.
    """
    return profile.base_seconds + batch * saturated_slope_seconds(profile, lengths)


def tpot_growth(profile: Profile, *, batch_from: float, batch_to: float, lengths: Lengths) -> float:
    """Factor by which TPOT changes when the running batch goes from one size to another, both saturated."""
    before = saturated_tpot_seconds(profile, batch=batch_from, lengths=lengths)
    return saturated_tpot_seconds(profile, batch=batch_to, lengths=lengths) / before


def prefill_share(
    profile: Profile, *, batch: float, lengths: Lengths, tpot_seconds: float, prompt_tokens_per_second: float
) -> float:
    """Share of a replica's step time, in [0, 1), that goes into prefill beside ``batch`` decoding sequences.

    During one output token of ``tpot_seconds`` the replica takes in ``tpot_seconds * prompt_tokens_per_second``
    prompt tokens; their cost is weighed against the cost of decoding. An engine k times slower than the profile has
    both k times larger, so k drops out: x = TPOT * rate * d, share = x / (decode step + x).
    Worked: 24 sequences at 20 ms with 4,331 prompt tokens/s: x = 5.4 ms beside 11.5 ms of decoding, 32 %.
    """
    prefill = tpot_seconds * prompt_tokens_per_second * profile.per_prefill_token_seconds
    return prefill / (decode_step_seconds(profile, batch=batch, lengths=lengths) + prefill)
