"""Models in small, and the hub that serves them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from safetensors.numpy import save_file

from testbed.hub.access import Tokens
from testbed.hub.server import Hub, load_repositories

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rope_scaling": None,
    "vocab_size": 256,
    "bos_token": "<s>",
}
REPO = "owner/model"
GOOD_TOKEN, POOR_TOKEN = "hf_good", "hf_poor"


def write_model(directory: Path, *, shards: int = 2, layers: int = 2, padding_bytes: int = 0) -> Path:
    """A Llama-shaped model of a few kilobytes, in real safetensors files with a real index."""
    directory.mkdir(parents=True)
    tensors = {"model.embed_tokens.weight": np.ones((256, 64), np.float16)}
    for layer in range(layers):
        tensors[f"model.layers.{layer}.mlp.down_proj.weight"] = np.full((64, 128), layer, np.float16)
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = np.ones(64, np.float32)
    if padding_bytes:
        tensors["padding"] = np.arange(padding_bytes // 4, dtype=np.int32)
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        mine = names[shard::shards]
        save_file({name: tensors[name] for name in mine}, directory / file)
        weight_map |= dict.fromkeys(mine, file)
    if shards > 1:
        (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (directory / "config.json").write_text(json.dumps(CONFIG))
    (directory / "tokenizer.json").write_text('{"version": "1.0"}')
    (directory / "tokenizer_config.json").write_text("{}")
    (directory / "README.md").write_text("# not wanted")
    (directory / "modeling_custom.py").write_text("raise SystemExit('never run')")
    (directory / "pytorch_model.bin").write_bytes(b"a pickle")
    return directory


Intercept = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


async def let_pass(_request: web.Request) -> web.StreamResponse | None:
    """Leave a request to the hub."""
    return None


class HubServer:
    """testbed/hub in a thread. `intercept` may answer a request itself."""

    def __init__(self, root: Path) -> None:
        self.repositories = root / "repositories"
        self.repositories.mkdir()
        self.tokens = root / "tokens.json"
        users = {GOOD_TOKEN: {"name": "ada", "repositories": [REPO]}, POOR_TOKEN: {"name": "bob", "repositories": []}}
        self.tokens.write_text(json.dumps(users))
        self.intercept: Intercept = let_pass
        self.requests: list[web.Request] = []
        self.endpoint = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None

    def add(self, name: str = REPO, visibility: str = "public", **model: Any) -> Path:
        directory = write_model(self.repositories / name, **model)
        settings = self.repositories / "repositories.json"
        known = json.loads(settings.read_text()) if settings.exists() else {}
        settings.write_text(json.dumps(known | {name: visibility}))
        return directory

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(30)

    def stop(self) -> None:
        if self._runner is not None:
            asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(30)
        self._loop.close()

    async def _serve(self) -> None:
        @web.middleware
        async def watch(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            self.requests.append(request)
            return await self.intercept(request) or await handler(request)

        application = Hub(*load_repositories(self.repositories), Tokens(self.tokens)).application()
        application.middlewares.insert(0, watch)
        self._runner = web.AppRunner(application, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self.endpoint = f"http://127.0.0.1:{port}"


class Steps:
    """Runs steps as their container does: a process with the hub and the token in its environment."""

    def __init__(self, root: Path, endpoint: str) -> None:
        self.root, self.store = root, root / "store"
        self.store.mkdir()
        self._environment = {
            **os.environ,
            "PYTHONPATH": "operator",
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(root / "hf"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    def token(self, token: str) -> None:
        path = self.root / "token"
        path.write_text(f"{token}\n")
        self._environment["HF_TOKEN_PATH"] = str(path)

    def run(self, step: str, **spec: Any) -> tuple[int, dict[str, Any], str]:
        """Exit status, the report, and everything printed."""
        self.log.unlink(missing_ok=True)
        process = self.start(step, **spec)
        output, _ = process.communicate(timeout=120)
        return process.returncode, json.loads(self.log.read_bytes()), output

    @property
    def log(self) -> Path:
        return self.root / "termination-log"

    def start(self, step: str, **spec: Any) -> subprocess.Popen[str]:
        module = [sys.executable, "-m", "trtllm_operator.steps", step]
        return subprocess.Popen(
            [*module, "--termination-log", self.log, "--spec", json.dumps(spec)],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def inspect(self, repo: str = REPO, revision: str = "main") -> tuple[int, dict[str, Any], str]:
        return self.run("inspect", model={"huggingFace": {"repo": repo, "revision": revision}}, root="/model")

    def fetch(self, commit: str, repo: str = REPO) -> tuple[int, dict[str, Any], str]:
        return self.run("fetch", **self.fetch_spec(commit, repo))

    def fetch_spec(self, commit: str, repo: str = REPO) -> dict[str, Any]:
        model = {"huggingFace": {"repo": repo, "commit": commit}}
        where = {"store": {"directory": str(self.store)}, "root": "/model", "scratch": str(self.root)}
        return {"artifact": "model-1", "inputs": {"model": model}, "model": model, **where}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    """A hub that the test fills, then starts."""
    server = HubServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def steps(tmp_path: Path, hub: HubServer) -> Callable[[], Steps]:
    """Starts the hub and gives what runs steps against it."""

    def start() -> Steps:
        hub.start()
        return Steps(tmp_path, hub.endpoint)

    return start
