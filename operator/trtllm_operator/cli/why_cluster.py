"""What `why` reads of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from ..kube.resource import CONTROLLER_REVISION, DEPLOYMENT, JOB, POD, Obj, Resource
from ..objects import MANAGED
from ..reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE
from .cluster import Cluster
from .errors import CliError
from .why import Report, Seen, why_artifact, why_engine

_OURS = f"{MANAGED}=true"
_ARTIFACT_NAME = re.compile(r"^(model|checkpoint|engine)-[0-9a-f]{20}$")
_LISTED = 10


def why_of(name: str, namespace: str | None) -> Report:
    """Why the LLMEngine or the EngineArtifact of that name is where it is. Raises CliError."""
    cluster = Cluster()
    where = namespace or cluster.namespace

    def named(resource: Resource, selector: str = "") -> dict[str, Obj]:
        return {o["metadata"]["name"]: o for o in cluster.objects(resource, where, selector)}

    seen = Seen(
        now=datetime.now(UTC),
        engines=named(LLM_ENGINE),
        artifacts=named(ENGINE_ARTIFACT),
        revisions=named(CONTROLLER_REVISION, _OURS),
        deployments=named(DEPLOYMENT, _OURS),
        jobs=named(JOB, _OURS),
        pods=tuple(cluster.objects(POD, where, _OURS)),
    )
    if name in seen.engines:
        return why_engine(seen, name)
    if name in seen.artifacts:
        return why_artifact(seen, name)
    kind, there = ("EngineArtifact", seen.artifacts) if _ARTIFACT_NAME.match(name) else ("LLMEngine", seen.engines)
    raise not_there(where, kind, name, there)


def not_there(namespace: str, kind: str, name: str, there: Iterable[str]) -> CliError:
    """Says which there are instead."""
    names = sorted(there)
    known = ", ".join(names[:_LISTED]) + (" ..." if len(names) > _LISTED else "")
    return CliError(f"namespace {namespace} has no {kind} {name}; it has {known or 'none'}")
