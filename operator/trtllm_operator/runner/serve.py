"""serve: check the engine against what is here, render the model repository, run tritonserver in the foreground."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import child, classify, gpu, manifest, memory, produce, repository
from .report import StepError, progress

TRITONSERVER = "/opt/tritonserver/bin/tritonserver"
_UNLOAD_SECONDS = 20
"""What unloading the models takes beyond the last request."""
_POLL_SECONDS = 0.1
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json")


def prepare(spec: Mapping[str, Any]) -> classify.Seen:
    """Everything before tritonserver starts; raises StepError for what would fail later and say less. Returns what is
    known of the server, to read its output with.

    `spec`: {"engine", "tokenizer": published directories, "world_size", "gpu": {"product", "computeCapability"},
    "release", "templates", "fill_template", "models": {name: {placeholder: value}}, "repository", "http_port",
    "grpc_port", "metrics_port", "exit_timeout_seconds"}, "digests" of the manifests of the two as they were published,
    by artifact, and "tritonserver" where it is not at its usual path.
    """
    engine, tokenizer = Path(spec["engine"]), Path(spec["tokenizer"])
    progress("verifying", engine=str(engine))
    digests = spec.get("digests", {})
    facts = manifest.verify(engine, digest=digests.get(engine.name))
    manifest.verify(
        tokenizer, hashed=lambda path: not path.endswith(".safetensors"), digest=digests.get(tokenizer.name)
    )
    if not any((tokenizer / name).is_file() for name in _TOKENIZER_FILES):
        raise StepError("TokenizerMissing", f"{tokenizer} holds none of {', '.join(_TOKENIZER_FILES)}")
    build = facts.get("build") or {}
    built_by = _check_engine(engine, spec, build)
    if "gpu" in build and build["computeCapability"] != spec["gpu"]["computeCapability"]:
        raise StepError(
            "EngineMismatch",
            f"{engine.name} was built on {build['gpu']} (compute capability {build['computeCapability']}), but "
            f"is to serve on {spec['gpu']['product']} (compute capability {spec['gpu']['computeCapability']}): it "
            "is put aside and built again",
            retryable=True,
            artifact=engine.name,
        )
    gpu.require(gpu.visible(), spec["gpu"], spec["world_size"], what=engine.name)
    target = Path(spec["repository"])
    repository.render(Path(spec["templates"]), Path(spec["fill_template"]), spec["models"], target)
    progress("rendered", repository=str(target), models=sorted(spec["models"]))
    return {
        "engine": engine.name,
        "gpu": spec["gpu"]["product"],
        "computeCapability": spec["gpu"]["computeCapability"],
        "builtBy": built_by,
        "release": spec["release"],
    }


def command(spec: Mapping[str, Any]) -> list[str]:
    """tritonserver, or mpirun with one per rank: rank 0 serves, the others hold their part of the engine and listen
    nowhere. As launch_triton_server.py composes it, which itself returns before the server has started."""
    ranks = [_rank_command(spec, rank) for rank in range(spec["world_size"])]
    if len(ranks) == 1:
        return ranks[0]
    leader = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(_leader_file(spec)), *ranks[0]]
    line = ["mpirun", "--allow-run-as-root", "-n", "1", *leader]
    for words in ranks[1:]:
        line += [":", "-n", "1", *words]
    return line


def serve(spec: Mapping[str, Any]) -> int:
    """Serve until told to stop; returns tritonserver's own exit status when it was. Raises StepError otherwise."""
    seen = prepare(spec)
    before = memory.read()
    try:
        outcome = child.run(command(spec), forward=_forward(spec), keep=classify.speaks_of_an_error)
    except OSError as error:
        raise StepError(
            "ToolMissing", f"this image has no {command(spec)[0]} that can be run: {error.strerror}"
        ) from None
    if outcome.signalled is None:
        raise server_failure(outcome, before, memory.read(), seen)
    if any("Exit timeout expired" in line for line in outcome.tail):
        raise StepError(
            "DrainTimeout",
            f"requests in flight took longer than the {spec['exit_timeout_seconds']} s that the server had to finish "
            "them; they were cut off",
            retryable=True,
        )
    if spec["world_size"] > 1:
        return 0  # mpirun's status is that of the ranks that were ended after the first had drained
    return outcome.status if outcome.status >= 0 else 128 - outcome.status


