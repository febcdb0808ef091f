"""From tokens to text, as they come: never half a character, nothing that may still turn out to be a stop text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

CONTEXT_TOKENS = 6
"""Of the prompt, given to the decoder first: whether a word begins with a space depends on what is before it."""


@dataclass(frozen=True)
class Piece:
    """What one step adds."""

    text: str
    stopped: bool = False
    """Whether a stop text has come; nothing follows."""


class TextStream:
    """The text of one answer."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._decoder = DecodeStream(ids=list(prompt[-CONTEXT_TOKENS:]), skip_special_tokens=True)
        self._pending: list[int] = []
        self._stops = tuple(stops)
        self._held = ""

    def push(self, token_ids: Sequence[int]) -> Piece:
        """The text that is certain once these tokens have come."""
        out: list[str] = []
        for token_id in token_ids:
            self._pending.append(token_id)
            text = self._decoder.step(self._tokenizer, token_id)
            if text is not None:
                self._pending.clear()
                out.append(text)
        return self._release("".join(out))

    def finish(self) -> Piece:
        """What was held back, at the end of the answer. A character that was cut becomes U+FFFD, as Triton's own
        postprocessing has it."""
        rest = self._tokenizer.decode(self._pending, skip_special_tokens=True) if self._pending else ""
        self._pending.clear()
        piece = self._release(rest)
        held, self._held = self._held, ""
        return Piece(piece.text + held, piece.stopped)

    def _release(self, new: str) -> Piece:
        if not self._stops:
            return Piece(new)
        text = self._held + new
        # The one that is complete first, so that it makes no difference in which pieces the text comes.
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self._held = ""
            return Piece(text[: min(ends)[1]], stopped=True)
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return Piece(text[: len(text) - keep])


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` with which `stop` may begin."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
