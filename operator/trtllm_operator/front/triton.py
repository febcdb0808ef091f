"""Requests to the model `tensorrt_llm` of a Triton server, over gRPC streams.

The model is asked directly, not through the ensemble: token counts are exact, and a client that goes away frees its
place at once. Messages are built and read without tritonclient's numpy layer, which costs more than all else together.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

MODEL_NAME = "tensorrt_llm"
MAX_MESSAGE_BYTES = 64 << 20
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 20_000, 10_000
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A node that is gone answers nothing: without this a stream would hang as long as TCP lets it.
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
)


class ServerError(Exception):
    """The server did not answer as it should.

    `unavailable`: it never began, so another server may be asked; `message` is its own.
    """

    def __init__(self, message: str, *, unavailable: bool) -> None:
        super().__init__(message)
        self.message = message
        self.unavailable = unavailable


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, in TensorRT-LLM's own words; None leaves its default."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None


@dataclass(frozen=True)
class Generation:
    """One answer that is wanted."""

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling
    end_id: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    """Further tokens that end the answer."""
    log_probs: bool = False


@dataclass(frozen=True)
class Tokens:
    """What one response brings."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]


class Server:
    """One Triton server; its connection is kept."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def close(self, grace_seconds: float | None = None) -> None:
        """Let streams end for so long, then close the connection."""
        await self._channel.close(grace_seconds)

    async def generate(self, wanted: Generation, request_id: str) -> AsyncGenerator[Tokens]:
        """The answer's tokens as they come. Leaving the iterator cancels the request on the server.

        Raises ServerError.
        """
        call = self._stub.ModelStreamInfer()
        began = complete = False
        try:
            await call.write(request_message(wanted, request_id))
            await call.done_writing()
            while (response := await call.read()) is not grpc.aio.EOF:
                if response.error_message:
                    raise ServerError(response.error_message, unavailable=not began and _passes(response.error_message))
                tokens = response_tokens(response.infer_response, with_log_probs=wanted.log_probs)
                if tokens.ids:
                    began = True
                    yield tokens
                # The server closes the stream after it: a cancellation on its heels costs Triton more than the wait.
                complete = complete or response.infer_response.parameters["triton_final_response"].bool_param
            if not complete:
                raise ServerError("the server ended the stream before the answer was complete", unavailable=not began)
        except grpc.aio.AioRpcError as error:
            said = f"{error.code().name}: {error.details()}"
            raise ServerError(
                said, unavailable=not began and error.code() is not grpc.StatusCode.INVALID_ARGUMENT
            ) from None
        finally:
            if not complete:
                call.cancel()


_PASSING = (
    "Server is stopping",
    "is not ready",
    "Exceeds maximum queue size",
    "unknown model",
    "has no available versions",
)


def _passes(message: str) -> bool:
    """Whether another server may take what this one refuses."""
    return any(part in message for part in _PASSING)


def request_message(wanted: Generation, request_id: str) -> Any:
    """A ModelInferRequest for one answer in a batch of one, streamed."""
    message = service_pb2.ModelInferRequest(model_name=MODEL_NAME, id=request_id)
    message.parameters["triton_enable_empty_final_response"].bool_param = True

    def add(name: str, datatype: str, raw: bytes, *shape: int) -> None:
        tensor = message.inputs.add()
        tensor.name, tensor.datatype = name, datatype
        tensor.shape.extend((1, *shape))
        message.raw_input_contents.append(raw)

    def number(name: str, datatype: str, form: str, value: float | None) -> None:
        if value is not None:
            add(name, datatype, struct.pack(form, value), 1)

    sampling = wanted.sampling
    prompt = wanted.prompt
    add("input_ids", "INT32", struct.pack(f"<{len(prompt)}i", *prompt), len(prompt))
    number("input_lengths", "INT32", "<i", len(prompt))
    number("request_output_len", "INT32", "<i", wanted.max_tokens)
    number("streaming", "BOOL", "<?", True)
    number("exclude_input_in_output", "BOOL", "<?", True)
    number("end_id", "INT32", "<i", wanted.end_id)
    number("pad_id", "INT32", "<i", wanted.end_id)
    number("temperature", "FP32", "<f", sampling.temperature)
    number("runtime_top_k", "INT32", "<i", sampling.top_k)
    number("runtime_top_p", "FP32", "<f", sampling.top_p)
    number("seed", "UINT64", "<Q", sampling.seed)
    number("repetition_penalty", "FP32", "<f", sampling.repetition_penalty)
    number("presence_penalty", "FP32", "<f", sampling.presence_penalty)
    number("frequency_penalty", "FP32", "<f", sampling.frequency_penalty)
    number("min_tokens", "INT32", "<i", sampling.min_tokens)
    if wanted.log_probs:
        number("return_log_probs", "BOOL", "<?", True)
    if wanted.stop_token_ids:
        ids = wanted.stop_token_ids
        ends = range(1, len(ids) + 1)
        add("stop_words_list", "INT32", struct.pack(f"<{2 * len(ids)}i", *ids, *ends), 2, len(ids))
    for name in ("output_ids", "sequence_length", *(("output_log_probs",) if wanted.log_probs else ())):
        message.outputs.add().name = name
    return message


def response_tokens(response: Any, *, with_log_probs: bool) -> Tokens:
    """The new tokens in a ModelInferResponse: output_ids (batch 1, beam 1, tokens), of which sequence_length count."""
    raw = dict(zip((tensor.name for tensor in response.outputs), response.raw_output_contents, strict=False))
    data = raw.get("output_ids", b"")
    count = len(data) // 4
    if length := raw.get("sequence_length"):
        count = min(count, struct.unpack_from("<i", length)[0])
    ids = struct.unpack_from(f"<{count}i", data)
    probabilities: tuple[float, ...] = ()
    if with_log_probs and (found := raw.get("output_log_probs")):
        probabilities = struct.unpack_from(f"<{min(count, len(found) // 4)}f", found)
    return Tokens(ids, probabilities)
