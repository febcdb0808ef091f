"""`python -m benchmarks.plan`: how long a cold `llmengine plan` of local files takes, median of ten processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from testbed.images.build import ensure_model
from testbed.images.cache import Cache, cache_directory
from testbed.progress import PROGRESS

RUNS = 10


def main() -> int:
    model = ensure_model(Cache(cache_directory()), PROGRESS)
    manifest = yaml.safe_load((Path(__file__).parent.parent / "demo" / "llmengine.yaml").read_text())
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(manifest, file)
        file.flush()
        command = [sys.executable, "-m", "trtllm_operator.cli.main", "plan", "-f", file.name, "--model", str(model)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # compiles, as installing a package does
        seconds = []
        for _ in range(RUNS):
            began = time.perf_counter()
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - began)
    print(f"cold plan: median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s of {RUNS}; aim 0.5 s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
