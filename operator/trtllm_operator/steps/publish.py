"""What the Pods of builds and servers, and the end of an artifact, do with the store."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runner.manifest import corrupted
from ..runner.report import StepError, progress
from .calibration_texts import bring
from .open_store import open_store
from .same import same
from .store import Content, Store

SKIP_FILE = "skip"
FACTS_FILE = "build.json"
OUTPUT = "output"
TEXTS = Path(__file__).with_name("calibration")
"""Directory of directories of sample texts, by version: a version's files never change."""


def stage(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Before a build: is there anything to do, and is what it is made from whole, and where the build can read it?

    `spec`: {"artifact", "parent": names, "store": as `open_store`'s, "scratch": directory, "model": artifact whose
    tokenizer is needed too, "texts": true where a calibration needs the texts that come with the operator, or
    "calibration": as `texts.bring`'s where it has its own, "digests": of the manifests of what is read, by artifact}.
    Writes <scratch>/skip when the artifact is in the store already.
    """
    store, artifact, parent = _store(spec), spec["artifact"], spec["parent"]
    if store.has(artifact):
        store.verify(artifact)
        (Path(spec["scratch"]) / SKIP_FILE).touch()
        return {"published": True}
    if not store.has(parent):
        raise corrupted(parent, f"{parent}, which {artifact} is made from, is not in the store")
    if spec.get("texts"):
        shutil.copytree(TEXTS, Path(spec["scratch"]) / TEXTS.name)
    if own := spec.get("calibration"):
        bring(own, Path(spec["scratch"]) / TEXTS.name)
    progress("verifying", artifact=parent)
    digests = spec.get("digests", {})
    store.provide(parent, digest=digests.get(parent))
    if model := spec.get("model"):
        store.provide(model, _without_weights, digests.get(model))
    return {"published": False}


def provide(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Before a server: bring the engine, and of the model all but the weights, to where the server can read them.

    `spec`: {"engine", "model": names, "store": as `open_store`'s, "scratch": directory}; of an endpoint "models", names
    of several, and no engine. "digests": of their manifests as they were published, by artifact.
    """
    store, digests = _store(spec), spec.get("digests", {})
    if engine := spec.get("engine"):
        store.provide(engine, digest=digests.get(engine))
    for model in spec.get("models") or (spec["model"],):
        store.provide(model, _without_weights, digests.get(model))
    return {}


def publish(spec: Mapping[str, Any]) -> dict[str, Any]:
    """After a build: put <scratch>/output into the store.

    `spec`: {"artifact": name, "type": "Checkpoint" or "Engine", "inputs": the artifact's, "store": as `open_store`'s,
    "scratch": directory}. Facts of the build come from <scratch>/build.json. POD_UID in the environment tells attempts
    apart.
    """
    store, scratch, artifact = _store(spec), Path(spec["scratch"]), spec["artifact"]
    if (scratch / SKIP_FILE).exists() or store.has(artifact):
        return same(store.verify(artifact), spec).report()
    output = scratch / OUTPUT
    if not output.is_dir() or not any(output.iterdir()):
        raise StepError("OutputMissing", f"the build left nothing in {output}, though it reported success")
    build = json.loads((scratch / FACTS_FILE).read_text())
    content = Content(artifact, spec["type"], spec["inputs"], build)
    return same(store.publish(content, output, os.environ["POD_UID"]), spec).report()


def check(spec: Mapping[str, Any]) -> dict[str, Any]:
    """When somebody found an artifact damaged: read it in the store, and take it away unless it is whole.

    `spec`: {"artifact": name, "type", "inputs": the artifact's, "store": as `open_store`'s, "scratch": directory}, and
    "digest": of its manifest, where its publication was recorded, and "unfit": why it is taken away unread, of an
    engine that is whole and not what its record says. Returns {"whole": whether it is} and what was wrong as "problem".
    """
    store, artifact = _store(spec), spec["artifact"]
    if unfit := spec.get("unfit"):
        store.remove(artifact)
        return {"whole": False, "problem": unfit[:1024]}
    try:
        if not store.has(artifact):
            return {"whole": False, "problem": f"{artifact} is not in the store"}
        same(store.verify(artifact, spec.get("digest")), spec)
    except StepError as error:
        if error.artifact != artifact:
            raise
        store.remove(artifact)
        return {"whole": False, "problem": error.message[:1024]}
    return {"whole": True}


def collect(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Remove an artifact, and what attempts at it have left.

    `spec`: {"artifact": name, "store": as `open_store`'s, "scratch": directory}.
    """
    _store(spec).remove(spec["artifact"])
    return {"removed": spec["artifact"]}


def _without_weights(path: str) -> bool:
    return not path.endswith(".safetensors")


def _store(spec: Mapping[str, Any]) -> Store:
    return open_store(spec["store"], Path(spec["scratch"]))
