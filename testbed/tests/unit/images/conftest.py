"""A hub on loopback, with three small repositories: one for everyone, one private, one gated."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from safetensors.numpy import save_file

from testbed.hub.access import Tokens
from testbed.hub.repository import Repository
from testbed.hub.server import Hub, load_repositories

GRANTED_TOKEN = "hf_granted"
STRANGER_TOKEN = "hf_stranger"
PUBLIC, PRIVATE, GATED = "open/tiny", "closed/tiny", "gated/tiny"


@dataclass(frozen=True)
class RunningHub:
    endpoint: str
    repositories: dict[str, Repository]
    directory: Path
    tokens: Path


def write_repository(directory: Path) -> None:
    """A model of a few kilobytes, with a file in a directory."""
    (directory / "original").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8}))
    (directory / "original" / "params.json").write_text("{}")
    weights = {"model.embed_tokens.weight": np.arange(4096, dtype=np.float16).reshape(512, 8)}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    directory = tmp_path_factory.mktemp("hub")
    for name in (PUBLIC, PRIVATE, GATED):
        write_repository(directory / name)
    (directory / "repositories.json").write_text(json.dumps({PRIVATE: "private", GATED: "gated"}))
    tokens = directory / "tokens.json"
    tokens.write_text(
        json.dumps(
            {
                GRANTED_TOKEN: {"name": "ada", "repositories": [PRIVATE, GATED]},
                STRANGER_TOKEN: {"name": "eve", "repositories": []},
            }
        )
    )
    repositories, visibility = load_repositories(directory)
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(Hub(repositories, visibility, Tokens(tokens)).application())
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    port = runner.addresses[0][1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield RunningHub(f"http://127.0.0.1:{port}", repositories, directory, tokens)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()
