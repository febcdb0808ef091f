"""The objects that the chart and the kustomize bundle come to."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from testbed.cluster import build
from testbed.cluster.binaries import kubectl

Obj = dict[str, Any]
Key = tuple[str, str, str]

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/llmengine-operator"
NAMESPACE = "llmengine-system"
RELEASE = "llmengine-operator"
TIMEOUT_SECONDS = 60


class Refused(Exception):  # noqa: N818 (it is what helm does)
    """Helm refuses the chart or its values; the message is what it says."""


def key(obj: Obj) -> Key:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def documents(text: str) -> list[Obj]:
    """The documents of a YAML file that are not empty."""
    return [obj for obj in yaml.load_all(text, Loader=yaml.CSafeLoader) if obj]


def helm(*arguments: str, values: Obj | None = None) -> str:
    """Standard output of a run of helm with `values`; `Refused` with what it says otherwise."""
    done = subprocess.run(
        [_helm(), *arguments, "--values=-"],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    if done.returncode != 0:
        raise Refused(done.stdout + done.stderr)
    return done.stdout


def _helm() -> Path:
    """The cluster's helm; LLMENGINE_HELM names one that was built elsewhere."""
    given = os.environ.get("LLMENGINE_HELM")
    return Path(given) if given else build.programs().helm


def chart(
    values: Obj | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE, kinds: tuple[str, ...] = ()
) -> dict[Key, Obj]:
    """What `helm install RELEASE -n NAMESPACE` with these values would create; `kinds` are API versions that the
    cluster has beside Kubernetes' own."""
    there = [f"--api-versions={kind}" for kind in kinds]
    made = helm("template", release, str(CHART), f"--namespace={namespace}", *there, values=values)
    return {key(obj): obj for obj in documents(made)}


def bundle(directory: str) -> dict[Key, Obj]:
    """What `kubectl apply -k` of the directory would create."""
    done = subprocess.run(
        [kubectl(), "kustomize", str(ROOT / directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return {key(obj): obj for obj in documents(done.stdout)}
