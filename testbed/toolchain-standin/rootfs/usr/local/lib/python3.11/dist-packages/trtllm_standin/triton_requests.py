"""Between Triton's tensors and the scheduler's requests: inputs and outputs of the `tensorrt_llm` model."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .sampling import SamplingParameters
from .scheduler import Output, Request, RequestRefusedError

Inputs = Mapping[str, npt.NDArray[Any]]

# Outputs that the stand-in does not compute are sent as zeros of the smallest shape, as the backend sends them
# when a request did not ask for them; without them an ensemble that maps them would never finish.
_ZERO_OUTPUTS: Mapping[str, tuple[type[np.generic], tuple[int, ...]]] = {
    "context_logits": (np.float32, (1, 1)),
    "generation_logits": (np.float32, (1, 1, 1)),
    "sequence_index": (np.int32, (1,)),
    "context_phase_params": (np.uint8, (1,)),
    "kv_cache_alloc_new_blocks": (np.int32, (1,)),
    "kv_cache_reused_blocks": (np.int32, (1,)),
    "kv_cache_alloc_total_blocks": (np.int32, (1,)),
    "arrival_time_ns": (np.int64, (1,)),
    "first_scheduled_time_ns": (np.int64, (1,)),
    "first_token_time_ns": (np.int64, (1,)),
    "last_token_time_ns": (np.int64, (1,)),
    "acceptance_rate": (np.float32, (1,)),
    "total_accepted_draft_tokens": (np.int32, (1,)),
    "total_draft_tokens": (np.int32, (1,)),
}
_UNSUPPORTED = (
    "draft_input_ids",
    "prompt_embedding_table",
    "lora_task_id",
    "guided_decoding_guide",
    "encoder_input_features",
)


@dataclass(frozen=True)
class RequestOptions:
    """What one row of a request asks of its responses."""

    row: int
    prompt: npt.NDArray[np.int64]
    max_new_tokens: int
    streaming: bool
    exclude_input: bool
    return_log_probs: bool
    end_id: int | None
    pad_id: int
    sampling: SamplingParameters
    stop_words: tuple[tuple[int, ...], ...]


def _scalar(inputs: Inputs, name: str, row: int) -> Any:
    """The row's value of an input with one element per row; None when it is absent."""
    values = inputs.get(name)
    if values is None:
        return None
    flat = values.reshape(-1)
    return flat[row].item() if len(flat) > row else flat[0].item()


def _words(inputs: Inputs, name: str, row: int, batched: bool) -> tuple[tuple[int, ...], ...]:
    """Token sequences from the (2, n) format: all tokens in a row, then each word's end offset, padded with -1."""
    values = inputs.get(name)
    if values is None or values.size == 0:
        return ()
    tokens, ends = (values[row] if batched else values).reshape(2, -1)
    words, begin = [], 0
    for end in ends:
        if end <= begin:
            break
        words.append(tuple(int(token) for token in tokens[begin:end]))
        begin = int(end)
    return tuple(words)


def parse_request(inputs: Inputs, *, batched: bool, exclude_input: bool) -> list[RequestOptions]:
    """One entry per row of the batch; `exclude_input` is the model's default.

    Raises:
        RequestRefusedError: a feature that the stand-in does not have.
    """
    for name in _UNSUPPORTED:
        if name in inputs and inputs[name].size:
            raise RequestRefusedError(f"STAND-IN: input {name} is not implemented")
    ids = inputs["input_ids"]
    rows = ids if batched else ids[None]
    result = []
    for row in range(len(rows)):

        def scalar(name: str, default: Any = None, row: int = row) -> Any:
            value = _scalar(inputs, name, row)
            return default if value is None else value

        for name in ("beam_width", "num_return_sequences"):
            if scalar(name, 1) > 1:
                raise RequestRefusedError(f"STAND-IN: {name} above 1 is not implemented")
        for name in ("return_context_logits", "return_generation_logits"):
            if scalar(name, False):
                raise RequestRefusedError(f"STAND-IN: {name} is not implemented")
        length = scalar("input_lengths", rows.shape[1])
        bias = inputs.get("embedding_bias")
        if bias is not None:
            bias = (bias[row] if batched else bias).reshape(-1).astype(np.float32)
        end_id = scalar("end_id")
        sampling = SamplingParameters(
            temperature=scalar("temperature", 1.0),
            top_k=scalar("runtime_top_k", 0),
            top_p=scalar("runtime_top_p", 0.0),
            seed=scalar("seed", 0),
            repetition_penalty=scalar("repetition_penalty", 1.0),
            presence_penalty=scalar("presence_penalty", 0.0),
            frequency_penalty=scalar("frequency_penalty", 0.0),
            min_tokens=scalar("min_tokens", 0),
            bad_words=_words(inputs, "bad_words_list", row, batched),
            embedding_bias=bias if bias is not None and bias.any() else None,
        )
        result.append(
            RequestOptions(
                row=row,
                prompt=rows[row].reshape(-1)[:length].astype(np.int64),
                max_new_tokens=scalar("request_output_len"),
                streaming=bool(scalar("streaming", False)),
                exclude_input=bool(scalar("exclude_input_in_output", exclude_input)),
                return_log_probs=bool(scalar("return_log_probs", False)),
                end_id=end_id if end_id is not None and end_id >= 0 else None,
                pad_id=scalar("pad_id", 0),
                sampling=sampling,
                stop_words=_words(inputs, "stop_words_list", row, batched),
            )
        )
    return result


