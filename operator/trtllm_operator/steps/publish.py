"""stage, publish and collect: what a build Pod and the end of an artefact do with the store."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runner.report import StepError, progress
from .store import Store

SKIP_FILE = "skip"
FACTS_FILE = "build.json"
OUTPUT = "output"


def stage(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Before a build: is there anything to do, and is what it is made from whole?

    `spec`: {"artifact", "parent": names, "store", "scratch": directories}. Writes <scratch>/skip when the artefact is
    in the store already.
    """
    store, artifact, parent = Store(Path(spec["store"])), spec["artifact"], spec["parent"]
    if store.has(artifact):
        store.verify(artifact)
        (Path(spec["scratch"]) / SKIP_FILE).touch()
        return {"published": True}
    if not store.has(parent):
        raise StepError("ParentMissing", f"{parent}, which {artifact} is made from, is not in the store")
    progress("verifying", artifact=parent)
    try:
        store.verify(parent)
    except StepError as error:
        raise StepError("ParentCorrupted", error.message) from None
    return {"published": False}


def publish(spec: Mapping[str, Any]) -> dict[str, Any]:
    """After a build: put <scratch>/output into the store.

    `spec`: {"artifact": name, "type": "Checkpoint" or "Engine", "inputs": the artefact's, "store", "scratch":
    directories}. Facts of the build come from <scratch>/build.json. POD_UID in the environment tells attempts apart.
    """
    store, scratch, artifact = Store(Path(spec["store"])), Path(spec["scratch"]), spec["artifact"]
    if (scratch / SKIP_FILE).exists() or store.has(artifact):
        return store.verify(artifact).report()
    output = scratch / OUTPUT
    if not output.is_dir() or not any(output.iterdir()):
        raise StepError("OutputMissing", f"the build left nothing in {output}, though it reported success")
    build = json.loads((scratch / FACTS_FILE).read_text())
    staging = store.staging(artifact, os.environ["POD_UID"])
    return store.publish(staging, artifact, spec["type"], spec["inputs"], build, source=output).report()


def collect(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Remove an artefact, and what attempts at it have left. `spec`: {"artifact": name, "store": directory}."""
    Store(Path(spec["store"])).remove(spec["artifact"])
    return {"removed": spec["artifact"]}
