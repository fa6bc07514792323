"""Times of single steps of a running vLLM, by batches whose content is known: what ``fit`` fits the constants to.

Three experiments, each with the engine otherwise idle:

- *decode*: B requests of one length at once. Once all prompts are in, each gap between tokens is a step of B.
- *prompt*: a lone prompt. Its TTFT is ``prompt / budget`` steps, and the way to the engine and back.
- *mixed*: a prompt arrives beside B running streams. The streams' gaps up to its first token are the steps it sat in.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import aiohttp

from bench.policy.fit import Sample
from e2e.load.client import Outcome, TokenWatcher, body

STRETCH = 8
"""Gaps that make one sample of decoding: one alone is a scheduler's tick of the machine away from the next."""
SAME_STEP_SECONDS = 0.002
"""Tokens of one step reach the clients within this time."""
SETTLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests of one length that start together; with ``joined``, prompts that come one by one beside them."""

    streams: int
    prompt: int
    output: int
    joined: tuple[int, ...] = ()


@dataclass(slots=True)
class Answer:
    """One stream: when it was sent and when each of its tokens came, monotonic seconds."""

    prompt: int
    sent: float = 0.0
    tokens: list[float] = field(default_factory=list)


class CalibrationError(Exception):
    """An answer from which no step can be read; the text says which and why."""


async def measure(url: str, model: str, batches: Iterable[Batch], *, budget: int) -> list[Sample]:
    """Play the batches one after the other. ``budget``: the engine's max_num_batched_tokens."""
    samples: list[Sample] = []
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        ask = _Asker(session, url, model)
        for batch in batches:
            streams, joined = await _play(ask, batch)
            if batch.streams == 1 and not batch.joined:
                samples.append(lone_prompt(streams[0], budget=budget))
            if not batch.joined:
                samples += decoding(streams)
            samples += [found for one in joined if (found := mixed(streams, one, budget=budget)) is not None]
            await asyncio.sleep(SETTLE_SECONDS)
    return samples


def lone_prompt(answer: Answer, *, budget: int) -> Sample:
    """The TTFT of a request that had the engine for itself. A chunk that does not end the prompt gives no token."""
    return Sample(
        seconds=answer.tokens[0] - answer.sent,
        steps=math.ceil(answer.prompt / budget),
        sequences=1,
        context=answer.prompt,
        prefill=answer.prompt,
        fronts=1,
    )


def decoding(answers: Sequence[Answer]) -> list[Sample]:
    """Stretches of steps that only decode: after the last prompt is in and before the first stream ends."""
    clock = max(answers, key=lambda answer: answer.tokens[0]).tokens
    end = min(answer.tokens[-1] for answer in answers)
    gaps = [place for place in range(len(clock) - 1) if clock[place + 1] <= end + SAME_STEP_SECONDS]
    found = []
    for start in range(0, len(gaps) - STRETCH + 1, STRETCH):
        steps = gaps[start : start + STRETCH]
        found.append(
            Sample(
                seconds=clock[steps[-1] + 1] - clock[steps[0]],
                steps=len(steps),
                sequences=len(steps) * len(answers),
                context=sum(_context(answers, clock[step]) for step in steps),
            )
        )
    return found


def mixed(answers: Sequence[Answer], joined: Answer, *, budget: int) -> Sample | None:
    """The steps in which a prompt was computed beside running streams; None where a stream began or ended then.

    The prompt gets what the streams leave of the budget in each step. Its first token comes with theirs.
    """
    clock, first = answers[0].tokens, joined.tokens[0]
    last = bisect_right(clock, first + SAME_STEP_SECONDS) - 1
    steps = math.ceil(joined.prompt / (budget - len(answers)))
    if last - steps < 0:
        return None
    begin, end = clock[last - steps], clock[last]
    if any(answer.tokens[0] > begin or answer.tokens[-1] < end for answer in answers):
        return None
    return Sample(
        seconds=end - begin,
        steps=steps,
        sequences=steps * len(answers) + 1,
        context=sum(_context(answers, clock[step]) for step in range(last - steps, last)) + joined.prompt,
        prefill=joined.prompt,
    )


def _context(answers: Sequence[Answer], at: float) -> float:
    """Tokens of all streams at a token's time, that step's included."""
    return sum(answer.prompt + bisect_right(answer.tokens, at + SAME_STEP_SECONDS) for answer in answers)


async def _play(ask: _Asker, batch: Batch) -> tuple[list[Answer], list[Answer]]:
    begun = [asyncio.Event() for _ in range(batch.streams)]
    joined = []
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(ask(batch.prompt, batch.output, event)) for event in begun]
            if batch.joined:
                await asyncio.gather(*(event.wait() for event in begun))
            for prompt in batch.joined:
                await asyncio.sleep(SETTLE_SECONDS)
                joined.append(await ask(prompt, 1, asyncio.Event()))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in running], joined


class _Asker:
    """Sends requests, each with another prompt, and notes when each token comes."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self._session, self._url, self._model = session, url, model
        self._number = 0

    async def __call__(self, prompt: int, output: int, begun: asyncio.Event) -> Answer:
        """Sets ``begun`` at the first token. Raises CalibrationError where the answer is refused, or where tokens came
        several at a time, so that no step can be told from the next."""
        self._number += 1
        payload = body(model=self._model, prompt_tokens=prompt, output_tokens=output, number=self._number)
        answer, outcome = Answer(prompt), Outcome()
        watcher = TokenWatcher(outcome, lambda _: begun.set())
        headers = {"Content-Type": "application/json"}
        answer.sent = time.monotonic()
        async with self._session.post(f"{self._url}/v1/completions", data=payload, headers=headers) as response:
            if response.status != 200:
                raise CalibrationError(f"a prompt of {prompt} tokens: HTTP {response.status}")
            async for data in response.content.iter_any():
                now, before = time.monotonic(), outcome.tokens
                watcher.feed(data, now)
                answer.tokens += [now] * (outcome.tokens - before)
        if len(answer.tokens) != output:
            raise CalibrationError(f"{output} tokens came in {len(answer.tokens)} pieces; quieten the machine")
        return answer
