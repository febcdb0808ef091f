"""The kinds the operator watches, and how what happens to them wakes keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from ..api import GROUP, VERSION, engineartifact, llmengine
from ..kube.cache import Cache
from ..kube.resource import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    SERVICE,
    Obj,
    Resource,
)
from ..kube.resync import Watch
from ..objects import ARTIFACT, ENGINE, MANAGED, PARENT, label
from ..serving.revision import CHAIN_LABELS

LLM_ENGINE = Resource(GROUP, VERSION, llmengine.PLURAL, llmengine.KIND)
ENGINE_ARTIFACT = Resource(GROUP, VERSION, engineartifact.PLURAL, engineartifact.KIND)
RESOURCES = (LLM_ENGINE, ENGINE_ARTIFACT, JOB, POD, DEPLOYMENT, SERVICE, CONTROLLER_REVISION, CONFIG_MAP, NODE)

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
    Watch(NODE),
)
INDEXED_LABELS = (ENGINE, ARTIFACT, PARENT, *CHAIN_LABELS.values())
PRUNED = {
    NODE: ("status", "spec.podCIDR", "spec.podCIDRs"),
    CONFIG_MAP: ("data", "binaryData"),
    JOB: ("spec.template",),
}
"""What nobody here reads of kinds that come in numbers or are large."""

NO_MATCHING_NODE = "NoMatchingNode"


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
    elif resource == ENGINE_ARTIFACT:
        yield Key("EngineArtifact", namespace, name)
        yield Key("Shared", namespace, "")
        for child in cache.find(ENGINE_ARTIFACT, namespace=namespace, labels={PARENT: name}):
            yield Key("EngineArtifact", namespace, child["metadata"]["name"])
        for revision in revisions_of(obj, cache):
            yield Key("LLMEngine", namespace, label(revision, ENGINE) or "")
    elif resource == NODE:
        yield from _waiting_for_nodes(cache)
    else:
        yield from _owners(resource, obj, namespace)


def revisions_of(artifact: Obj, cache: Cache) -> list[Obj]:
    """The ControllerRevisions whose chain names the artefact."""
    chain_label = CHAIN_LABELS[artifact["spec"]["type"]]
    meta = artifact["metadata"]
    return cache.find(CONTROLLER_REVISION, namespace=meta["namespace"], labels={chain_label: meta["name"]})


def _owners(resource: Resource, obj: Obj, namespace: str) -> Iterator[Key]:
    if artifact := label(obj, ARTIFACT):
        yield Key("EngineArtifact", namespace, artifact)
    if engine := label(obj, ENGINE):
        yield Key("LLMEngine", namespace, engine)
    if resource == CONTROLLER_REVISION:
        yield Key("Shared", namespace, "")
        for chain_label in CHAIN_LABELS.values():
            if artifact := label(obj, chain_label):
                yield Key("EngineArtifact", namespace, artifact)


def _waiting_for_nodes(cache: Cache) -> Iterator[Key]:
    """A node matters to what has found none: heartbeats of many nodes wake nothing else."""
    for engine in cache.find(LLM_ENGINE):
        targets = engine.get("status", {}).get("targets") or ()
        if any(t.get("reason") == NO_MATCHING_NODE for t in targets):
            yield Key("LLMEngine", engine["metadata"]["namespace"], engine["metadata"]["name"])
    for artifact in cache.find(ENGINE_ARTIFACT):
        if artifact.get("status", {}).get("reason") == NO_MATCHING_NODE:
            yield Key("EngineArtifact", artifact["metadata"]["namespace"], artifact["metadata"]["name"])
