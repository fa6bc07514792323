"""The OpenAI dialects: what a request asks for, and the bytes that answer it."""

import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

OUTPUT_TEXT = " tok"
CHARACTERS_PER_TOKEN = 4
DEFAULT_COMPLETION_TOKENS = 16


class ApiError(Exception):
    """An answer that is not a completion."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind

    def body(self) -> bytes:
        """vLLM's error object."""
        error = {"message": self.message, "type": self.kind, "param": None, "code": self.status}
        return json.dumps({"error": error}).encode()


@dataclass(frozen=True, slots=True)
class Ask:
    """A parsed request: lengths in tokens."""

    model: str
    prompt_tokens: int
    max_tokens: int
    stream: bool
    include_usage: bool


def parse(raw: bytes, *, chat: bool, served: tuple[str, ...], max_model_len: int) -> Ask:
    """Raises ApiError 400 for a body that vLLM refuses, 404 for a model that is not served.

    The prompt's length is exact for a list of token ids and a fourth of the characters for text. Every output is as
    long as ``max_tokens`` says (vLLM's ``ignore_eos``).
    """
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "the body is not a JSON object")
    model = body.get("model") or served[0]
    if model not in served:
        raise ApiError(404, f"The model `{model}` does not exist.", "NotFoundError")
    prompt = _chat_length(body.get("messages")) if chat else _prompt_length(body.get("prompt"))
    default = max_model_len - prompt if chat else DEFAULT_COMPLETION_TOKENS
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or default
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ApiError(400, f"max_tokens must be at least 1, got {limit!r}.")
    if prompt + limit > max_model_len:
        raise ApiError(
            400,
            f"This model's maximum context length is {max_model_len} tokens, but the prompt has {prompt} and "
            f"{limit} output tokens were asked for.",
        )
    options = body.get("stream_options") or {}
    return Ask(model, prompt, limit, bool(body.get("stream")), bool(options.get("include_usage")))


def _text_length(text: str) -> int:
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def _prompt_length(prompt: object) -> int:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list | str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return _text_length(prompt)
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return len(prompt)
    raise ApiError(
        400, "prompt must be a string or a non-empty list of token ids; several prompts in one request are not served."
    )


def _chat_length(messages: object) -> int:
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a non-empty list.")
    return sum(_text_length(str(m.get("content", "") if isinstance(m, dict) else m)) for m in messages)


class Dialect(ABC):
    """Builds the answers of one request. Chunks are encoded once, then sent as they are."""

    path: ClassVar[str]
    id_prefix: ClassVar[str]
    stream_object: ClassVar[str]
    full_object: ClassVar[str]

    def __init__(self, request_id: str, ask: Ask) -> None:
        self.ask = ask
        self._head: dict[str, Any] = {
            "id": f"{self.id_prefix}-{request_id}",
            "object": self.stream_object,
            "created": int(time.time()),
            "model": ask.model,
        }

    @abstractmethod
    def choice(self, finish_reason: str | None, *, streamed: bool, text: str) -> dict[str, Any]:
        """The one entry of ``choices``."""

    def opening(self) -> bytes:
        """What comes ahead of the first token."""
        return b""

    def token(self) -> bytes:
        """A chunk with one token, not the last."""
        return self._event([self.choice(None, streamed=True, text=OUTPUT_TEXT)])

    def ending(self, reason: str, output_tokens: int) -> bytes:
        """The finish reason with the last token (none for an abort), the usage if asked for, and the end mark."""
        text = "" if reason == "abort" else OUTPUT_TEXT
        events = self._event([self.choice(reason, streamed=True, text=text)])
        if self.ask.include_usage:
            events += self._event([], usage=self._usage(output_tokens))
        return events + b"data: [DONE]\n\n"

    def full(self, reason: str, output_tokens: int) -> bytes:
        """The answer in one piece."""
        choice = self.choice(reason, streamed=False, text=OUTPUT_TEXT * output_tokens)
        body = {**self._head, "object": self.full_object, "choices": [choice], "usage": self._usage(output_tokens)}
        return json.dumps(body, separators=(",", ":")).encode()

    def _event(self, choices: list[dict[str, Any]], **more: object) -> bytes:
        return (
            b"data: " + json.dumps({**self._head, "choices": choices, **more}, separators=(",", ":")).encode() + b"\n\n"
        )

    def _usage(self, output_tokens: int) -> dict[str, int]:
        prompt = self.ask.prompt_tokens
        return {"prompt_tokens": prompt, "total_tokens": prompt + output_tokens, "completion_tokens": output_tokens}


class Completions(Dialect):
    """``/v1/completions``."""

    path = "/v1/completions"
    id_prefix = "cmpl"
    stream_object = full_object = "text_completion"

    def choice(self, finish_reason: str | None, *, streamed: bool, text: str) -> dict[str, Any]:  # noqa: ARG002
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}


class Chat(Dialect):
    """``/v1/chat/completions``."""

    path = "/v1/chat/completions"
    id_prefix = "chatcmpl"
    stream_object = "chat.completion.chunk"
    full_object = "chat.completion"

    def opening(self) -> bytes:
        delta = {"role": "assistant", "content": ""}
        return self._event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def choice(self, finish_reason: str | None, *, streamed: bool, text: str) -> dict[str, Any]:
        key, content = ("delta", {"content": text}) if streamed else ("message", {"role": "assistant", "content": text})
        return {"index": 0, key: content, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
