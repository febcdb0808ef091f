"""`python -m demo`: from nothing to an answer, then a rebuild without a failed request."""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from testbed.cluster import ClusterError
from testbed.images.errors import BuildError
from testbed.progress import PROGRESS

from . import client, questions
from .follow import StalledError, until_drained, until_ready
from .kubectl import Kubectl, KubectlError, WaitedTooLong, condition, wait_for
from .stack import make_namespace, reference, remove_namespace, up

NAMESPACE, NAME = "demo", "smollm2"
MANIFEST = Path(__file__).parent / "llmengine.yaml"
QUESTION = "What is the capital of France?"


def main() -> int:
    try:
        _demo()
    except (BuildError, ClusterError, KubectlError, StalledError, WaitedTooLong) as error:
        sys.stderr.write(f"demo: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(
            "demo: interrupted; `make demo` goes on where it was, `make clean-cluster` removes everything\n"
        )
        return 130
    return 0


def _demo() -> None:
    PROGRESS.say("No GPU here: TensorRT-LLM's commands, kernels and nvidia-smi are stand-ins; Kubernetes, Triton and")
    PROGRESS.say("the model are real.")
    stack = up()
    with PROGRESS.step("an empty namespace"):
        remove_namespace(stack, NAMESPACE)
        kubectl = make_namespace(stack, NAMESPACE)
    manifest: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    targets = [t["name"] for t in manifest["spec"]["targets"]]

    PROGRESS.say(f"$ kubectl apply -f {MANIFEST.relative_to(Path.cwd())}")
    kubectl.apply(manifest)
    took = until_ready(kubectl, NAME)
    PROGRESS.say(f"Ready {took:.1f} s after kubectl apply")
    for target in targets:
        _ask(kubectl, target)
    _ask_endpoint(kubectl)

    asked = [*(f"{NAME}--{target}" for target in targets), f"openai:{NAME}"]
    client.start(kubectl, reference(stack.images["operator"]), asked)
    changed = copy.deepcopy(manifest)
    changed["spec"]["budgets"]["maxSeqLen"] = 1536
    PROGRESS.say(
        "A client asks both targets and the endpoint all the time. budgets.maxSeqLen: 2048 -> 1536, applied again:"
    )
    kubectl.apply(changed)
    took = until_ready(kubectl, NAME)
    PROGRESS.say(f"rebuilt and switched {took:.1f} s after the change")
    took = until_drained(kubectl, NAME)
    PROGRESS.say(f"the old servers drained and gone {took:.1f} s later")
    counted = client.counts(kubectl)
    client.stop(kubectl)
    failed = sum(c["failed"] for c in counted.values())
    for service, c in counted.items():
        PROGRESS.say(f"  {service}: {c['answered']} answered, {c['failed']} failed {c['lastFailure']}")
    _ask_endpoint(kubectl)
    _tables(kubectl)
    if failed:
        raise WaitedTooLong(f"{failed} requests failed during the switch")


def _ask(kubectl: Kubectl, target: str) -> None:
    service = f"service/{NAME}--{target}"
    for how, port, ask in (
        ("HTTP generate_stream", 8000, questions.by_http),
        ("gRPC stream", 8001, questions.by_grpc),
    ):
        with kubectl.port_forward(service, port) as local_port:
            began = time.monotonic()
            pieces = list(ask(local_port, QUESTION))
            seconds = time.monotonic() - began
        PROGRESS.say(
            f"  {target}, {how}: {QUESTION} -> {''.join(pieces).strip()!r} ({len(pieces)} pieces, {seconds:.1f} s)"
        )


def _ask_endpoint(kubectl: Kubectl) -> None:
    def missing() -> str | None:
        found = condition(kubectl.get("llmengine", NAME), "FrontAvailable")
        return None if found.get("status") == "True" else str(found.get("message"))

    wait_for("the endpoint", missing, limit_seconds=120)
    with kubectl.port_forward(f"service/{NAME}", 80) as local_port:
        pieces = list(questions.by_openai(local_port, NAME, QUESTION))
    PROGRESS.say(f"  endpoint, openai client: {QUESTION} -> {''.join(pieces).strip()!r} ({len(pieces)} pieces)")


def _tables(kubectl: Kubectl) -> None:
    console = Console()
    artifacts = Table("artifact", "type", "GPU", "built on", "seconds", "MB", title="What was built")
    for artifact in sorted(kubectl.items("engineartifacts"), key=lambda a: str(a["status"].get("startTime"))):
        status, inputs = artifact["status"], artifact["spec"]["inputs"]
        artifacts.add_row(
            artifact["metadata"]["name"],
            artifact["spec"]["type"],
            inputs.get("gpu", {}).get("product", "-"),
            status.get("nodeName", "-"),
            str(status.get("durationSeconds", "-")),
            f"{status.get('sizeBytes', 0) / 1e6:.1f}",
        )
    console.print(artifacts)
    engine = kubectl.get("llmengine", NAME)
    serving = Table("target", "GPU", "serves", "servers ready", "KV tokens planned", title="What serves")
    for target in engine["status"]["targets"]:
        serving.add_row(
            target["name"],
            target["gpu"],
            target["servedArtifact"],
            f"{target['readyReplicas']} of {target['replicas']}",
            f"{target['plan']['kvCacheTokens']:,}",
        )
    console.print(serving)


if __name__ == "__main__":
    sys.exit(main())
