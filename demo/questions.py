"""Asking a served model: through its OpenAI endpoint, and over Triton's own HTTP and gRPC streams."""

from __future__ import annotations

import http.client
import json
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from openai import OpenAI

MODEL = "ensemble"
CHAT = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
END_OF_ANSWER = 2
"""Token <|im_end|> of SmolLM2."""


def by_openai(port: int, model: str, question: str, *, max_tokens: int = 32, host: str = "127.0.0.1") -> Iterator[str]:
    """The answer in pieces, by the official OpenAI client."""
    with OpenAI(base_url=f"http://{host}:{port}/v1", api_key="none", max_retries=0, timeout=120) as client:
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            max_tokens=max_tokens,
            temperature=0,
            stream=True,
        )
        for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                yield text


def by_http(port: int, question: str, *, max_tokens: int = 32, host: str = "127.0.0.1") -> Iterator[str]:
    """The answer in pieces, by POST /v2/models/ensemble/generate_stream (server-sent events)."""
    connection = http.client.HTTPConnection(host, port, timeout=120)
    body = {
        "text_input": CHAT.format(question=question),
        "max_tokens": max_tokens,
        "bad_words": "",
        "stop_words": "",
        "end_id": END_OF_ANSWER,
        "stream": True,
    }
    connection.request(
        "POST", f"/v2/models/{MODEL}/generate_stream", json.dumps(body), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    for line in response:
        if line.startswith(b"data:"):
            event = json.loads(line[5:])
            if "error" in event:
                raise RuntimeError(event["error"])
            yield event["text_output"]
    if response.status != 200:
        raise RuntimeError(f"HTTP {response.status}")
    connection.close()


def by_grpc(port: int, question: str, *, max_tokens: int = 32, host: str = "127.0.0.1") -> Iterator[str]:
    """The answer in pieces, by tritonclient's gRPC stream."""
    answers: queue.Queue[tuple[object, object]] = queue.Queue()
    with grpcclient.InferenceServerClient(f"{host}:{port}") as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        inputs = [
            _tensor("text_input", "BYTES", np.array([[CHAT.format(question=question).encode()]], dtype=object)),
            _tensor("max_tokens", "INT32", np.array([[max_tokens]], dtype=np.int32)),
            _tensor("end_id", "INT32", np.array([[END_OF_ANSWER]], dtype=np.int32)),
            _tensor("stream", "BOOL", np.array([[True]])),
        ]
        client.async_stream_infer(MODEL, inputs, enable_empty_final_response=True)
        while True:
            result, error = answers.get(timeout=120)
            if error is not None:
                raise RuntimeError(str(error))
            assert isinstance(result, grpcclient.InferResult)
            response = result.get_response()
            if (text := result.as_numpy("text_output")) is not None and text.size:
                yield b"".join(text.flatten()).decode()
            if response.parameters["triton_final_response"].bool_param:
                break
        client.stop_stream()


def _tensor(name: str, datatype: str, value: np.ndarray[Any, Any]) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, list(value.shape), datatype)
    tensor.set_data_from_numpy(value)
    return tensor
