"""`make bench-demo`: how long the way from nothing to an answer takes, and what it costs the API server.

`--cold` empties no cache of yours: it builds the tooling once more in a directory of its own, which takes minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from demo import client, questions
from demo.follow import until_drained, until_ready
from demo.kubectl import Kubectl
from demo.stack import make_namespace, operator_metrics, reference, remove_namespace, up
from testbed.progress import PROGRESS

from .measure import lines_of, machine, operator_writes, told

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
NAMESPACE, NAME = "bench", "smollm2"
IDLE_SECONDS = 60
TOKENS = 64
Row = tuple[str, str, str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--cold", action="store_true", help="also build the tooling with empty caches")
    options = parser.parse_args()
    rows: list[Row] = []
    if options.cold:
        rows += _cold()
    rows += _warm()
    table = Table("measure", "value", "aim", title=machine())
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    _write(rows, keep_cold=not options.cold)
    return 0


def _cold() -> list[Row]:
    """The Go programs and the images with empty caches, as on a machine that has neither."""
    with tempfile.TemporaryDirectory(prefix="llmengine-cold-") as empty:
        caches = {name: f"{empty}/{name}" for name in ("XDG_CACHE_HOME", "GOCACHE", "GOMODCACHE")}
        environment = {**os.environ, **caches, "GOFLAGS": "-modcacherw"}
        seconds = {}
        for what, module in (("programs", ("testbed.cluster", "build")), ("images", ("testbed.images", "build"))):
            began = time.monotonic()
            with PROGRESS.step(f"{what}, cold"):
                subprocess.run(
                    [sys.executable, "-m", *module], cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL
                )
            seconds[what] = time.monotonic() - began
    return [
        ("cold: Kubernetes, containerd, helm from Go modules", f"{seconds['programs']:.0f} s", ""),
        ("cold: base image, operator, toolchain stand-in, hub", f"{seconds['images']:.0f} s", ""),
    ]


def _warm() -> list[Row]:
    rows: list[Row] = []
    subprocess.run([sys.executable, "-m", "testbed.cluster", "down"], cwd=ROOT, check=True)
    began = time.monotonic()
    stack = up()
    stack_seconds = time.monotonic() - began
    rows.append(("cluster, images, operator and hub up, programs and images cached", f"{stack_seconds:.1f} s", ""))
    kubectl = make_namespace(stack, NAMESPACE)
    manifest: dict[str, Any] = yaml.safe_load((ROOT / "demo" / "llmengine.yaml").read_text())

    before = operator_writes(stack)
    kubectl.apply(manifest)
    ready_seconds = until_ready(kubectl, NAME)
    written = operator_writes(stack) - before
    rows += [
        ("kubectl apply to Ready on two GPU generations", f"{ready_seconds:.1f} s", ""),
        ("from nothing running to the first answer", f"{stack_seconds + ready_seconds:.1f} s", "120 s"),
        ("API writes by the operator, apply to Ready", told(written), ""),
    ]
    rows += _speed(kubectl)

    with PROGRESS.step(f"{IDLE_SECONDS} s at rest"):
        before = operator_writes(stack)
        time.sleep(IDLE_SECONDS)
        idle = operator_writes(stack) - before
    rows.append((f"API writes by the operator in {IDLE_SECONDS} s at rest, but the Lease", told(idle), "0"))
    memory = operator_metrics(stack)["process_resident_memory_bytes"]
    rows.append(("memory of the operator (resident)", f"{memory / 2**20:.0f} MiB", ""))

    client.start(kubectl, reference(stack.images["operator"]), [f"{NAME}--a100", f"{NAME}--h100"])
    manifest["spec"]["budgets"]["maxSeqLen"] = 1536
    kubectl.apply(manifest)
    switched = until_ready(kubectl, NAME)
    until_drained(kubectl, NAME)
    counted = client.counts(kubectl)
    client.stop(kubectl)
    answered, failed = (sum(c[what] for c in counted.values()) for what in ("answered", "failed"))
    rows += [
        ("change of budgets.maxSeqLen to switched", f"{switched:.1f} s", ""),
        ("requests during rebuild, switch and drain", f"{answered} answered, {failed} failed", "0 failed"),
    ]
    remove_namespace(stack, NAMESPACE)
    return rows


def _speed(kubectl: Kubectl) -> list[Row]:
    rows: list[Row] = []
    with kubectl.port_forward(f"service/{NAME}--h100", 8000) as port, PROGRESS.step("tokens per second"):
        list(questions.by_http(port, "Hello"))
        for streams in (1, 4):
            counts: list[int] = []

            def ask(counts: list[int] = counts) -> None:
                counts.append(sum(1 for _ in questions.by_http(port, "Tell me a long story.", max_tokens=TOKENS)))

            threads = [threading.Thread(target=ask) for _ in range(streams)]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rate = sum(counts) / (time.monotonic() - began)
            aim = "10 tokens/s" if streams == 1 else ""
            rows.append((f"TP 1, {streams} x {TOKENS} tokens at once, prompt included", f"{rate:.1f} tokens/s", aim))
    return rows


def _write(rows: list[Row], *, keep_cold: bool) -> None:
    """The page; without --cold the cold rows of before stay."""
    kept = [line for line in lines_of(str(PAGE)) if line.startswith("| cold:")] if keep_cold and PAGE.exists() else []
    lines = [f"| {what} | {value} | {aim} |" for what, value, aim in rows]
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    PAGE.write_text(
        "# Measurements\n\n"
        f"`make bench-demo`, {date}, one run. {machine()}.\n\n"
        "| measure | value | aim |\n|---|---|---|\n" + "\n".join([*kept, *lines]) + "\n\n"
        "Cold rows come from `python -m benchmarks.demo --cold`. No GPU: tokens/s are those of the stand-in's numpy\n"
        "on the CPU and say nothing of a GPU's speed. Writes are counted by the operator itself.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
