"""The kinds the operator watches, and how what happens to them wakes keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from ..api import GROUP, VERSION, engineartifact, llmengine
from ..artifacts.damage import damaged_artifacts
from ..kube.cache import Cache
from ..kube.ownership import content_digest
from ..kube.resource import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Obj,
    Resource,
)
from ..kube.resync import Watch
from ..objects import ARTIFACT, ENGINE, MANAGED, NO_MATCHING_NODE, PARENT, condition_true, label
from ..planning.gpu_nodes import read_node
from ..serving.revision import CHAIN_LABELS

LLM_ENGINE = Resource(GROUP, VERSION, llmengine.PLURAL, llmengine.KIND)
ENGINE_ARTIFACT = Resource(GROUP, VERSION, engineartifact.PLURAL, engineartifact.KIND)
RESOURCES = (
    LLM_ENGINE,
    ENGINE_ARTIFACT,
    JOB,
    POD,
    DEPLOYMENT,
    SERVICE,
    CONTROLLER_REVISION,
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    ROLE_BINDING,
    POD_DISRUPTION_BUDGET,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
)

_OURS = f"{MANAGED}=true"
WATCHES = (
    Watch(LLM_ENGINE),
    Watch(ENGINE_ARTIFACT),
    Watch(JOB, _OURS),
    Watch(POD, _OURS),
    Watch(DEPLOYMENT, _OURS),
    Watch(SERVICE, _OURS),
    Watch(CONTROLLER_REVISION, _OURS),
    Watch(CONFIG_MAP, _OURS),
    Watch(SERVICE_ACCOUNT, _OURS),
    Watch(ROLE_BINDING, _OURS),
    Watch(POD_DISRUPTION_BUDGET, _OURS),
    Watch(NODE),
    Watch(PERSISTENT_VOLUME_CLAIM),
)
INDEXED_LABELS = (ENGINE, ARTIFACT, PARENT, *CHAIN_LABELS.values())
PRUNED = {
    JOB: ("spec.template",),
}
"""What nobody here reads of kinds that come in numbers or are large."""


def reduced_node(node: Obj) -> Obj:
    """A node without what nobody reads: heartbeats, images, annotations. A change of the rest wakes keys."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = [{"type": c["type"], "status": c["status"]} for c in status.get("conditions") or () if c["type"] == "Ready"]
    return {
        "metadata": {k: v for k, v in meta.items() if k not in ("annotations", "managedFields")},
        "spec": {k: spec[k] for k in ("taints", "unschedulable") if k in spec},
        "status": {"conditions": ready, **({"allocatable": status["allocatable"]} if "allocatable" in status else {})},
    }


def reduced_claim(claim: Obj) -> Obj:
    """A claim as far as it decides who may mount it."""
    meta, modes = claim["metadata"], (claim.get("spec") or {}).get("accessModes") or ()
    kept = {k: v for k, v in meta.items() if k not in ("annotations", "labels", "managedFields")}
    return {"metadata": kept, "spec": {"accessModes": list(modes)}}


def reduced_config_map(config_map: Obj) -> Obj:
    """A ConfigMap with the digest of its content in place of it."""
    return {"metadata": config_map["metadata"], "contentDigest": content_digest(config_map)}


REDUCED = {CONFIG_MAP: reduced_config_map, NODE: reduced_node, PERSISTENT_VOLUME_CLAIM: reduced_claim}


class Key(NamedTuple):
    """What is reconciled as one: an LLMEngine, an EngineArtifact, or what a namespace's objects share."""

    kind: Literal["LLMEngine", "EngineArtifact", "Shared"]
    namespace: str
    name: str


def keys(resource: Resource, obj: Obj, cache: Cache) -> Iterable[Key]:
    """The keys that an object which came, changed or went concerns."""
    namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
    if resource == LLM_ENGINE:
        yield Key("LLMEngine", namespace, name)
        yield from _being_made_for(namespace, name, cache)
    elif resource == ENGINE_ARTIFACT:
        yield Key("EngineArtifact", namespace, name)
        yield Key("Shared", namespace, "")
        for child in cache.find(ENGINE_ARTIFACT, namespace=namespace, labels={PARENT: name}):
            yield Key("EngineArtifact", namespace, child["metadata"]["name"])
        for revision in revisions_of(obj, cache):
            yield Key("LLMEngine", namespace, label(revision, ENGINE) or "")
    elif resource == NODE:
        yield from _concerned_by_node(obj, cache)
    elif resource == PERSISTENT_VOLUME_CLAIM:
        yield from _concerned_by_claim(namespace, name, cache)
    else:
        yield from _owners(resource, obj, namespace)


