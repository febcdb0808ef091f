"""`make bench-builds`: what three GPU generations cost when they share one download and one checkpoint.

Compared with what a pipeline costs that runs whole for each generation, in one Pod that holds a GPU from its first
byte: the same steps' times, taken from the same run, added up otherwise.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from demo.follow import until_ready
from demo.kubectl import Kubectl, Obj
from demo.stack import make_namespace, remove_namespace, up
from demo.third_node import TARGET, third_node
from testbed.progress import PROGRESS

from .measure import machine, operator_writes, told

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks-builds.md"
NAMESPACE, NAME = "bench-builds", "smollm2"
GPU = "nvidia.com/gpu"
Row = tuple[str, str]


@dataclass(frozen=True)
class Build:
    """The Pod of one artifact; times in seconds since 1970, as the API server writes them: whole seconds."""

    artifact: str
    gpus: int
    scheduled: float
    started: float
    """Its first container."""
    worked: float
    """Began the container that does the work."""
    finished: float

    @property
    def type(self) -> str:
        return self.artifact.partition("-")[0]

    @property
    def seconds(self) -> float:
        return self.finished - self.scheduled


def main() -> int:
    stack = up()
    remove_namespace(stack, NAMESPACE)
    kubectl = make_namespace(stack, NAMESPACE)
    manifest: dict[str, Any] = yaml.safe_load((ROOT / "demo" / "llmengine.yaml").read_text())
    targets = [*manifest["spec"]["targets"], TARGET]
    manifest["spec"]["targets"] = [{**target, "replicas": 0} for target in targets]
    with third_node(stack), PROGRESS.step("three generations built"):
        before = operator_writes(stack)
        applied = time.time()
        kubectl.apply(manifest)
        ready_seconds = until_ready(kubectl, NAME)
        written = operator_writes(stack) - before
        builds = read_builds(kubectl)
    remove_namespace(stack, NAMESPACE)
    rows = measured(builds, applied, ready_seconds)
    rows += [
        ("API writes by the operator, apply to Ready", told(written)),
        (f"API writes for each of the {len(builds)} builds", f"{written.total() / len(builds):.1f}"),
    ]
    table = Table("measure", "value", title=machine())
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    write(rows)
    return 0


def read_builds(kubectl: Kubectl) -> list[Build]:
    return [_build(pod) for pod in kubectl.items("pods", "-l", "llmengine.dev/attempt")]


def _build(pod: Obj) -> Build:
    status, containers = pod["status"], [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    (scheduled,) = [c["lastTransitionTime"] for c in status["conditions"] if c["type"] == "PodScheduled"]
    ended = [s["state"]["terminated"] for s in (*status.get("initContainerStatuses", ()), *status["containerStatuses"])]
    return Build(
        artifact=pod["metadata"]["labels"]["llmengine.dev/artifact"],
        gpus=max(int(c.get("resources", {}).get("limits", {}).get(GPU, 0)) for c in containers),
        scheduled=_seconds(scheduled),
        started=_seconds(ended[0]["startedAt"]),
        worked=_seconds(ended[-2 if len(ended) > 1 else 0]["startedAt"]),
        finished=_seconds(ended[-1]["finishedAt"]),
    )


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def measured(builds: list[Build], applied: float, ready_seconds: float) -> list[Row]:
    """`applied`: when `kubectl apply` was run; this machine's clock is the cluster's."""
    (model,) = [b for b in builds if b.type == "model"]
    (checkpoint,) = [b for b in builds if b.type == "checkpoint"]
    engines = [b for b in builds if b.type == "engine"]
    held = sum(b.seconds * b.gpus for b in builds)
    whole = sum(model.seconds + checkpoint.seconds + b.seconds for b in engines)
    waits = [b.started - checkpoint.finished for b in engines]
    return [
        ("download, checkpoint (no GPU)", f"{model.seconds:.0f} s, {checkpoint.seconds:.0f} s"),
        (f"builds on {len(engines)} generations", ", ".join(f"{b.seconds:.0f} s" for b in engines)),
        ("GPU-seconds held by the rollout", f"{held:.0f}"),
        ("GPU-seconds of a whole pipeline for each generation", f"{whole:.0f} ({whole / held:.1f} times as many)"),
        ("`kubectl apply` to Ready, no servers asked for", f"{ready_seconds:.0f} s"),
        ("`kubectl apply` to the first container with a GPU", f"{min(b.worked for b in engines) - applied:.0f} s"),
        ("checkpoint published to a build's Pod running", f"{min(waits):.0f} to {max(waits):.0f} s"),
    ]


def write(rows: list[Row]) -> None:
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    lines = "\n".join(f"| {what} | {value} |" for what, value in rows)
    PAGE.write_text(
        "# Builds for three GPU generations\n\n"
        f"`make bench-builds`, {date}, one run. {machine()}.\n\n"
        f"| measure | value |\n|---|---|\n{lines}\n\n"
        "SmolLM2-135M on the local cluster, whose GPUs and toolchain are stand-ins: the seconds say nothing of a real\n"
        "build, and how they divide says it for a model this small. A Pod holds its GPUs from when it is scheduled to\n"
        "when its last container has ended. The whole pipeline is computed: download, conversion and build of the\n"
        "same run, one after the other in a Pod with a GPU, once for each generation. Times are the API server's, in\n"
        "whole seconds; writes are counted by the operator itself.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
