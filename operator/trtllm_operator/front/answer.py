"""One answer: from the tokens of a server to text, the reason why it ended, and the counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from typing import Literal

from .model_files import ModelText
from .text_stream import TextStream
from .triton import Generation, Tokens

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class TokenLogprob:
    """A token of the answer with its log-probability."""

    token_id: int
    log_prob: float


@dataclass(frozen=True)
class Delta:
    """What is new of an answer."""

    text: str
    tokens: int = 0
    """Tokens that came."""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    """Set on the last one."""


async def deltas(
    wanted: Generation, stream: AsyncIterable[Tokens], model: ModelText, stops: tuple[str, ...], ends: frozenset[int]
) -> AsyncGenerator[Delta]:
    """The answer piece by piece; the last piece has the reason why it ended.

    `ends` are the tokens that end an answer. They are neither counted nor shown; whether TensorRT-LLM sends them makes
    no difference. A stop text is not shown; the tokens that it was made of are counted.
    """
    text = TextStream(model.tokenizer, wanted.prompt, stops)
    count = 0
    reason: FinishReason | None = None
    async for new in stream:
        if reason:
            continue  # the server has ended the answer, and says so
        ids = new.ids
        at = next((i for i, token in enumerate(ids) if token in ends), None)
        if at is not None:
            ids, reason = ids[:at], "stop"
        count += len(ids)
        piece = text.push(ids)
        if piece.stopped:
            reason = "stop"
        logprobs = tuple(map(TokenLogprob, ids, new.log_probs))
        if piece.stopped:
            yield Delta(piece.text, len(ids), logprobs, reason)
            return
        if piece.text or ids:
            yield Delta(piece.text, len(ids), logprobs)
    rest = text.finish()
    if reason is None:
        reason = "length" if count >= wanted.max_tokens and not rest.stopped else "stop"
    yield Delta(rest.text, finish_reason=reason)
