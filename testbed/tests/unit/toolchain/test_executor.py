"""Loading an engine for serving: what the runtime refuses, and what it makes of memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trtllm_standin.executor import EngineError, KvCacheParameters, LoadedEngine, load_engine
from trtllm_standin.gpus import Gpu, visible_gpus

from testbed.tests.unit.toolchain.standin import gpu

Engine = Callable[..., Path]


def gpus(*entries: dict[str, Any]) -> tuple[Gpu, ...]:
    return visible_gpus({"LLMENGINE_STANDIN_GPUS": json.dumps(entries or [gpu()])})


def load(directory: Path, on: tuple[Gpu, ...] | None = None, **parameters: Any) -> LoadedEngine:
    settings: dict[str, Any] = {
        "mpi_size": 1,
        "kv_cache": KvCacheParameters(),
        "max_queue_size": 0,
        "enable_chunked_context": False,
        "enable_kv_cache_reuse": True,
    }
    return load_engine(directory, on or gpus(), **settings | parameters)


def edit_plan(path: Path, old: bytes, new: bytes) -> None:
    """Change a stamp in place; both texts are of the same length."""
    assert len(old) == len(new)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def test_an_engine_for_another_gpu_generation_is_refused_device_first(engine: Engine) -> None:
    with pytest.raises(
        EngineError,
        match=r"Failed to deserialize cuda engine\. The engine plan file is generated on an incompatible device, "
        r"expecting compute 8\.0 got compute 9\.0, please rebuild\.",
    ):
        load(engine(), gpus(gpu("NVIDIA A100-SXM4-80GB", "8.0")))


def test_another_product_of_the_same_generation_only_warns(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    load(engine(), gpus(gpu("NVIDIA H200", "9.0")))
    assert "[WARNING] Using an engine plan file across different models of devices" in capsys.readouterr().err


def test_an_engine_of_another_tensorrt_is_refused_with_both_tags(engine: Engine) -> None:
    directory = engine()
    edit_plan(directory / "rank0.engine", b"10.14.1.48", b"10.11.0.33")
    with pytest.raises(
        EngineError, match=r"Version tag does not match\. Note: Current Version: 1014, Serialized Engine Version: 1011"
    ):
        load(directory)


def test_an_engine_of_another_tensorrt_llm_is_refused(engine: Engine) -> None:
    directory = engine()
    edit_plan(directory / "rank0.engine", b'"tensorrt_llm_version": "1.2.1"', b'"tensorrt_llm_version": "1.1.0"')
    with pytest.raises(EngineError, match=r"built by TensorRT-LLM 1\.1\.0, this is 1\.2\.1"):
        load(directory)


def test_the_version_in_config_json_is_only_logged(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    directory = engine()
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"version": "0.9.0"}))
    load(directory)
    assert "Engine version 0.9.0 found in the config file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "mpi_size", "message"),
    [
        (["--tp_size", "3"], 1, r"MPI size 1 != TP size 3 \* PP size 1 \* CP Size 1"),
        ([], 2, r"MPI size 2 != TP size 1 \* PP size 1 \* CP Size 1"),
    ],
)
def test_a_wrong_world_size_is_refused(engine: Engine, flags: list[str], mpi_size: int, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load(engine(*flags), mpi_size=mpi_size)


def test_missing_and_broken_files_are_named(engine: Engine) -> None:
    directory = engine("--tp_size", "3")
    (directory / "rank2.engine").unlink()
    with pytest.raises(EngineError, match=r"Error opening engine file: .*/rank2\.engine"):
        load(directory, mpi_size=3)
    shutil.copy(directory / "rank1.engine", directory / "rank2.engine")
    with (directory / "rank1.engine").open("ab") as file:
        file.truncate((directory / "rank1.engine").stat().st_size - 1)
    with pytest.raises(EngineError, match=r"Failed to deserialize cuda engine.*rank1\.engine has \d+ bytes"):
        load(directory, mpi_size=3)
    (directory / "config.json").write_text("")
    with pytest.raises(EngineError, match=r"parse_error\.101\] parse error at line 1, column 1"):
        load(directory, mpi_size=3)
    (directory / "config.json").unlink()
    with pytest.raises(EngineError, match=r"File does not exist: .*/config\.json"):
        load(directory, mpi_size=3)


def test_a_whole_engine_in_a_rank_s_place_does_not_load(engine: Engine) -> None:
    cut, whole = engine("--tp_size", "3"), engine()
    shutil.copy(cut / "config.json", whole / "config.json")
    for rank in (1, 2):
        shutil.copy(cut / f"rank{rank}.engine", whole / f"rank{rank}.engine")
    loaded = load(whole, mpi_size=3)
    assert loaded.model is not None, "as with a real plan, shapes alone are not compared at load"


def test_the_cache_takes_its_fraction_of_free_memory(engine: Engine) -> None:
    """81559 - 551 MiB less the engine, half of it, in blocks of 32 tokens of 3 layers, 3 heads of 4, 2 x 4 bytes."""
    directory = engine()
    free = (81559 - 551) * 2**20 - (directory / "rank0.engine").stat().st_size
    loaded = load(directory, kv_cache=KvCacheParameters(free_memory_fraction=0.5))
    assert loaded.pool.max_blocks == int(free * 0.5) // (32 * 2 * 3 * 3 * 4 * 4)


def test_an_fp8_cache_holds_four_times_as_much_as_float32(engine: Engine) -> None:
    exact, small = load(engine()).pool.max_blocks, load(engine("--fp8_kv_cache")).pool.max_blocks
    assert small == pytest.approx(4 * exact, rel=1e-3)


def test_a_small_cache_shortens_the_longest_sequence(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load(engine(), kv_cache=KvCacheParameters(max_tokens=33))
    assert (loaded.pool.max_blocks, loaded.limits.max_seq_len) == (2, 64)
    assert "too large for at least one sequence to fit in kvCache. They are reduced to 64" in capsys.readouterr().err


def test_an_engine_larger_than_the_gpu_is_refused(engine: Engine) -> None:
    tiny = gpu() | {"memory_total_mib": 551}
    with pytest.raises(EngineError, match="out of memory"):
        load(engine(), gpus(tiny))


@pytest.mark.parametrize(("chunked", "longest"), [(False, 64), (True, 95)])
def test_the_longest_prompt_follows_from_the_engine(engine: Engine, chunked: bool, longest: int) -> None:
    """max_num_tokens 64 bounds a prompt unless it is processed in chunks; max_seq_len 96 leaves one token to answer."""
    assert load(engine(), enable_chunked_context=chunked).limits.longest_prompt == longest


def test_chunks_need_paged_context(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load(engine("--fp8_kv_cache"), enable_chunked_context=True)
    assert not loaded.limits.chunked_context
    assert "Chunked context disabled" in capsys.readouterr().err
