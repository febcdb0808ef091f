"""The status of an LLMEngine: conditions that people and kstatus can read, and one line for each target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..api.conditions import Condition, ConditionStatus, transition, truth
from ..api.llmengine import LLMEngineSpec, LLMEngineStatus, PlanStatus, ResolvedModel, Target, TargetStatus
from ..objects import NO_MATCHING_NODE, Obj, timestamp
from ..planning.expansion import ConcreteTarget
from ..serving.health import Problem
from ..serving.kv_cache import difference
from ..serving.revision import Revision, read_revision
from .snapshot import EngineSnapshot
from .wanted import Wait

MakeCondition = Callable[[str, ConditionStatus, str, str], Condition]
"""Type, status, reason, message."""


@dataclass(frozen=True)
class Verdict:
    """What is known of the object as a whole: the model, and what stands in the way of every target alike."""

    model: ResolvedModel | None
    wait: Wait | None
    unused_gpus: tuple[str, ...] = ()
    """GPUs of the cluster that a target for several classes does not use, each with its reason."""


@dataclass(frozen=True)
class FrontState:
    """How the endpoint is."""

    url: str | None
    available: bool
    reason: str
    message: str


@dataclass(frozen=True)
class TargetOutcome:
    concrete: ConcreteTarget
    revision: Revision | None
    missing: Wait | None
    """What the wanted revision waits for; None once its engine is proven."""
    served: str | None
    serves: bool
    """The served revision answers."""
    complete: bool
    """All servers of the served revision that the spec asks for answer."""
    proven: bool
    """The wanted revision is the one that serves."""
    deployment: Obj | None
    """Of the wanted revision."""
    served_deployment: Obj | None
    served_artifact: str | None
    server_problem: Problem | None
    restarting: str = ""
    """What to say of servers that restart."""
    note: str = ""
    """What to say beside the message while the target is not ready."""

    @property
    def target(self) -> Target:
        return self.concrete.target

    @property
    def skipped(self) -> bool:
        """A class that cannot run the model, among others that can: it keeps nothing from being ready."""
        return bool(self.missing and self.missing.skipped)

    @property
    def ready(self) -> bool:
        return self.proven and self.complete and self.missing is None

    @property
    def reason(self) -> str:
        if self.ready:
            return "Serving"
        if self.missing:
            return self.missing.reason
        if self.concrete.absent:
            return NO_MATCHING_NODE
        if self.server_problem:
            return self.server_problem.reason
        return "Restarting" if self.restarting else "StartingServers"

    @property
    def message(self) -> str:
        if self.ready:
            return ""
        return f"{self._message}; {self.note}" if self.note else self._message

    @property
    def _message(self) -> str:
        if self.missing:
            return self.missing.message
        if self.concrete.absent:
            return f"no server can start: {self.concrete.absent}"
        if self.server_problem:
            return self.server_problem.message
        if self.restarting:
            return self.restarting
        status = (self.deployment or {}).get("status", {})
        return f"{status.get('readyReplicas', 0)} of {self.target.replicas} servers are ready"

    @property
    def stalled(self) -> bool:
        if self.missing or self.ready:
            return bool(self.missing and self.missing.stalled)
        return bool(self.server_problem and self.server_problem.stalled and not self.concrete.absent)


def engine_status(
    seen: EngineSnapshot,
    before: LLMEngineStatus,
    spec: LLMEngineSpec | None,
    verdict: Verdict,
    outcomes: tuple[TargetOutcome, ...],
    front: FrontState | None = None,
) -> LLMEngineStatus:
    generation = seen.engine["metadata"]["generation"]
    now = timestamp(seen.now)

    def condition(type_: str, status: ConditionStatus, reason: str, message: str) -> Condition:
        return transition(before.conditions, type_, status, reason, message, generation=generation, now=now)

    wait = verdict.wait
    counted = [o for o in outcomes if not o.skipped]
    pending = [o for o in counted if not o.ready]
    waiting_for_artifacts = [o for o in counted if o.missing]
    ready = wait is None and not pending
    stalled = bool(wait.stalled) if wait else any(o.stalled for o in outcomes)
    worst = next((o for o in pending if o.stalled), pending[0] if pending else None)
    reason = wait.reason if wait else (worst.reason if worst else "Serving")
    message = wait.message if wait else "; ".join(f"{o.target.name}: {o.message}" for o in pending)
    artifacts_reason = wait.reason if wait else (waiting_for_artifacts[0].reason if waiting_for_artifacts else "Proven")
    artifacts_message = (
        wait.message if wait else "; ".join(f"{o.target.name}: {o.message}" for o in waiting_for_artifacts)
    )
    unavailable = [o.target.name for o in counted if not o.serves]
    conditions = (
        condition("Ready", truth(ready), reason, message),
        *([condition("Reconciling", "True", reason, message)] if not ready and not stalled else ()),
        *([condition("Stalled", "True", reason, message)] if stalled else ()),
        condition(
            "Available",
            truth(bool(outcomes) and not unavailable),
            "Serving" if outcomes and not unavailable else "NotServing",
            ""
            if outcomes and not unavailable
            else f"nothing proven serves on {', '.join(unavailable) or 'any target'}",
        ),
        _validated(condition, verdict, outcomes),
        condition(
            "ArtifactsReady", truth(wait is None and not waiting_for_artifacts), artifacts_reason, artifacts_message
        ),
        *([_nodes_match(condition, verdict, counted)] if counted else ()),
        *([condition("FrontAvailable", truth(front.available), front.reason, front.message)] if front else ()),
    )
    model = verdict.model or before.model
    return LLMEngineStatus(
        observed_generation=generation,
        conditions=conditions,
        reason=reason,
        precision=_precision(spec, model) if spec else None,
        tensor_parallel=spec.parallelism.tensor if spec else None,
        model=model,
        calibration=before.calibration,
        targets=tuple(_target_status(seen, before, o) for o in outcomes) if spec else before.targets,
        endpoint=front.url if front else None,
    )


def _precision(spec: LLMEngineSpec, model: ResolvedModel | None) -> str:
    if spec.precision.quantization != "none":
        return spec.precision.quantization
    found = model.facts.get("dtype") if model and spec.precision.dtype == "auto" else None
    return str(found or spec.precision.dtype)


def _validated(condition: MakeCondition, verdict: Verdict, outcomes: Iterable[TargetOutcome]) -> Condition:
    wait = verdict.wait
    if wait and wait.refused:
        return condition("Validated", "False", wait.reason, wait.message)
    if wait and verdict.model is None:
        return condition("Validated", "Unknown", wait.reason, wait.message)
    skipped = "; ".join(f"not for {o.target.name}: {o.message}" for o in outcomes if o.skipped)
    return condition("Validated", "True", "Valid", skipped)


def _nodes_match(condition: MakeCondition, verdict: Verdict, outcomes: Iterable[TargetOutcome]) -> Condition:
    """Whether a server of each target that stops could start again, and what is odd about the nodes."""
    absent = [f"{o.target.name}: {o.concrete.absent}" for o in outcomes if o.concrete.absent]
    odd = [f"{o.target.name}: {remark}" for o in outcomes for remark in o.concrete.remarks]
    unused = [f"not used: {gpus}" for gpus in verdict.unused_gpus]
    reason = NO_MATCHING_NODE if absent else "NodesMatch"
    return condition("NodesMatch", truth(not absent), reason, "; ".join((*absent, *odd, *unused)))


def _target_status(seen: EngineSnapshot, before: LLMEngineStatus, outcome: TargetOutcome) -> TargetStatus:
    revision = outcome.revision
    concrete = outcome.concrete
    gpu = (revision.engine.spec.inputs.gpu if revision else None) or concrete.gpu_class
    served = (outcome.served_deployment or {}).get("status", {})
    tokens = _kv_cache_tokens(seen, before, outcome)
    return TargetStatus(
        name=concrete.name,
        spec_target=concrete.spec_target if concrete.derived else None,
        gpu=f"{gpu.product} ({gpu.compute_capability})" if gpu else None,
        artifact=revision.engine.name if revision else None,
        wanted_revision=revision.name if revision else None,
        served_revision=outcome.served,
        served_artifact=outcome.served_artifact,
        **_served_limits(seen, outcome),
        kv_cache_tokens=tokens,
        replicas=served.get("replicas", 0),
        ready_replicas=served.get("readyReplicas", 0),
        service=seen.service_name(outcome.target.name),
        reason=outcome.reason,
        message=outcome.message or None,
        plan=_plan_status(revision, tokens if outcome.served == revision.name else None) if revision else None,
    )


def _served_limits(seen: EngineSnapshot, outcome: TargetOutcome) -> dict[str, Any]:
    """What the endpoint needs to know of the served revision: the limits of its engine, and whose tokenizer it has."""
    stored = seen.revisions.get(outcome.served or "")
    if stored is None:
        return {}
    revision = read_revision(stored)
    expected = revision.engine.spec.expected
    limits = ("max_batch_size", "max_input_len", "max_seq_len")
    return {
        "served_model": revision.artifacts[0].name,
        **{name: getattr(expected, name) for name in limits},
        "weight": outcome.target.weight,
    }


def _kv_cache_tokens(seen: EngineSnapshot, before: LLMEngineStatus, outcome: TargetOutcome) -> int | None:
    """Of the served revision: what its servers were heard to say, now or earlier."""
    if outcome.served is None:
        return None
    known = next((t for t in before.targets if t.name == outcome.target.name), None)
    earlier = known.kv_cache_tokens if known and known.served_revision == outcome.served else None
    return seen.kv_cache_tokens.get(outcome.served, earlier)


def _plan_status(revision: Revision, kv_cache_tokens: int | None) -> PlanStatus:
    """`kv_cache_tokens`: what the KV cache of its servers came out at, where that is known."""
    odd = difference(revision.plan.get("kvCacheTokens"), kv_cache_tokens)
    expected = revision.engine.spec.expected
    return PlanStatus.model_validate(
        {
            **revision.plan,
            "dtype": expected.dtype if expected else None,
            "gpusPerServer": expected.tensor_parallel * expected.pipeline_parallel if expected else None,
            "warnings": (*revision.warnings, *([odd] if odd else ())),
        }
    )
