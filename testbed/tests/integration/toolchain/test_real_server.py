"""SmolLM2 through the stand-in's image: converted, built, and served by the real Triton server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.container import Container
from testbed.tests.integration.toolchain.conftest import A100, H100, BuildEngine
from testbed.triton import (
    ANSWER,
    QUESTION,
    command,
    fill_repository,
    free_ports,
    repository_values,
    serving,
)

GPUS = [H100 | {"index": index, "uuid": f"{H100['uuid']}"[:-1] + str(index)} for index in range(3)]


def test_commands_are_where_the_real_image_has_them(container: Container) -> None:
    listed = container.run("nvidia-smi", "-L", gpus=[H100])
    assert listed.stdout == f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {H100['uuid']})\n"
    assert container.run("nvidia-smi").returncode == 9
    version = container.run("python3", "-c", "import tensorrt_llm; print(tensorrt_llm.__version__)")
    assert version.stdout == "[TensorRT-LLM] TensorRT-LLM version: 1.2.1\n1.2.1\n"
    assert "STAND-IN" in version.stderr
    for program in (
        ["trtllm-build"],
        ["mpirun"],
        ["python3", "/app/examples/models/core/llama/convert_checkpoint.py"],
        ["python3", "/app/examples/quantization/quantize.py"],
        ["python3", "/app/tools/fill_template.py"],
    ):
        shown = container.run(*program, "--help")
        assert shown.returncode == 0, f"{program}: {shown.stderr}"
        assert "STAND-IN" in shown.stdout, f"{program} does not say what it is"


@pytest.mark.parametrize(
    ("name", "flags", "ranks"),
    [
        ("tp1", [], 1),
        ("tp3", ["--tp_size", "3"], 3),
        ("int8", ["--use_weight_only"], 1),
        ("fp8", ["--use_fp8_rowwise", "--fp8_kv_cache"], 1),
    ],
)
def test_smollm2_answers(
    container: Container, work: Path, build_engine: BuildEngine, name: str, flags: list[str], ranks: int
) -> None:
    engine = build_engine(name, *flags)
    fill_repository(container, work / f"{name}-repository", repository_values(engine))
    with serving(container, work / f"{name}-repository", GPUS[:ranks], ranks=ranks) as server:
        assert server.generate(QUESTION, 20) == ANSWER
        pieces = server.stream(QUESTION, 20)
        assert "".join(pieces) == ANSWER
        assert len(pieces) > 3, "tokens arrive one by one"


def test_a_server_under_load_keeps_its_limits(container: Container, work: Path, build_engine: BuildEngine) -> None:
    """Two places and two more in the queue: concurrency, refusals, cancellation and length limits in one server."""
    engine = build_engine("small", max_batch_size=2)
    values = repository_values(engine, max_queue_size="2", max_tokens_in_paged_kv_cache="1024")
    fill_repository(container, work / "small-repository", values)
    with serving(container, work / "small-repository", [H100]) as server:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(lambda question: server.generate(question, 20), [QUESTION] * 2)) == [ANSWER] * 2

        with ExitStack() as streams:
            for number in range(2):
                answers = streams.enter_context(server.token_stream([1, 2, number], 400))
                answers.get(timeout=30)
            assert server.gauge("nv_trt_llm_kv_cache_block_metrics", "max") == 32
            for waiting in (1, 2):
                streams.enter_context(server.token_stream([7], 2))
                server.wait_for_gauge("nv_trt_llm_request_metrics", "waiting", waiting)
            refused = streams.enter_context(server.token_stream([8], 2)).get(timeout=30)
            assert "Exceeds maximum queue size" in str(refused)
        server.wait_for_gauge("nv_trt_llm_request_metrics", "active", 0)
        assert server.gauge("nv_trt_llm_kv_cache_block_metrics", "used") == 0, "cancelled requests give all back"

        too_long = server.stream_error("word " * 600, 10)
        assert "Prompt length (601) exceeds maximum input length (511)" in too_long
        server.generate("word " * 500, 200)
        assert "Number of requested output tokens is changed to (11)." in server.log.read_text()


@pytest.mark.parametrize(
    ("gpus", "ranks", "message"),
    [
        ([A100], 1, "expecting compute 8.0 got compute 9.0, please rebuild."),
        (GPUS, 3, "MPI size 3 != TP size 1 * PP size 1 * CP Size 1"),
        ([], 1, "no CUDA-capable device is detected"),
    ],
)
def test_an_engine_that_does_not_fit_ends_the_server(
    container: Container,
    work: Path,
    build_engine: BuildEngine,
    gpus: list[dict[str, object]],
    ranks: int,
    message: str,
) -> None:
    engine = build_engine("tp1")
    repository = work / f"refused-{ranks}-{len(gpus)}-repository"
    fill_repository(container, repository, repository_values(engine))
    words = command(repository.name, ranks, free_ports())
    done = container.run(*words, gpus=gpus)
    assert done.returncode == 1
    assert "unexpected error when creating modelInstanceState: [TensorRT-LLM][ERROR] " in done.stderr + done.stdout
    assert message in done.stderr + done.stdout


def test_a_build_that_outgrows_its_memory_is_killed(container: Container) -> None:
    """The weights are really held, twice: the build needs more than 538 MB, and an address-space limit shows it."""
    script = "/app/examples/models/core/llama/convert_checkpoint.py"
    container.run("python3", script, "--model_dir", "/model", "--output_dir", "/bench/memory.checkpoint")
    build = (
        "trtllm-build --checkpoint_dir /bench/memory.checkpoint --output_dir /bench/memory --output_timing_cache /tmp/c"
    )
    done = container.run("sh", "-c", f"cd /tmp; ulimit -d 450000; OPENBLAS_NUM_THREADS=1 exec {build}", gpus=[H100])
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
