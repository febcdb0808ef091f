"""serve as a container runs it: the zipapp, published artifacts, and a tritonserver that is a small script."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.runner.serve import command
from trtllm_operator.steps.store import Content
from trtllm_operator.steps.volume_store import VolumeStore

from .conftest import A100, H100, H100_CLASS, Image
from .test_repository import VALUES, Templates

SERVING = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("drained", flush=True), sys.exit(0)))
print("serving", sys.argv[1:], flush=True)
while True:
    signal.pause()
"""


class Server:
    """A store with an engine and its tokenizer, in an image with templates."""

    def __init__(self, image: Image, world_size: int = 1, /, **built: str) -> None:
        self.image = image
        self.store = VolumeStore(image.root / "store")
        self.templates = Templates(image.root)
        config = {"version": "1.2.1", "pretrained_config": {"mapping": {"world_size": world_size}}}
        files = {"config.json": json.dumps(config)} | {f"rank{r}.engine": "engine" * 1000 for r in range(world_size)}
        self.publish("engine-1", "Engine", files, gpu="NVIDIA H100 80GB HBM3", computeCapability="9.0", **built)
        self.publish("model-1", "Model", {"tokenizer.json": "{}", "model.safetensors": "weights"})
        self.tritonserver = image.command("tritonserver", SERVING)
        self.spec: dict[str, Any] = {
            "engine": str(self.store.directory("engine-1")),
            "tokenizer": str(self.store.directory("model-1")),
            "world_size": world_size,
            "gpu": H100_CLASS,
            "release": "1.2.1",
            "templates": str(self.templates.root),
            "fill_template": str(self.templates.script),
            "models": {"tensorrt_llm": VALUES},
            "repository": str(image.scratch / "repository"),
            "http_port": 8000,
            "grpc_port": 8001,
            "metrics_port": 8002,
            "exit_timeout_seconds": 120,
            "tritonserver": str(self.tritonserver),
        }

    def publish(self, name: str, kind: str, files: dict[str, str], **build: Any) -> None:
        output = self.image.root / "made" / name
        output.mkdir(parents=True)
        for path, content in files.items():
            (output / path).write_text(content)
        self.store.publish(Content(name, kind, {}, build), output, "test")

    def fails(self, **changes: Any) -> tuple[int, str, str]:
        """Exit status, reason and message of a server that does not come up."""
        status, report, output = self.image.run("serve", {**self.spec, **changes})
        assert "failure" in report, output
        return status, report["failure"]["reason"], report["failure"]["message"]


@pytest.fixture
def server(image: Image) -> Server:
    return Server(image)