def revisions_of(artifact: Obj, cache: Cache) -> list[Obj]:
    """The ControllerRevisions whose chain names the artifact."""
    chain_label = CHAIN_LABELS[artifact["spec"]["type"]]
    meta = artifact["metadata"]
    return cache.find(CONTROLLER_REVISION, namespace=meta["namespace"], labels={chain_label: meta["name"]})


def _being_made_for(namespace: str, engine: str, cache: Cache) -> Iterator[Key]:
    """Artifacts that are not there yet, and are built as the LLMEngine says."""
    for revision in cache.find(CONTROLLER_REVISION, namespace=namespace, labels={ENGINE: engine}):
        for name in filter(None, (label(revision, chain_label) for chain_label in CHAIN_LABELS.values())):
            artifact = cache.get(ENGINE_ARTIFACT, namespace, name)
            if artifact and not condition_true(artifact, "Ready"):
                yield Key("EngineArtifact", namespace, name)


def _owners(resource: Resource, obj: Obj, namespace: str) -> Iterator[Key]:
    if artifact := label(obj, ARTIFACT):
        yield Key("EngineArtifact", namespace, artifact)
    if engine := label(obj, ENGINE):
        yield Key("LLMEngine", namespace, engine)
    if resource == POD:
        for damaged in {name for name, _ in damaged_artifacts(obj)} - {label(obj, ARTIFACT)}:
            yield Key("EngineArtifact", namespace, damaged)
    if resource in (CONFIG_MAP, CONTROLLER_REVISION):
        yield Key("Shared", namespace, "")
    if resource == CONTROLLER_REVISION:
        for chain_label in CHAIN_LABELS.values():
            if artifact := label(obj, chain_label):
                yield Key("EngineArtifact", namespace, artifact)


def _concerned_by_node(node: Obj, cache: Cache) -> Iterator[Key]:
    """A node with GPUs matters to what it can serve and to what waits for a node."""
    gpus = read_node(node)
    if not gpus.offers and not gpus.problem:
        return
    products = {offer.gpu.product for offer in gpus.offers}
    for engine in cache.find(LLM_ENGINE):
        targets = engine["spec"].get("targets") or ()
        selectors = [t.get("gpu") or {} for t in targets]
        if any("product" not in s or s["product"] in products for s in selectors) or _waits(engine):
            yield Key("LLMEngine", engine["metadata"]["namespace"], engine["metadata"]["name"])
    for artifact in cache.find(ENGINE_ARTIFACT):
        if artifact.get("status", {}).get("reason") == NO_MATCHING_NODE:
            yield Key("EngineArtifact", artifact["metadata"]["namespace"], artifact["metadata"]["name"])


def _concerned_by_claim(namespace: str, name: str, cache: Cache) -> Iterator[Key]:
    """A claim matters to what keeps its files there: before it is built, and when it is to be removed."""
    for engine in cache.find(LLM_ENGINE, namespace=namespace):
        if claim_of(engine["spec"].get("storage")) == name:
            yield Key("LLMEngine", namespace, engine["metadata"]["name"])
    for artifact in cache.find(ENGINE_ARTIFACT, namespace=namespace):
        meta = artifact["metadata"]
        if "deletionTimestamp" in meta and claim_of(artifact["spec"]["inputs"].get("storage")) == name:
            yield Key("EngineArtifact", namespace, meta["name"])


def claim_of(storage: Obj | None) -> str | None:
    """Name of the claim that a store is, if it is one."""
    claim = (storage or {}).get("persistentVolumeClaim") or {}
    name = claim.get("claimName")
    return None if name is None else str(name)


def _waits(engine: Obj) -> bool:
    """Whether a target lacks a node: also one that has lost its last, whose new labels are not what it looks for."""
    status = engine.get("status") or {}
    return any(c["type"] == "NodesMatch" and c["status"] != "True" for c in status.get("conditions") or ())
