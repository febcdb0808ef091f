"""A real limit and a real kill: a cgroup as a container has it, and a tool that wants more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Image

V1 = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 192 << 20


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of version 1 with a limit."""
    if os.geteuid() != 0 or not (V1 / "memory.limit_in_bytes").exists():
        pytest.skip("needs root and the memory controller of cgroup version 1")
    path = V1 / f"llmengine-test-{os.getpid()}"
    path.mkdir()
    (path / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    yield path
    path.rmdir()


def test_a_tool_that_the_kernel_kills_is_told_for_certain_with_limit_and_peak(image: Image, cgroup: Path) -> None:
    tool = image.command("convert_checkpoint.py", "print('loading', flush=True)\nx = bytearray(2 << 30)\nprint(len(x))")
    spec = {
        "artifact": "checkpoint-1",
        "command": ["python3", str(tool)],
        "parent": "/store/model-1",
        "output": str(image.scratch / "output"),
        "expected": {"release": "1.2.1"},
        "gpu": None,
    }
    # As runc does it: the process joins the cgroup and sees it alone below /sys/fs/cgroup/memory.
    enter = f'echo $$ > {cgroup}/cgroup.procs && mount --bind {cgroup} {V1} && exec "$@"'
    runner = [sys.executable, image.runner, "convert", "--spec", json.dumps(spec), "--termination-log", image.log]
    answer = subprocess.run(
        ["unshare", "--mount", "sh", "-c", enter, "sh", *map(str, runner)],
        env={**os.environ, "PATH": f"{image.bin}:{os.environ['PATH']}", "PYTHONPATH": str(image.library)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 64, answer.stderr
    failure = json.loads(image.log.read_text())["failure"]
    assert failure["reason"] == "HostMemoryExhausted"
    assert "convert_checkpoint.py ran out of host memory" in failure["message"]
    assert "the container's limit is 192 MiB, its peak was 192 MiB" in failure["message"]
    assert "spec.build.resources.limits.memory: the next value to try is 2Gi" in failure["message"]
    assert not failure["retryable"]