class TestRefusedBeforeTheServerStarts:
    def test_a_file_that_is_not_what_was_published(self, server: Server) -> None:
        path = Path(server.spec["engine"], "rank0.engine")
        path.write_text(path.read_text().replace("e", "E", 1))
        status, reason, message = server.fails()
        assert (status, reason) == (75, "ArtifactCorrupted")
        assert "rank0.engine has SHA-256" in message

    @pytest.mark.parametrize("of", ["engine", "tokenizer"])
    def test_another_copy_than_the_one_that_was_published(self, server: Server, of: str) -> None:
        directory = Path(server.spec[of])
        recorded = hashlib.sha256((directory / "manifest.json").read_bytes()).hexdigest()
        assert "was recorded" not in server.fails(digests={directory.name: recorded}, world_size=2)[2]
        status, reason, message = server.fails(digests={directory.name: "0" * 64})
        assert (status, reason) == (75, "ArtifactCorrupted")
        assert f"{'0' * 64} was recorded when {directory.name} was published" in message

    def test_a_file_that_was_cut_off(self, server: Server) -> None:
        Path(server.spec["engine"], "rank0.engine").write_text("eng")
        assert "rank0.engine has 3 bytes, the manifest says 6000" in server.fails()[2]

    def test_a_file_that_is_gone(self, server: Server) -> None:
        Path(server.spec["engine"], "rank0.engine").unlink()
        assert "rank0.engine cannot be read (No such file or directory)" in server.fails()[2]

    def test_an_engine_that_is_not_there(self, server: Server) -> None:
        status, reason, message = server.fails(engine="/store/engine-2")
        assert (status, reason) == (75, "ArtifactCorrupted")
        assert "/store/engine-2/manifest.json is not there" in message

    def test_another_gpu_than_the_engine_is_for(self, server: Server) -> None:
        server.image.has_gpus(A100)
        _, reason, message = server.fails()
        assert reason == "GpuMismatch"
        assert "NVIDIA-H100-80GB-HBM3 (compute capability 9.0)" in message
        assert "NVIDIA A100-SXM4-80GB" in message

    def test_an_engine_that_was_built_on_another_gpu(self, server: Server) -> None:
        server.image.has_gpus(A100)
        a100 = {"product": "NVIDIA-A100-SXM4-80GB", "computeCapability": "8.0"}
        _, reason, message = server.fails(gpu=a100)
        assert reason == "EngineMismatch"
        assert "built on NVIDIA H100 80GB HBM3 (compute capability 9.0)" in message

    def test_fewer_gpus_than_ranks(self, image: Image) -> None:
        status, reason, message = Server(image, 2).fails()
        assert (status, reason) == (75, "GpuUnavailable")
        assert "engine-1 needs 2 GPUs; this container sees 1" in message

    def test_another_library_than_built_the_engine(self, server: Server) -> None:
        server.image.has_library("1.3.0rc15")
        status, reason, message = server.fails()
        assert (status, reason) == (64, "VersionMismatch")
        assert "built by TensorRT-LLM 1.2.1; this image has 1.3.0rc15" in message

    def test_another_number_of_ranks(self, server: Server) -> None:
        assert server.fails(world_size=2)[1:] == ("WorldSizeMismatch", "engine-1 has 1 ranks, but 2 are to serve it")

    def test_a_model_without_a_tokenizer(self, server: Server) -> None:
        server.publish("model-2", "Model", {"config.json": "{}"})
        assert server.fails(tokenizer=str(server.store.directory("model-2")))[1] == "TokenizerMissing"

    def test_a_template_without_a_value(self, server: Server) -> None:
        assert server.fails(models={"tensorrt_llm": {}})[1] == "TemplateMismatch"


