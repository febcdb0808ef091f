"""Everything that the plan of one LLMEngine depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ..api.llmengine import LLMEngineSpec
from ..artifacts.secrets import UNKNOWN, Secrets
from ..catalog import Catalog
from ..objects import TARGET, Obj, Runner, label
from ..operator_config import OperatorConfig
from ..planning.keys import Mismatch
from ..serving.names import service_name
from ..serving.revision import Revision, read_revision


@dataclass(frozen=True)
class EngineSnapshot:
    engine: Obj
    spec: LLMEngineSpec | str
    """What the engine asks for, or what is wrong with it where it cannot be read."""
    inspections: Mapping[str, Obj]
    """Jobs that read the model, or calibration texts, by name."""
    inspection_pods: tuple[Obj, ...]
    """Of all of them."""
    revisions: Mapping[str, Obj]
    """ControllerRevisions of this LLMEngine by name."""
    artifacts: Mapping[str, Obj]
    """EngineArtifacts of the namespace by name, those that are what it says."""
    deployments: Mapping[str, Obj]
    """Of this LLMEngine, by name."""
    services: Mapping[str, Obj]
    """Of this LLMEngine, by name."""
    front: tuple[Obj, ...]
    """Objects of the endpoint of this LLMEngine, of all kinds but Pods."""
    budgets: Mapping[str, Obj]
    """PodDisruptionBudgets of this LLMEngine by name."""
    pods: tuple[Obj, ...]
    """Server Pods of this LLMEngine."""
    ending: tuple[Obj, ...]
    """Pods of ours in the namespace that were told to end and are still there."""
    nodes: tuple[Obj, ...]
    claim: Obj | None
    """The claim that is the store, where that is one and exists."""
    config_maps: frozenset[str]
    """Names of the runner ConfigMaps in the namespace."""
    catalog: Catalog
    config: OperatorConfig
    runner: Runner
    now: datetime
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """The name of a revision that this version of the operator does not understand, by the target's."""
    mismatched: Mapping[str, Mismatch] = field(default_factory=dict)
    """EngineArtifacts that are not what their names say, by these."""
    kv_cache_tokens: Mapping[str, int] = field(default_factory=dict)
    """What the KV cache of a revision's servers holds, by the revision's name, where their log was read."""
    volume_events: Mapping[str, str] = field(default_factory=dict)
    """Why a volume of a server's or an inspection's Pod cannot be attached or mounted, by the Pod's uid."""
    secrets: Secrets = UNKNOWN
    """Those that the inspection of the model depends on, until there has been one."""
    server_secrets: Secrets = UNKNOWN
    """Those that servers depend on, while some of them fail."""

    def service_of(self, target: str) -> Obj | None:
        """The Service of a target; None where there is none."""
        return next((s for s in self.services.values() if label(s, TARGET) == target), None)

    def service_name(self, target: str) -> str:
        """Name of a target's Service: of the one that it has, whatever it is called, as clients know it by that; where
        that was deleted while it served, the same name again."""
        own = sorted(name for name, service in self.services.items() if label(service, TARGET) == target)
        if own:
            return own[0]
        known = (self.engine.get("status") or {}).get("targets") or ()
        served = (t.get("service") for t in known if t.get("name") == target and t.get("servedRevision"))
        return next(filter(None, served), None) or service_name(self.engine["metadata"]["name"], target)

    def revision(self, name: str | None) -> Revision | None:
        """As it is stored; None where it is not."""
        stored = self.revisions.get(name or "")
        return read_revision(stored) if stored else None
