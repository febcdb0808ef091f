"""What `why-rebuild` reads of a cluster: artifacts, and what LLMEngines want."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from ..api.llmengine import LLMEngineSpec, LLMEngineStatus
from ..api.markers import problems
from ..api.stored import read_status
from ..kube.resource import CONTROLLER_REVISION, NODE, Obj, Resource
from ..objects import ENGINE, condition_true
from ..reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE
from ..serving.revision import Revision, read_revision
from .cluster import Cluster
from .errors import CliError
from .rebuild_sides import Part, Side, part_of
from .why_cluster import not_there


@dataclass(frozen=True)
class LiveEngine:
    """An LLMEngine of the cluster, with what it wants and has had."""

    name: str
    spec: LLMEngineSpec
    status: LLMEngineStatus
    revisions: Sequence[Revision]
    """The newest first."""
    side: Side
    namespace: Namespace


class Namespace:
    """A namespace of the cluster that the kubeconfig names. Every failure is a CliError."""

    def __init__(self, name: str | None) -> None:
        self._cluster = Cluster()
        self._name = name or self._cluster.namespace

    def artifact(self, word: str, name: str) -> Side:
        return Side(word, part_of(self._named(ENGINE_ARTIFACT, name), word), self._ready)

    def engine(self, word: str, name: str) -> LiveEngine:
        """Raises CliError also where it wants nothing yet."""
        live = self._named(LLM_ENGINE, name)
        status = read_status(LLMEngineStatus, live.get("status"))
        found = self._cluster.objects(CONTROLLER_REVISION, self._name, f"{ENGINE}={name}")
        revisions = [read_revision(r) for r in sorted(found, key=lambda r: int(r["revision"]), reverse=True)]
        names = {t.wanted_revision for t in status.targets}
        wanted = {revision.target: revision for revision in revisions if revision.name in names}
        if not wanted:
            why = status.reason or "the operator has not looked at it"
            raise CliError(f"LLMEngine {name} has no artifacts yet ({why}): llmengine why {name}")
        try:
            spec = LLMEngineSpec.model_validate(live["spec"])
        except ValidationError as error:
            raise CliError(f"LLMEngine {name} is not one of this version: {problems(error)}") from None
        parts = {target: parts_of(revision) for target, revision in wanted.items()}
        return LiveEngine(name, spec, status, revisions, Side(word, parts, self._ready), self)

    def nodes(self) -> list[Obj]:
        return self._cluster.objects(NODE)

    @cached_property
    def _artifacts(self) -> dict[str, Obj]:
        return {a["metadata"]["name"]: a for a in self._cluster.objects(ENGINE_ARTIFACT, self._name)}

    @property
    def _ready(self) -> frozenset[str]:
        return frozenset(name for name, artifact in self._artifacts.items() if condition_true(artifact, "Ready"))

    def _named(self, resource: Resource, name: str) -> Obj:
        if resource == ENGINE_ARTIFACT:
            there = self._artifacts
        else:
            there = {o["metadata"]["name"]: o for o in self._cluster.objects(resource, self._name)}
        if name not in there:
            raise not_there(self._name, resource.kind, name, there)
        return there[name]


def parts_of(revision: Revision) -> tuple[Part, ...]:
    return tuple(Part(a.spec.type, a.spec.inputs) for a in revision.artifacts)