class TestServerThatFails:
    def test_c79_the_model_that_did_not_load_and_the_backends_own_error_are_told(self, server: Server) -> None:
        server.image.command(
            "tritonserver",
            """
            import sys
            print('E1129 10:00:00.0 1 server.cc:241] "CudaDriverHelper has not been initialized."')
            print('E1129 10:00:00.1 1 model_lifecycle.cc:642] "failed to load \\'tensorrt_llm\\' version 1: Internal: '
                  'unexpected error when creating modelInstanceState: no kv cache left\\\\n\\\\nAt:\\\\n  model.py(7)"')
            print('E1129 10:00:00.2 1 model_repository_manager.cc:703] "ensemble depends on \\'tensorrt_llm\\'"')
            for option in range(400):
                print("| option", option, "|")
            print("error: creating server: Internal - failed to load all models")
            sys.exit(1)
            """,
        )
        status, reason, message = server.fails()
        assert (status, reason) == (75, "ModelLoadFailed")
        assert re.sub(r"after \d+ s", "after 0 s", message) == (
            "tritonserver ended with exit status 1 after 0 s: failed to load 'tensorrt_llm' version 1: Internal: "
            "unexpected error when creating modelInstanceState: no kv cache left"
        )

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("MPI size 1 != TP size 2 * PP size 1 * CP Size 1", "WorldSizeMismatch"),
            ("is generated on an incompatible device, expecting compute 9.0 got compute 8.0", "EngineMismatch"),
            ("Serialization assertion failed. Version tag does not match. Current 228", "VersionMismatch"),
            ("Failed to load: Requested amount of GPU memory (24793579520 bytes) could not be allocated", "GpuMemory"),
            ("Unable to initialize shared memory key 'x' to requested size (67108864 bytes)", "SharedMemoryExhausted"),
        ],
    )
    def test_errors_that_are_known(self, server: Server, line: str, reason: str) -> None:
        server.image.command("tritonserver", f"import sys\nprint('E1129 ' + {line!r})\nsys.exit(1)")
        _, found, message = server.fails()
        assert found.startswith(reason)
        assert line in message

    def test_killed_for_memory(self, server: Server) -> None:
        server.image.command("tritonserver", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
        _, reason, message = server.fails()
        assert reason == "HostMemoryExhausted"
        assert "spec.serving.resources" in message


class TestSignals:
    def stop(self, server: Server, until: str) -> tuple[int, dict[str, Any]]:
        process = server.image.start("serve", server.spec)
        assert process.stdout is not None
        assert next((line for line in process.stdout if line.startswith(until)), None), "the server did not start"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        return process.returncode, json.loads(server.image.log.read_text())

    def test_a_server_that_drains_ends_with_0(self, server: Server) -> None:
        assert self.stop(server, "serving") == (0, {"result": {}})

    def test_a_server_that_is_stopped_while_it_loads_ends_at_once(self, server: Server) -> None:
        server.image.command("tritonserver", "import signal\nprint('loading', flush=True)\nsignal.pause()")
        assert self.stop(server, "loading")[0] == 143

    def test_requests_that_were_cut_off_are_told(self, server: Server) -> None:
        late = SERVING.replace("drained", "Exit timeout expired. Exiting immediately.").replace("exit(0)", "exit(1)")
        server.image.command("tritonserver", late)
        status, report = self.stop(server, "serving")
        assert (status, report["failure"]["reason"]) == (75, "DrainTimeout")
        assert "120 s" in report["failure"]["message"]


MPIRUN = """
import itertools, os, signal, subprocess, sys, threading
words = sys.argv[2:]
ranks = []
for rank, (_, group) in enumerate(g for g in itertools.groupby(words, lambda w: w == ":") if not g[0]):
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank)}
    ranks.append(subprocess.Popen(list(group)[2:], env=environment))

def end(number, _frame):
    for process in ranks:
        process.terminate()
    threading.Timer(1, lambda: [process.kill() for process in ranks]).start()

signal.signal(signal.SIGTERM, end)
sys.exit(max(process.wait() != 0 for process in ranks))
"""
"""Open MPI 4.1 in what matters here, as observed: told to end, it gives its ranks one second."""

RANKS = """
import os, signal, sys, time
rank = os.environ["OMPI_COMM_WORLD_RANK"]
def drain(*_):
    if rank == "0":
        time.sleep(3)
        print("drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
if rank == "0":
    print("serving", flush=True)
while True:
    signal.pause()
"""


class TestSeveralRanks:
    @pytest.fixture
    def server(self, image: Image) -> Server:
        image.has_gpus(H100, H100)
        image.command("mpirun", MPIRUN)
        server = Server(image, 2)
        image.command("tritonserver", RANKS)
        return server

    def test_the_first_rank_drains_longer_than_mpirun_would_let_it(self, server: Server) -> None:
        process = server.image.start("serve", server.spec)
        assert process.stdout is not None
        assert next((line for line in process.stdout if line == "serving\n"), None), "the server did not start"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
        assert "drained" in output
        assert process.returncode == 0

    def test_a_rank_that_fails_is_told(self, server: Server) -> None:
        server.image.command("tritonserver", "import sys; print('E1129 no kv cache left'); sys.exit(1)")
        assert "no kv cache left" in server.fails()[2]


class TestCommand:
    def test_one_rank_is_the_server_itself(self, server: Server) -> None:
        assert command({**server.spec, "tritonserver": "tritonserver"}) == [
            "tritonserver",
            f"--model-repository={server.spec['repository']}",
            "--exit-timeout-secs=120",
            "--disable-auto-complete-config",
            "--backend-config=python,shm-region-prefix-name=prefix0_",
            "--http-port=8000",
            "--grpc-port=8001",
            "--metrics-port=8002",
        ]

    def test_the_server_is_at_its_usual_path_in_the_image(self, server: Server) -> None:
        spec = {name: value for name, value in server.spec.items() if name != "tritonserver"}
        assert command(spec)[0] == "/opt/tritonserver/bin/tritonserver"

    def test_more_ranks_run_under_mpirun_and_the_first_alone_listens(self, server: Server) -> None:
        words = command({**server.spec, "world_size": 2, "tritonserver": "tritonserver"})
        ranks = " ".join(words).split(" : ")
        assert ranks[0].startswith("mpirun --allow-run-as-root -n 1 sh -c ")
        assert "--http-port=8000" in ranks[0]
        assert ranks[1].startswith("-n 1 tritonserver ")
        assert "--model-control-mode=explicit --load-model=tensorrt_llm" in ranks[1]
        assert "--allow-http=false --allow-grpc=false --allow-metrics=false" in ranks[1]
        assert "prefix1_" in ranks[1]