def server_failure(
    outcome: child.Outcome, before: memory.HostMemory, after: memory.HostMemory, seen: classify.Seen
) -> StepError:
    """Why a server ended that nobody told to. `seen` is what `prepare` found."""
    what = f"tritonserver ended with {classify.ending(outcome.status)} after {outcome.duration_seconds:.0f} s"
    if failure := classify.host_memory("tritonserver", "spec.serving", outcome, before, after):
        return failure
    lines = (*outcome.kept, *outcome.tail)
    if failure := classify.known_failure(what, lines, server=True, seen=seen):
        return failure
    said = classify.load_errors(outcome.kept) or classify.last_words(outcome.tail)
    if outcome.status in (-signal.SIGBUS, 128 + signal.SIGBUS):
        return StepError("SharedMemoryExhausted", f"{what}. {classify.BUS_ERROR} {said}")
    if outcome.status == -signal.SIGSEGV:
        return StepError("ModelLoadFailed", f"{what}: the server crashed. {said}", retryable=True)
    return StepError("ModelLoadFailed", f"{what}: {said}", retryable=True)


def _leader_file(spec: Mapping[str, Any]) -> Path:
    """Where rank 0 leaves its process id."""
    return Path(spec["repository"]).with_name("rank0.pid")


def _forward(spec: Mapping[str, Any]) -> Callable[[int, int], None]:
    if spec["world_size"] == 1:
        return os.kill
    _leader_file(spec).unlink(missing_ok=True)
    return lambda mpirun, number: _drain_leader(mpirun, number, _leader_file(spec), spec["exit_timeout_seconds"])


def _drain_leader(mpirun: int, number: int, leader_file: Path, exit_timeout_seconds: int) -> None:
    """Pass a signal to rank 0 alone, and to mpirun once rank 0 is gone.

    mpirun itself kills every rank one second after it is told to end (Open MPI 4.1, odls_base_sigkill_timeout), which
    would cut off what rank 0 still serves; and it does not end by itself while other ranks hold their part.
    """
    try:
        leader = int(leader_file.read_text())
    except (OSError, ValueError):
        os.kill(mpirun, number)
        return

    def end_the_others() -> None:
        deadline = time.monotonic() + exit_timeout_seconds + _UNLOAD_SECONDS
        while Path(f"/proc/{leader}").exists() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(mpirun, number)

    with contextlib.suppress(ProcessLookupError):
        os.kill(leader, number)
    threading.Thread(target=end_the_others, daemon=True).start()


def _rank_command(spec: Mapping[str, Any], rank: int) -> list[str]:
    words = [
        spec.get("tritonserver", TRITONSERVER),
        f"--model-repository={spec['repository']}",
        f"--exit-timeout-secs={spec['exit_timeout_seconds']}",
        "--disable-auto-complete-config",
        f"--backend-config=python,shm-region-prefix-name=prefix{rank}_",
    ]
    if rank == 0:
        ports = {"http": spec["http_port"], "grpc": spec["grpc_port"], "metrics": spec["metrics_port"]}
        return [*words, *(f"--{name}-port={port}" for name, port in ports.items())]
    closed = [f"--allow-{name}=false" for name in ("http", "grpc", "metrics")]
    return [*words, *closed, "--model-control-mode=explicit", "--load-model=tensorrt_llm"]


def _check_engine(engine: Path, spec: Mapping[str, Any], build: Mapping[str, Any]) -> str:
    """The TensorRT-LLM that built the engine, which is this image's. `build` are the facts of its manifest."""
    try:
        config = json.loads((engine / "config.json").read_text())
        built_by = config["version"]
        world_size = config["pretrained_config"]["mapping"]["world_size"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StepError("EngineCorrupted", f"{engine}/config.json says nothing that can be used: {error!r}") from None
    if world_size != spec["world_size"]:
        raise StepError(
            "WorldSizeMismatch", f"{engine.name} has {world_size} ranks, but {spec['world_size']} are to serve it"
        )
    here = produce.library_versions()
    if built_by != spec["release"] or here.trtllm != built_by:
        raise StepError(
            "VersionMismatch",
            f"{engine.name} was built by TensorRT-LLM {built_by}; this image has "
            f"{here.trtllm or 'none that can be imported'} and {spec['release']} was asked for. An engine loads only "
            "in the release that built it.",
        )
    if here.tensorrt and build.get("tensorrtVersion") not in (None, here.tensorrt):
        raise StepError(
            "VersionMismatch",
            f"{engine.name} was built with TensorRT {build['tensorrtVersion']}; this image has {here.tensorrt}, "
            "whatever it is called. An engine loads only in the TensorRT that built it.",
        )
    return str(built_by)
