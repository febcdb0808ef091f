"""Text that comes in pieces is the text that the tokenizer makes of the whole, up to the first stop text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtllm_operator.front.model_files import ModelText
from trtllm_operator.front.text_stream import TextStream

from .world import write_model


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return write_model(tmp_path_factory.mktemp("model"))


def streamed(text: ModelText, ids: list[int], stops: tuple[str, ...], sizes: list[int]) -> tuple[str, bool]:
    stream = TextStream(text.tokenizer, [], stops)
    out, at = "", 0
    for size in [*sizes, len(ids)]:
        piece = stream.push(ids[at : at + size])
        at += size
        out += piece.text
        if piece.stopped:
            return out, True
    last = stream.finish()
    return out + last.text, last.stopped


@settings(max_examples=300)
@given(st.text(max_size=40), st.lists(st.text("ab ü🙂", min_size=1, max_size=4), max_size=3), st.data())
def test_pieces_make_the_whole(text: ModelText, answer: str, stops: list[str], data: st.DataObject) -> None:
    ids = text.encode(answer, special_tokens=False)
    sizes = data.draw(st.lists(st.integers(0, 5), max_size=20))
    # What is complete first ends the answer, as it would letter by letter.
    ends = [(at + len(stop), at) for stop in stops if (at := answer.find(stop)) >= 0]
    expected = (answer[: min(ends)[1]], True) if ends else (answer, False)
    assert streamed(text, ids, tuple(stops), sizes) == expected
