"""A front on a port of this machine, over fake Triton servers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from openai import AsyncOpenAI
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from trtllm_operator.front.app import make_app
from trtllm_operator.front.backends import Backend, Limits, Routes
from trtllm_operator.front.dispatch import Dispatcher
from trtllm_operator.front.model_files import ModelText, read_model
from trtllm_operator.front.service import Service
from trtllm_operator.front.settings import Settings

from .triton import Asked, FakeTriton

NAME = "smol"
MODEL = "model-0123456789abcdef0123"
END = 257
LIMITS = Limits(max_batch_size=4, max_input_len=64, max_seq_len=96)
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
REQUEST_SECONDS = 20


def write_model(directory: Path, **config: Any) -> ModelText:
    """A tokenizer whose tokens are bytes, with a chat template; and what the front reads of it."""
    directory.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "config.json").write_text(json.dumps({"max_position_embeddings": 2048, **config}))
    return read_model(directory)


def says(text: ModelText, answer: str, *, ends: bool = True) -> Any:
    """A script: every request is answered with this text."""
    ids = text.encode(answer, special_tokens=False)

    def script(_: Asked) -> Sequence[int]:
        return [*ids, END] if ends else ids

    return script


def backend(triton: FakeTriton, target: str = "h100", limits: Limits = LIMITS) -> Backend:
    """The server as routes name it."""
    return Backend(triton.address, target, f"{NAME}-{target}-1", MODEL, limits)


@dataclass
class Front:
    """A running front and its clients."""

    url: str
    service: Service
    http: httpx.AsyncClient
    openai: AsyncOpenAI

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """A request with this JSON, or these bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(self.url + path, content=content, headers=headers)

    async def outcomes(self) -> dict[str, float]:
        """Requests by outcome, as /metrics counts them."""
        page = (await self.http.get(self.url + "/metrics")).text
        found: dict[str, float] = {}
        for line in page.splitlines():
            if line.startswith("llmengine_front_requests_total{"):
                outcome = line.split('outcome="')[1].split('"')[0]
                found[outcome] = found.get(outcome, 0) + float(line.rsplit(" ", 1)[1])
        return found


@asynccontextmanager
async def front(
    directory: Path,
    *backends: Backend,
    seconds: float = 120,
    request_seconds: float = REQUEST_SECONDS,
    **settings: Any,
) -> AsyncIterator[Front]:
    """A front with these routes; `directory` holds the models."""
    given = {"namespace": "default", "name": NAME, "model_names": (NAME,), "models_directory": directory, **settings}
    dispatcher = Dispatcher()
    models = lru_cache(lambda name: read_model(directory / name))
    service = Service(Settings(**given), dispatcher, models=models)
    service.update(Routes(backends, reason="Building: the engine is being built"))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # who connects before the server runs waits for it
    config = uvicorn.Config(make_app(service, ready=lambda: True), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(timeout=request_seconds) as http,
            AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=request_seconds) as client,
        ):
            yield Front(url, service, http, client)
    finally:
        server.should_exit = True
        await task
        await service.close()
        listener.close()
