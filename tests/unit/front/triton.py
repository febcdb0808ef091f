"""A Triton server that speaks the real protocol and answers as a test tells it: no model, no waiting."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

Script = Callable[["Asked"], Sequence[int]]


@dataclass(frozen=True)
class Asked:
    """A request as the server read it."""

    prompt: tuple[int, ...]
    max_tokens: int
    values: dict[str, Any]


@dataclass
class FakeTriton:
    """Answers each request with the tokens of `script`, one a response."""

    script: Script
    asked: list[Asked] = field(default_factory=list)
    cancelled: int = 0
    open_streams: int = 0
    refusal: str | None = None
    """Error that every request gets before its first token."""
    breaks_after: int | None = None
    """Tokens after which the stream ends with an error."""
    hold: asyncio.Event | None = None
    """Set before each token after the first where the test wants answers to last."""
    address: str = ""
    _server: Any = None

    async def __aenter__(self) -> FakeTriton:
        self._server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Servicer(self), self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.address = f"127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)

    async def stop(self) -> None:
        """Close the port and cut every stream."""
        await self._server.stop(0)


class _Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # the library has no types
    def __init__(self, triton: FakeTriton) -> None:
        self._triton = triton

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        triton = self._triton
        triton.open_streams += 1
        finished = False
        try:
            async for request in requests:
                async for response in self._answer(request):
                    yield response
            finished = True
        finally:
            triton.open_streams -= 1
            if not finished:
                triton.cancelled += 1

    async def _answer(self, request: Any) -> AsyncIterator[Any]:
        triton = self._triton
        asked = read(request)
        triton.asked.append(asked)
        if triton.refusal:
            yield service_pb2.ModelStreamInferResponse(error_message=triton.refusal)
            return
        for number, token in enumerate(triton.script(asked)[: asked.max_tokens]):
            if triton.breaks_after is not None and number >= triton.breaks_after:
                yield service_pb2.ModelStreamInferResponse(error_message="the GPU fell off the bus")
                return
            if number and triton.hold:
                await triton.hold.wait()
            yield _response(request.id, (token,), final=False)
        yield _response(request.id, (), final=True)


def read(request: Any) -> Asked:
    """The inputs of a ModelInferRequest, by their types."""
    forms = {"INT32": "i", "UINT64": "Q", "FP32": "f", "BOOL": "?"}
    values: dict[str, Any] = {}
    for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        form = forms[tensor.datatype]
        numbers = struct.unpack(f"<{len(raw) // struct.calcsize(form)}{form}", raw)
        count = 1
        for size in tensor.shape:
            count *= size
        assert count == len(numbers), f"{tensor.name} has shape {list(tensor.shape)} and {len(numbers)} values"
        values[tensor.name] = list(numbers) if len(tensor.shape) > 2 or tensor.name == "input_ids" else numbers[0]
    assert values["input_lengths"] == len(values["input_ids"])
    return Asked(tuple(values["input_ids"]), values["request_output_len"], values)


def _response(request_id: str, tokens: Sequence[int], *, final: bool) -> Any:
    out = service_pb2.ModelInferResponse(model_name="tensorrt_llm", id=request_id)
    out.parameters["triton_final_response"].bool_param = final
    if tokens:
        for name, datatype, raw, shape in (
            ("output_ids", "INT32", struct.pack(f"<{len(tokens)}i", *tokens), (1, 1, len(tokens))),
            ("sequence_length", "INT32", struct.pack("<i", len(tokens)), (1, 1)),
            ("output_log_probs", "FP32", struct.pack(f"<{len(tokens)}f", *[-0.5] * len(tokens)), (1, 1, len(tokens))),
        ):
            tensor = out.outputs.add()
            tensor.name, tensor.datatype = name, datatype
            tensor.shape.extend(shape)
            out.raw_output_contents.append(raw)
    return service_pb2.ModelStreamInferResponse(infer_response=out)