def response_tensors(
    options: RequestOptions, output: Output, names: Sequence[str], *, batched: bool, generated: int, log_prob: float
) -> dict[str, npt.NDArray[Any]]:
    """Outputs of one response: the new tokens when streaming, else the whole sequence.

    Args:
        names: outputs that the client or the ensemble wants.
        generated: tokens generated so far, including `output`.
        log_prob: sum of the log probabilities so far.
    """
    tokens = np.array(output.tokens, np.int32)
    if not options.streaming and not options.exclude_input:
        tokens = np.concatenate([options.prompt.astype(np.int32), tokens])
    produced: dict[str, npt.NDArray[Any]] = {
        "output_ids": tokens.reshape(1, -1),
        "sequence_length": np.array([len(tokens)], np.int32),
        "cum_log_probs": np.array([log_prob], np.float32),
        "output_log_probs": np.array(output.log_probs, np.float32).reshape(1, -1),
        "batch_index": np.array([options.row], np.int32),
        "num_input_tokens": np.array([len(options.prompt)], np.int32),
        "num_output_tokens": np.array([generated], np.int32),
    }
    for name, (dtype, shape) in _ZERO_OUTPUTS.items():
        produced[name] = np.zeros(shape, dtype)
    return {name: produced[name][None] if batched else produced[name] for name in names if name in produced}


class Responder:
    """Triton's response sender for one request, let go of with the last response.

    A sender that lives keeps its model loaded: a server that is told to end would wait until Python happens to collect
    the cycle of callbacks that holds it.
    """

    def __init__(self, sender: Any, final_flag: int) -> None:
        self._sender, self._final_flag = sender, final_flag

    def send(self, response: Any) -> None:
        self._sender.send(response)

    def close(self, response: Any) -> None:
        """Send the last response."""
        sender, self._sender = self._sender, None
        sender.send(response, flags=self._final_flag)

    def is_cancelled(self) -> bool:
        """Whether the client went away before the last response."""
        sender = self._sender
        return sender is not None and bool(sender.is_cancelled())


class ResponseStream:
    """Sends the responses of one Triton request; the last row to end closes it."""

    def __init__(
        self,
        rows: Sequence[RequestOptions],
        send: Callable[[RequestOptions, Output, int, float, bool], None],
        send_error: Callable[[str, bool], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._send, self._send_error, self._is_cancelled = send, send_error, is_cancelled
        self._lock = threading.Lock()
        self._open_rows = len(rows)
        self._stopped = False
        self.requests = [self._request(options) for options in rows]

    def stop(self) -> None:
        """A client's `stop` for this request."""
        self._stopped = True

    @property
    def ended(self) -> bool:
        return self._open_rows == 0

    def refuse(self, message: str, rows: int) -> None:
        """End `rows` rows that were never queued."""
        for _ in range(rows):
            self._send_error(message, self._close_row())

    def _close_row(self) -> bool:
        with self._lock:
            self._open_rows -= 1
            return self._open_rows == 0

    def _request(self, options: RequestOptions) -> Request:
        generated, log_prob = 0, 0.0

        def on_output(output: Output) -> None:
            nonlocal generated, log_prob
            generated += len(output.tokens)
            log_prob += sum(output.log_probs)
            self._send(options, output, generated, log_prob, output.final and self._close_row())

        return Request(
            prompt=options.prompt,
            max_new_tokens=options.max_new_tokens,
            on_output=on_output,
            on_error=lambda message: self._send_error(message, self._close_row()),
            is_cancelled=lambda: self._stopped or self._is_cancelled(),
            streaming=options.streaming,
            sampling=options.sampling,
            end_id=options.end_id,
            stop_words=options.stop_words,
            return_log_probs=options.return_log_probs,
        )
