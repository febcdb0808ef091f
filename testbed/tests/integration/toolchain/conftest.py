"""The stand-in's image, unpacked; SmolLM2 converted and built in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.container import Container, unpack
from testbed.images.build import build_all, ensure_model, select
from testbed.images.cache import Cache, cache_directory
from testbed.progress import PROGRESS

H100 = {
    "index": 0,
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "name": "NVIDIA H100 80GB HBM3",
    "compute_cap": "9.0",
    "memory_total_mib": 81559,
    "memory_reserved_mib": 551,
    "driver_version": "580.159.04",
}
A100 = H100 | {"name": "NVIDIA A100-SXM4-80GB", "compute_cap": "8.0", "memory_total_mib": 81920}
LIMITS = {"max_batch_size": 4, "max_input_len": 512, "max_seq_len": 512, "max_num_tokens": 512}

BuildEngine = Callable[..., str]


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seen as /work in the container."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def container(tmp_path_factory: pytest.TempPathFactory, work: Path) -> Container:
    cache = Cache(cache_directory())
    model = ensure_model(cache, PROGRESS)
    image = build_all(cache, select(["toolchain-standin"]), PROGRESS)["toolchain-standin"]
    root = tmp_path_factory.mktemp("image") / "root"
    unpack(image, root)
    return Container(root, {"/model": model, "/bench": work})


@pytest.fixture(scope="session")
def build_engine(container: Container, work: Path) -> BuildEngine:
    """Converts and builds SmolLM2 with the image's commands and returns the engine's name under /work."""
    script = "/app/examples/models/core/llama/convert_checkpoint.py"

    def build(name: str, *convert_flags: str, gpu: dict[str, object] = H100, **limits: int) -> str:
        if (work / name).is_dir():
            return name
        done = container.run(
            *("python3", script, "--model_dir", "/model", "--output_dir", f"/bench/{name}.checkpoint", *convert_flags)
        )
        assert done.returncode == 0, done.stderr
        flags = [word for key, value in (LIMITS | limits).items() for word in (f"--{key}", str(value))]
        cache = ["--output_timing_cache", f"/bench/{name}.cache"]
        done = container.run(
            *("trtllm-build", "--checkpoint_dir", f"/bench/{name}.checkpoint", "--output_dir", f"/bench/{name}"),
            *flags,
            *cache,
            gpus=[gpu],
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shutil.rmtree(work / f"{name}.checkpoint")
        return name

    return build
