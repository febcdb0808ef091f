"""A Triton server in the image, and the questions that tests ask it."""

from __future__ import annotations

import json
import queue
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput

from testbed.container import Container

READY_SECONDS = 60.0
STOP_SECONDS = 30.0
GAUGE_SECONDS = 10.0
QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
ANSWER = "The capital of France is Paris."


@dataclass(frozen=True)
class Server:
    """A running server's addresses."""

    http: int
    grpc: int
    metrics: int
    log: Path

    def post(self, model: str, endpoint: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}/v2/models/{model}/{endpoint}", json.dumps(body).encode()
        )
        return urllib.request.urlopen(request, timeout=120)

    def generate(self, text: str, max_tokens: int, **options: Any) -> str:
        with self.post("ensemble", "generate", text_input=text, max_tokens=max_tokens, **options) as answer:
            output: str = json.load(answer)["text_output"]
        return output

    def stream(self, text: str, max_tokens: int) -> list[str]:
        """The text of each server-sent event."""
        with self.post("ensemble", "generate_stream", text_input=text, max_tokens=max_tokens, stream=True) as answer:
            events = [json.loads(line.removeprefix(b"data: ")) for line in answer if line.startswith(b"data: ")]
        return [event["text_output"] for event in events]

    def stream_error(self, text: str, max_tokens: int) -> str:
        """The error that a stream ends with."""
        try:
            with self.post(
                "ensemble", "generate_stream", text_input=text, max_tokens=max_tokens, stream=True
            ) as answer:
                sent: bytes = answer.read()
                return sent.decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def gauge(self, family: str, value: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as page:
            text = page.read().decode()
        found = re.search(rf'^{family}{{[^}}]*="{value}"[^}}]*}} (\S+)$', text, re.MULTILINE)
        assert found, f"/metrics has no {family} of {value}"
        return float(found[1])

    def wait_for_gauge(self, family: str, value: str, number: float) -> None:
        deadline = time.monotonic() + GAUGE_SECONDS
        while (seen := self.gauge(family, value)) != number:
            assert time.monotonic() < deadline, f"{family} of {value} is {seen} and never became {number}"
            time.sleep(0.05)

    @contextmanager
    def token_stream(self, prompt: Sequence[int], max_tokens: int) -> Iterator[queue.Queue[Any]]:
        """A gRPC stream from the `tensorrt_llm` model itself; leaving the block cancels it."""
        inputs = []
        for name, kind, array in (
            ("input_ids", "INT32", np.array([prompt], np.int32)),
            ("input_lengths", "INT32", np.array([[len(prompt)]], np.int32)),
            ("request_output_len", "INT32", np.array([[max_tokens]], np.int32)),
            ("streaming", "BOOL", np.array([[True]])),
        ):
            inputs.append(InferInput(name, array.shape, kind))
            inputs[-1].set_data_from_numpy(array)
        answers: queue.Queue[Any] = queue.Queue()
        with InferenceServerClient(f"127.0.0.1:{self.grpc}") as client:
            client.start_stream(lambda result, error: answers.put(error or result))
            client.async_stream_infer("tensorrt_llm", inputs)
            yield answers
            client.stop_stream(cancel_requests=True)


def fill_repository(container: Container, repository: Path, values: Mapping[str, Mapping[str, str]]) -> None:
    """A model repository from the image's own templates, filled by the image's own program."""
    templates = container.root / "app/all_models/inflight_batcher_llm"
    repository.mkdir()
    for model, substitutions in values.items():
        subprocess.run(["cp", "-r", str(templates / model), str(repository / model)], check=True)
        text = ",".join(f"{key}:{value}" for key, value in substitutions.items())
        path = f"/bench/{repository.name}/{model}/config.pbtxt"
        done = container.run("python3", "/app/tools/fill_template.py", "-i", path, text)
        assert done.returncode == 0, done.stderr


def repository_values(engine: str, **tensorrt_llm: str) -> dict[str, dict[str, str]]:
    batch = {"triton_max_batch_size": "8"}
    tokenizer = {"tokenizer_dir": "/model", **batch}
    return {
        "preprocessing": {**tokenizer, "preprocessing_instance_count": "1", "add_special_tokens": "false"},
        "postprocessing": {**tokenizer, "postprocessing_instance_count": "1", "skip_special_tokens": "true"},
        "tensorrt_llm": {
            **batch,
            "triton_backend": "tensorrtllm",
            "decoupled_mode": "true",
            "engine_dir": f"/bench/{engine}",
            "batching_strategy": "inflight_fused_batching",
            "exclude_input_in_output": "true",
            "logits_datatype": "TYPE_FP32",
            "encoder_input_features_data_type": "TYPE_FP16",
            "prompt_embedding_table_data_type": "TYPE_FP16",
            **tensorrt_llm,
        },
        "ensemble": {**batch, "logits_datatype": "TYPE_FP32"},
    }


def command(repository: str, ranks: int, ports: tuple[int, int, int]) -> list[str]:
    """tritonserver, or mpirun with one for each rank."""
    http, grpc, metrics = ports
    words = []
    for rank in range(ranks):
        words += [":", "-n", "1"] if rank else ["-n", "1"]
        words += ["/opt/tritonserver/bin/tritonserver", f"--model-repository=/bench/{repository}"]
        words += ["--disable-auto-complete-config", "--allow-gpu-metrics=false", "--exit-timeout-secs=20"]
        words += [f"--backend-config=python,shm-region-prefix-name=prefix{rank}_"]
        words += [f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")]
        words += [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
        if rank:
            words += ["--model-control-mode=explicit", "--load-model=tensorrt_llm"]
    return ["mpirun", "--allow-run-as-root", *words] if ranks > 1 else words[2:]


def free_ports() -> tuple[int, int, int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [listening.getsockname()[1] for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports[0], ports[1], ports[2]


@contextmanager
def serving(
    container: Container, repository: Path, gpus: Sequence[Mapping[str, object]], *, ranks: int = 1
) -> Iterator[Server]:
    """A server that is ready; it must end cleanly when told to."""
    ports = free_ports()
    log = repository.with_suffix(".log")
    with log.open("w") as output:
        process = container.start(*command(repository.name, ranks, ports), gpus=gpus, log=output)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not _ready(ports[0]):
                assert process.poll() is None, f"the server ended:\n{log.read_text()[-3000:]}"
                assert time.monotonic() < deadline, f"the server is not ready:\n{log.read_text()[-3000:]}"
                time.sleep(0.1)
            yield Server(*ports, log)
            subprocess.run(["pkill", "-TERM", "-P", str(process.pid)], check=True)
            assert process.wait(STOP_SECONDS) == 0, f"the server did not end cleanly:\n{log.read_text()[-3000:]}"
        finally:
            # unshare's --kill-child ends the whole process namespace.
            process.send_signal(signal.SIGKILL)
            process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
