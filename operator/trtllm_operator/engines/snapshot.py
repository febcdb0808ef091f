"""Everything that the plan of one LLMEngine depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ..api.llmengine import LLMEngineSpec
from ..artifacts.secrets import UNKNOWN, Secrets
from ..catalog import Catalog
from ..objects import Obj, Runner
from ..operator_config import OperatorConfig
from ..planning.keys import Mismatch


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
