"""Where tokens go: an open stream, or nowhere until the answer is complete."""

import asyncio

from e2e.engine.openai import Dialect


class Whole:
    """Waits for the end. ``done`` holds the finish reason."""

    def __init__(self) -> None:
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.output_tokens = 0

    def token(self) -> None:
        self.output_tokens += 1

    def finish(self, reason: str) -> None:
        if reason != "abort":
            self.output_tokens += 1
        if not self.done.done():
            self.done.set_result(reason)


class Stream(Whole):
    """Writes each token to the client at once.

    The chunks are framed for HTTP's chunked encoding ahead of time and go to the transport directly: one system call
    a token, no task switch. The response that owns the transport must have sent its headers.
    """

    def __init__(self, dialect: Dialect, transport: asyncio.WriteTransport) -> None:
        super().__init__()
        self._dialect = dialect
        self._transport = transport
        self._token = _framed(dialect.token())

    def token(self) -> None:
        chunk = self._token
        if self.output_tokens == 0:
            chunk = _framed(self._dialect.opening()) + chunk
        self.output_tokens += 1
        self._transport.write(chunk)

    def finish(self, reason: str) -> None:
        if self.done.done():
            return
        opening = _framed(self._dialect.opening()) if self.output_tokens == 0 else b""
        super().finish(reason)
        self._transport.write(opening + _framed(self._dialect.ending(reason, self.output_tokens)))


def _framed(data: bytes) -> bytes:
    """One chunk of HTTP's chunked encoding; nothing for nothing, because an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
