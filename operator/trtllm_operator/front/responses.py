"""Answers in OpenAI's shapes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from .answer import TokenLogprob
from .model_files import ModelText

Kind = Literal["chat", "completion"]
DONE = b"data: [DONE]\n\n"
_quoted = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True)
class Usage:
    """Token counts of one request over all its choices."""

    prompt_tokens: int
    completion_tokens: int
    granted_max_tokens: int | None = None
    """The most that could come, where that is less than was asked for."""

    def dump(self) -> dict[str, Any]:
        """As OpenAI's `usage`."""
        out: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }
        if self.granted_max_tokens is not None:
            out["granted_max_tokens"] = self.granted_max_tokens
        return out


@dataclass(frozen=True)
class Shape:
    """How one request's answers look."""

    kind: Kind
    request_id: str
    model_name: str
    created: int
    text: ModelText
    wants_logprobs: bool = False

    def first_chunk(self, index: int) -> bytes | None:
        """What a stream begins with: the role, in a chat."""
        if self.kind == "completion":
            return None
        return self._event([{"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])

    def chunk(
        self, index: int, text: str, logprobs: Sequence[TokenLogprob], finish_reason: str | None, offset: int
    ) -> bytes:
        """An event of a stream. `offset` is how many characters of the answer came before."""
        if self.wants_logprobs or finish_reason is not None:
            choice: dict[str, Any] = {"index": index, "finish_reason": finish_reason}
            if self.kind == "chat":
                choice["delta"] = {"content": text} if text else {}
            else:
                choice["text"] = text
            if self.wants_logprobs:
                choice["logprobs"] = self._logprobs(logprobs, offset)
            return self._event([choice])
        # Nearly all chunks are text alone: all but that is the same each time.
        content = f'"delta":{{"content":{_quoted(text)}}}' if self.kind == "chat" else f'"text":{_quoted(text)}'
        return f'{self._prefix}{{"index":{index},"finish_reason":null,{content}}}]}}\n\n'.encode()

    @cached_property
    def _prefix(self) -> str:
        """An event up to its choices."""
        head = json.dumps(self._head("chat.completion.chunk", "text_completion"), ensure_ascii=False)
        return f'data: {head[:-1]},"choices":['

    def usage_chunk(self, usage: Usage) -> bytes:
        """The event that ends a stream whose client asked for the counts."""
        return self._event([], usage.dump())

    def whole(self, choices: Sequence[tuple[str, Sequence[TokenLogprob], str]], usage: Usage) -> dict[str, Any]:
        """The body of an answer that is not streamed; of each choice its text, log-probabilities and reason."""
        out = []
        for index, (text, logprobs, reason) in enumerate(choices):
            choice: dict[str, Any] = {"index": index, "finish_reason": reason, "logprobs": None}
            if self.kind == "chat":
                choice["message"] = {"role": "assistant", "content": text, "refusal": None}
            else:
                choice["text"] = text
            if self.wants_logprobs:
                choice["logprobs"] = self._logprobs(logprobs, 0)
            out.append(choice)
        return {**self._head("chat.completion", "text_completion"), "choices": out, "usage": usage.dump()}

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        body = {**self._head("chat.completion.chunk", "text_completion"), "choices": choices}
        if usage is not None:
            body["usage"] = usage
        return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"

    def _head(self, chat: str, completion: str) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": chat if self.kind == "chat" else completion,
            "created": self.created,
            "model": self.model_name,
        }

    def _logprobs(self, logprobs: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
        texts = [self.text.tokenizer.decode([one.token_id], skip_special_tokens=False) for one in logprobs]
        if self.kind == "chat":
            return {
                "content": [
                    {"token": t, "logprob": one.log_prob, "bytes": list(t.encode()), "top_logprobs": []}
                    for t, one in zip(texts, logprobs, strict=True)
                ],
                "refusal": None,
            }
        offsets = []
        for text in texts:
            offsets.append(offset)
            offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [one.log_prob for one in logprobs],
            "top_logprobs": None,
            "text_offset": offsets,
        }


def error_event(body: dict[str, Any]) -> bytes:
    """The event that ends a stream that broke: never in silence, and without `[DONE]`."""
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
