"""One streamed completion: send, watch the tokens come, say how it ended."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from e2e.load.report import Status

_ONE_MORE = b'"finish_reason":null'
_EVENT_END = b"\n\n"
# Leading token ids that differ from request to request, so that no server takes a prompt from its prefix cache.
_DISTINCT_TOKENS = 8


@dataclass(slots=True)
class Outcome:
    """How a request went. Times are ``time.monotonic()`` seconds, 0.0 where there was no token."""

    status: Status = Status.ERROR
    first_token: float = 0.0
    last_token: float = 0.0
    tokens: int = 0
    error: str = ""


def body(*, model: str, prompt_tokens: int, output_tokens: int, number: int) -> bytes:
    """A completion request with a prompt of exactly that many token ids; ``number`` makes the prompt a new one.

    Token ids instead of text: exact on every tokenizer, and two bytes a token on the wire.
    """
    digits = [str(number // 10**place % 10) for place in range(min(_DISTINCT_TOKENS, prompt_tokens))]
    prompt = ",".join(digits) + ",1" * (prompt_tokens - len(digits))
    name = f'"model":{json.dumps(model)},' if model else ""
    return (
        f'{{{name}"prompt":[{prompt}],"max_tokens":{output_tokens},"ignore_eos":true,"temperature":0,'
        f'"stream":true,"stream_options":{{"include_usage":true}}}}'
    ).encode()


class TokenWatcher:
    """Takes a stream of server-sent events in any pieces, and notes times, tokens and the finish reason."""

    def __init__(self, outcome: Outcome, on_first_token: Callable[[float], None]) -> None:
        self.finish_reason: str | None = None
        self._outcome = outcome
        self._on_first_token = on_first_token
        self._rest = b""

    def feed(self, data: bytes, now: float) -> None:
        """Bytes that came now."""
        *events, self._rest = (self._rest + data).split(_EVENT_END)
        for event in events:
            if _ONE_MORE in event:
                self._token(now)
            elif event.startswith(b"data: {"):
                self._rare(json.loads(event[6:]), now)

    def _token(self, now: float) -> None:
        if not self._outcome.first_token:
            self._outcome.first_token = now
            self._on_first_token(now)
        self._outcome.last_token = now
        self._outcome.tokens += 1

    def _rare(self, event: dict[str, object], now: float) -> None:
        """The chunk with the finish reason, the usage, or an error in the stream."""
        usage, choices = event.get("usage"), event.get("choices")
        if isinstance(choices, list) and choices:
            self.finish_reason = choices[0].get("finish_reason")
            if self.finish_reason != "abort":
                self._token(now)
        if isinstance(usage, dict):
            self._outcome.tokens = usage["completion_tokens"]
        if "error" in event:
            self._outcome.error = str(event["error"])


async def complete(
    session: aiohttp.ClientSession,
    url: str,
    payload: bytes,
    *,
    outcome: Outcome,
    on_first_token: Callable[[float], None],
) -> None:
    """Sends the request and fills in the outcome as the answer comes. Raises nothing but CancelledError."""
    watcher = TokenWatcher(outcome, on_first_token)
    began = False
    try:
        headers = {"Content-Type": "application/json"}
        async with session.post(f"{url}/v1/completions", data=payload, headers=headers) as response:
            if response.status != 200:
                outcome.status = Status.REJECTED if response.status in (429, 503) else Status.ERROR
                outcome.error = f"HTTP {response.status}"
                return
            began = True
            async for data in response.content.iter_any():
                watcher.feed(data, time.monotonic())
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
        outcome.status = Status.CUT if began else Status.ERROR
    else:
        finished = watcher.finish_reason not in (None, "abort")
        outcome.status = Status.OK if finished else Status.CUT
        if not finished:
            outcome.error = outcome.error or f"stream ended with finish reason {watcher.finish_reason}"
