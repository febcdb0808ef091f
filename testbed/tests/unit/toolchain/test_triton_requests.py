"""Between Triton's tensors and the scheduler: names, shapes, batches, ends."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from trtllm_standin.scheduler import Output, RequestRefusedError
from trtllm_standin.triton_requests import Responder, ResponseStream, parse_request, response_tensors

BATCHED: dict[str, Any] = {
    "input_ids": np.array([[1, 2, 3], [4, 5, 0]], np.int32),
    "input_lengths": np.array([3, 2], np.int32),
    "request_output_len": np.array([7, 8], np.int32),
}


def test_rows_of_a_batch_are_requests_of_their_own() -> None:
    first, second = parse_request(BATCHED, batched=True, exclude_input=False)
    assert (first.prompt.tolist(), second.prompt.tolist()) == ([1, 2, 3], [4, 5]), "padding is cut by input_lengths"
    assert (first.max_new_tokens, second.max_new_tokens) == (7, 8)
    assert (first.streaming, first.end_id, first.sampling.plain) == (False, None, True)


def test_a_model_without_batching() -> None:
    inputs = {"input_ids": np.array([1, 2]), "input_lengths": np.array(2), "request_output_len": np.array(5)}
    (row,) = parse_request(inputs, batched=False, exclude_input=True)
    assert (row.prompt.tolist(), row.max_new_tokens, row.exclude_input) == ([1, 2], 5, True)


def test_options_are_read_under_the_backend_s_names() -> None:
    inputs = BATCHED | {
        "temperature": np.array([[0.5], [0.7]], np.float32),
        "runtime_top_k": np.array([[5], [6]], np.int32),
        "seed": np.array([[11], [12]], np.uint64),
        "end_id": np.array([[2], [-1]], np.int32),
        "streaming": np.array([[True], [True]]),
        # Two words, [9] and [8, 7]: tokens, then where each word ends.
        "stop_words_list": np.array([[[9, 8, 7], [1, 3, -1]], [[0, 0, 0], [-1, -1, -1]]], np.int32),
    }
    first, second = parse_request(inputs, batched=True, exclude_input=False)
    assert (first.sampling.temperature, first.sampling.top_k, first.sampling.seed) == (0.5, 5, 11)
    assert (second.sampling.top_k, second.sampling.seed) == (6, 12)
    assert (first.end_id, second.end_id) == (2, None), "a negative end token never ends"
    assert first.streaming
    assert first.stop_words == ((9,), (8, 7))
    assert second.stop_words == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_width", np.array([[4], [4]], np.int32)),
        ("return_context_logits", np.array([[True], [True]])),
        ("lora_task_id", np.array([[1], [1]], np.uint64)),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestRefusedError, match=f"STAND-IN:.*{name}"):
        parse_request(BATCHED | {name: value}, batched=True, exclude_input=False)


def test_a_whole_answer_has_the_prompt_unless_excluded() -> None:
    output = Output([8, 9], [-0.5, -0.25], final=True)
    wanted = ["output_ids", "sequence_length", "cum_log_probs", "generation_logits", "batch_index", "nosuch"]
    for exclude, expected in ((False, [1, 2, 3, 8, 9]), (True, [8, 9])):
        row = parse_request(BATCHED, batched=True, exclude_input=exclude)[0]
        tensors = response_tensors(row, output, wanted, batched=True, generated=2, log_prob=-0.75)
        assert tensors["output_ids"].tolist() == [[expected]]
        assert tensors["sequence_length"].tolist() == [[len(expected)]]
        assert tensors["cum_log_probs"].tolist() == [[-0.75]]
        assert tensors["generation_logits"].shape == (1, 1, 1, 1)
        assert tensors.keys() == set(wanted) - {"nosuch"}


def test_a_streamed_answer_never_repeats_the_prompt() -> None:
    row = parse_request(BATCHED | {"streaming": np.array([[True]] * 2)}, batched=True, exclude_input=False)[1]
    tensors = response_tensors(
        row, Output([8], [0.0], final=False), ["output_ids", "batch_index"], batched=True, generated=1, log_prob=0.0
    )
    assert tensors["output_ids"].tolist() == [[[8]]]
    assert tensors["batch_index"].tolist() == [[1]]


def test_the_last_row_to_end_closes_the_request() -> None:
    sent: list[tuple[int, bool]] = []
    stream = ResponseStream(
        parse_request(BATCHED, batched=True, exclude_input=False),
        lambda options, output, generated, log_prob, last: sent.append((options.row, last)),
        lambda message, last: sent.append((-1, last)),
        lambda: False,
    )
    first, second = stream.requests
    second.on_output(Output([1], [0.0], final=True))
    first.on_output(Output([1], [0.0], final=False))
    first.on_error("it broke")
    assert sent == [(1, False), (0, False), (-1, True)]
    assert not first.is_cancelled()
    stream.stop()
    assert first.is_cancelled()


def test_triton_s_sender_is_let_go_of_with_the_last_response() -> None:
    """A sender that lives keeps the model loaded, and a server that is told to end waits for it."""

    class Sender:
        sent: list[tuple[str, int]] = []

        def send(self, response: str, flags: int = 0) -> None:
            Sender.sent.append((response, flags))

        def is_cancelled(self) -> bool:
            return True

    gc.disable()
    try:
        sender = Sender()
        responder, alive = Responder(sender, final_flag=1), weakref.ref(sender)
        del sender
        stream = ResponseStream(
            parse_request(BATCHED, batched=True, exclude_input=False),
            lambda options, output, generated, log_prob, last: (responder.close if last else responder.send)("token"),
            lambda message, last: (responder.close if last else responder.send)(message),
            responder.is_cancelled,
        )
        first, second = stream.requests
        assert first.is_cancelled()
        first.on_output(Output([1], [0.0], final=True))
        assert alive() is not None
        second.on_error("it broke")
        assert Sender.sent == [("token", 0), ("it broke", 1)]
        assert alive() is None, "nothing but the collector of cycles would end it"
        assert not second.is_cancelled()
    finally:
        gc.enable()
