"""convert and build: run a command of the toolchain, measure it, and verify what it made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import child, classify, gpu, manifest, memory, output, trial
from .ranks import RankWatch
from .report import StepError, progress
from .volume import free_space

SKIP_FILE = "skip"
"""Left in the scratch directory by `stage` when the artifact is in the store already."""
FACTS_FILE = "build.json"
"""Facts of the run, for `publish` to put into the manifest."""
_IMPORT_SECONDS = 300


def convert(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Make a checkpoint. `spec` is as `build`'s."""
    return _produce(spec, output.verify_checkpoint, ".safetensors")


def build(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Make an engine and return the facts of the build, which are also left in build.json beside the output.

    `spec`: {"artifact": name, "command": [...] with {parent} and {output} in it, "parent" and "output": directories,
    "digests": of the manifests of what is read, by artifact, "expected": the API's Expectation, "trial": the command
    that tries what was made, "gpu": {"product", "computeCapability"} or null, "gpus": how many, and where there are
    "model" and "calibration": further directories}.
    """
    return _produce(spec, output.verify_engine, ".engine")


def _produce(spec: Mapping[str, Any], verify: Any, suffix: str) -> dict[str, Any]:
    directory = Path(spec["output"])
    scratch = directory.parent
    if (scratch / SKIP_FILE).exists():
        progress("skipped", artifact=spec["artifact"], why="the artifact is in the store already")
        return {"skipped": True}
    for read in (Path(spec[name]) for name in ("parent", "model") if spec.get(name)):
        if digest := spec.get("digests", {}).get(read.name):
            manifest.read(read, digest)
    seen = _gpu(spec)
    command = [_substitute(word, spec) for word in spec["command"]]
    tool = _tool_name(command)
    directory.mkdir(parents=True, exist_ok=True)
    progress("started", artifact=spec["artifact"], command=command)
    before = memory.read()
    try:
        with RankWatch(directory, suffix, _world_size(spec), "calibrating" if _calibrates(command) else None):
            outcome = child.run(command, cwd=scratch)
    except OSError as error:
        raise StepError(
            "ToolMissing", f"this image has no {command[0]} that can be run ({error.strerror}); is it the toolchain's?"
        ) from None
    after = memory.read()
    if outcome.status != 0 or outcome.signalled is not None:
        raise _with_disk(classify.tool_failure(tool, outcome, before, after), scratch)
    verify(directory, spec["expected"])
    trial_command = [_substitute(word, spec) for word in spec.get("trial", ())]
    if trial_command and spec.get("model"):
        trial.generate_one_token(trial_command, scratch)
    facts = {
        **(seen.facts() if seen else {}),
        **library_versions().facts(),
        "durationSeconds": round(outcome.duration_seconds),
        "peakHostMemoryBytes": outcome.peak_process_bytes,
        "peakContainerMemoryBytes": after.peak_bytes,
        **({"generated": True} if trial_command and spec.get("model") else {}),
    }
    (scratch / FACTS_FILE).write_text(json.dumps(facts))
    progress("verified", artifact=spec["artifact"], seconds=facts["durationSeconds"])
    return facts


@dataclass(frozen=True)
class Libraries:
    """Versions as an image's Python sees them, whatever its tag says; None of what cannot be imported."""

    trtllm: str | None
    tensorrt: str | None

    def facts(self) -> dict[str, Any]:
        """As the manifest's `build` has them."""
        known = {"tensorrtVersion": self.tensorrt} if self.tensorrt else {}
        return {"trtllmVersion": self.trtllm, **known}


def library_versions() -> Libraries:
    """`__version__` of tensorrt_llm and of tensorrt in this image.

    In a child, because the library talks on import and holds a GPU; the versions are behind a mark for the same reason.
    """
    program = "".join(
        f"import {module}; print('\\nversion of {module}=' + {module}.__version__, flush=True)\n"
        for module in ("tensorrt_llm", "tensorrt")
    )
    try:
        answer = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Libraries(None, None)
    found = dict(re.findall(r"^version of (\w+)=(.+)$", answer.stdout, re.MULTILINE))
    return Libraries(found.get("tensorrt_llm"), found.get("tensorrt"))


def _gpu(spec: Mapping[str, Any]) -> gpu.Gpu | None:
    """The first of the GPUs that the step was given; None for a step that needs none."""
    wanted, count = spec.get("gpu"), spec.get("gpus", 1 if spec.get("gpu") else 0)
    if not count:
        return None
    seen = gpu.visible()
    gpu.require_count(seen, count, what=spec["artifact"])
    if wanted:
        gpu.require(seen, wanted, count, what=spec["artifact"])
    return seen[0]


def _substitute(word: str, spec: Mapping[str, Any]) -> str:
    for name in ("parent", "output", "model", "calibration"):
        if spec.get(name):
            word = word.replace(f"{{{name}}}", spec[name])
    return word


def _world_size(spec: Mapping[str, Any]) -> int:
    expected = spec["expected"]
    return int(expected.get("tensorParallel", 1)) * int(expected.get("pipelineParallel", 1))


def _calibrates(command: list[str]) -> bool:
    return "--calib_dataset" in command


def _tool_name(command: list[str]) -> str:
    """What a person calls the command: the script where an interpreter runs one."""
    if Path(command[0]).name.startswith("python") and len(command) > 1:
        return Path(command[1]).name
    return Path(command[0]).name


def _with_disk(failure: StepError, scratch: Path) -> StepError:
    if failure.reason != "DiskFull":
        return failure
    message = f"{failure.message} Of {scratch}, {free_space(scratch)}."
    return StepError("NodeDiskFull", message, retryable=True, log=failure.log)
