"""What holds for a namespace whatever happened in it: asserted by every test that disturbs a build."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from demo.kubectl import Kubectl, Obj, wait_for
from demo.stack import CLAIM, GRACE_SECONDS, Stack
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps.volume_store import VolumeStore

ARTIFACT, ATTEMPT = "llmengine.dev/artifact", "llmengine.dev/attempt"
KINDS = "engineartifacts,jobs,deployments,services,controllerrevisions,pods"


def check(stack: Stack, kubectl: Kubectl) -> None:
    """One successful build for each key, nothing visible that is not whole, all that is Ready is in the store."""
    _one_build_for_each_key(kubectl)
    _all_that_is_seen_is_whole(stack, kubectl)


def check_gone(stack: Stack, kubectl: Kubectl, *, limit_seconds: float = GRACE_SECONDS + 150) -> None:
    """After the deletion of all LLMEngines: no object and no file is left, visible or not."""
    root = stack.cluster.host_root(kubectl.namespace, CLAIM)

    def left() -> str | None:
        rest = [f"{o['kind']} {o['metadata']['name']}" for o in kubectl.items(KINDS)]
        configs = kubectl.items("configmaps", "-l", "llmengine.dev/managed=true")
        rest += [f"ConfigMap {c['metadata']['name']}" for c in configs]
        rest += visible(root) + [f".staging/{name}" for name in staged(root)]
        return f"{', '.join(rest)} left" if rest else None

    wait_for("nothing left", left, limit_seconds=limit_seconds)


def visible(root: Path) -> list[str]:
    """Names of the store that a reader sees."""
    return sorted(p.name for p in root.iterdir() if not p.name.startswith("."))


def staged(root: Path) -> list[str]:
    """What is left of publications that did not come to their end."""
    staging = root / ".staging"
    return sorted(p.name for p in staging.iterdir()) if staging.is_dir() else []


def _one_build_for_each_key(kubectl: Kubectl) -> None:
    built = Counter(pod["metadata"]["labels"][ARTIFACT] for pod in kubectl.items("pods", "-l", ATTEMPT) if _built(pod))
    twice = {name: count for name, count in built.items() if count > 1}
    assert not twice, f"built more than once: {twice}"
    for artifact in kubectl.items("engineartifacts"):
        name = artifact["metadata"]["name"]
        if _is_ready(artifact) and artifact["status"].get("jobName") in _jobs(kubectl):
            assert built[name] == 1, f"{name} is Ready and its Job has not built it"


def _jobs(kubectl: Kubectl) -> set[str]:
    return {j["metadata"]["name"] for j in kubectl.items("jobs")}


def _built(pod: Obj) -> bool:
    """Whether the Pod did the work and published it; one that found the artifact in the store built nothing."""
    if pod["status"]["phase"] != "Succeeded":
        return False
    statuses = [*pod["status"].get("initContainerStatuses", ()), *pod["status"]["containerStatuses"]]
    results = [json.loads(s["state"]["terminated"]["message"] or "{}").get("result", {}) for s in statuses]
    return not any(result.get("skipped") or result.get("published") for result in results)


def _all_that_is_seen_is_whole(stack: Stack, kubectl: Kubectl) -> None:
    root = stack.cluster.host_root(kubectl.namespace, CLAIM)
    digests: dict[str, Any] = {}
    for name in visible(root):
        try:
            digests[name] = VolumeStore(root).verify(name).digest
        except StepError as error:
            raise AssertionError(f"{name} is visible in the store and not whole: {error.message}") from None
    for artifact in kubectl.items("engineartifacts"):
        name = artifact["metadata"]["name"]
        if _is_ready(artifact):
            assert name in digests, f"{name} is Ready and not in the store"
            assert artifact["status"]["manifestDigest"] == digests[name], f"{name} is Ready with another manifest"


def _is_ready(artifact: Obj) -> bool:
    return bool(artifact.get("status", {}).get("phase") == "Ready" and "deletionTimestamp" not in artifact["metadata"])
