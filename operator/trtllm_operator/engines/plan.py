"""What to do for one LLMEngine: a pure function of what is seen."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from ..api import API_VERSION
from ..api.engineartifact import KIND as ARTIFACT_KIND
from ..api.engineartifact import EngineArtifactStatus
from ..api.llmengine import LLMEngineSpec, LLMEngineStatus, ResolvedModel, Target
from ..artifacts.chain import policy
from ..artifacts.collection import FINALIZER
from ..artifacts.plan import LOOK_AGAIN_SECONDS, is_ready
from ..objects import (
    MANAGED,
    PARENT,
    REVISION,
    TARGET,
    Artifact,
    Obj,
    annotation,
    label,
    runner_config_map,
    short_hash,
)
from ..planning.expansion import ConcreteTarget
from ..pods import is_over, waits_for_volumes
from ..serving import rollout
from ..serving.health import Problem
from ..serving.revision import Revision, controller_revision, read_revision
from ..serving.triton import deployment
from .calibration import known_texts
from .gpu_targets import concrete_targets
from .server_problem import WAITING_FOR_GPU, held, share_gpus, trouble
from .snapshot import EnginePlan, EngineSnapshot
from .status import TargetOutcome, Verdict, engine_status
from .wanted import Wait, Wanted, decide, resolve_model

KEPT_REVISIONS = 1
"""Revisions of a target that neither serve nor are wanted, kept with their artifacts for the way back."""


@dataclass
class _Writes:
    create: list[Obj]
    apply: list[Obj]
    delete: list[Obj]
    again: list[float]


def plan(seen: EngineSnapshot) -> EnginePlan:
    """The next step of an LLMEngine that is not being deleted."""
    writes = _Writes([], [], [], [])
    before = LLMEngineStatus.model_validate(seen.engine.get("status") or {})
    spec = seen.spec
    if isinstance(spec, str):
        verdict = Verdict(None, Wait("SpecInvalid", spec, stalled=True, refused=True))
        return EnginePlan(status=engine_status(seen, before, None, verdict, ()).dump())
    wanted: Wanted | Wait
    model = resolve_model(seen, spec, before)
    expansion = concrete_targets(seen, spec)
    texts = known_texts(seen, spec, before.calibration or ())
    wanted = model if isinstance(model, Wait) else decide(seen, spec, model, texts, expansion.targets)
    if isinstance(wanted, Wait):
        _take(writes, wanted)
    policy_changed = before.build_policy_hash != _policy_hash(spec)
    outcomes = tuple(_target(seen, spec, one, wanted, writes, policy_changed) for one in expansion.targets)
    _remove_rest(seen, wanted, outcomes, writes)
    resolved = model if isinstance(model, ResolvedModel) else None
    verdict = Verdict(resolved, wanted if isinstance(wanted, Wait) else None, expansion.passed_by)
    status = engine_status(seen, before, spec, verdict, outcomes).model_copy(
        update={
            "build_policy_hash": before.build_policy_hash if isinstance(wanted, Wait) else _policy_hash(spec),
            "calibration": tuple(texts.values()) or None,
        }
    )
    return EnginePlan(
        create=tuple(writes.create),
        apply=tuple(writes.apply),
        delete=tuple(writes.delete),
        status=status.dump(),
        again_seconds=min(writes.again, default=None),
    )


def _take(writes: _Writes, wait: Wait) -> None:
    writes.create += wait.create
    writes.delete += wait.delete
    if wait.again_seconds is not None:
        writes.again.append(wait.again_seconds)


def _policy_hash(spec: LLMEngineSpec) -> str:
    hub, bucket, store = spec.model.hugging_face, spec.model.s3, spec.storage.s3
    secrets = (
        hub.token_secret_ref if hub else None,
        bucket.credentials_secret_ref if bucket else None,
        store.credentials_secret_ref if store else None,
    )
    return short_hash([spec.build.dump(), [secret.dump() for secret in secrets if secret]])


def _target(
    seen: EngineSnapshot,
    spec: LLMEngineSpec,
    concrete: ConcreteTarget,
    wanted: Wanted | Wait,
    writes: _Writes,
    policy_changed: bool,
) -> TargetOutcome:
    name, target = seen.engine["metadata"]["name"], concrete.target
    observed = rollout.Observed(
        service=seen.services.get(f"{name}-{target.name}"),
        deployments={n: d for n, d in seen.deployments.items() if label(d, TARGET) == target.name},
    )
    entry = wanted if isinstance(wanted, Wait) else wanted.targets[target.name]
    revision = entry if isinstance(entry, Revision) else None
    missing: Wait | None = entry if isinstance(entry, Wait) else None
    if revision:
        _ensure(seen, spec, revision, writes, policy_changed)
        missing = _first_missing(seen, revision, {o["metadata"]["name"] for o in writes.apply})
    in_place = spec.rollout.strategy == "Recreate"
    step = rollout.step(
        seen.engine,
        target.name,
        None if missing else revision,
        target.replicas,
        observed,
        seen.now,
        in_place=in_place,
    )
    _take_step(writes, step)
    wrong = trouble(seen, revision, spec.rollout, observed.selected) if revision and not missing else None
    if revision:
        writes.delete += rollout.superseded(revision.name, observed, seen.now)
    _take_step(writes, _room(seen, spec, target, revision, missing, wrong, observed))
    if any(waits_for_volumes(p) for p in seen.pods if label(p, TARGET) == target.name):
        writes.again.append(LOOK_AGAIN_SECONDS)
    if revision and missing and missing.on_own_gpus:
        said = held(seen, revision, spec.rollout, observed.selected, missing.reason)
        missing = replace(missing, message=missing.message + said)
    mounted = revision.runner_config_map if revision and not missing else None
    if mounted == seen.runner.config_map and mounted not in seen.config_maps:
        writes.create.append(runner_config_map(seen.runner, seen.engine["metadata"]["namespace"]))
    served = observed.deployments.get(step.served or "")
    return TargetOutcome(
        concrete=concrete,
        revision=revision,
        missing=missing,
        served=step.served,
        serves=served is not None and rollout.serves(served),
        complete=served is not None and rollout.available(served, target.replicas),
        proven=revision is not None and step.served == revision.name,
        deployment=observed.deployments.get(revision.name) if revision else None,
        served_deployment=served,
        served_artifact=_engine_of(seen, step.served),
        trouble=wrong,
    )


def _take_step(writes: _Writes, step: rollout.Step) -> None:
    writes.apply += step.apply
    writes.delete += step.delete
    if step.again_seconds is not None:
        writes.again.append(step.again_seconds)


def _room(
    seen: EngineSnapshot,
    spec: LLMEngineSpec,
    target: Target,
    revision: Revision | None,
    missing: Wait | None,
    wrong: Problem | None,
    observed: rollout.Observed,
) -> rollout.Step:
    """What the old servers give up for the new revision of a target, or get back: also where there is none to be."""
    stored, live = seen.revisions.get(observed.selected or ""), observed.deployments.get(observed.selected or "")
    if stored is None or live is None or (revision and observed.selected == revision.name):
        return rollout.Step()
    old = read_revision(stored)
    recreates = spec.rollout.strategy == "Recreate"
    too_many = revision is not None and live["spec"].get("replicas", 1) > target.replicas
    if too_many or (annotation(live, rollout.ROOM) and (not recreates or (missing and missing.stalled))):
        return rollout.Step(apply=(deployment(seen.engine, old, target.replicas),))
    builds = missing is not None and missing.on_own_gpus and missing.reason == WAITING_FOR_GPU
    starts = wrong is not None and wrong.reason == WAITING_FOR_GPU
    if revision is None or not recreates or not (builds or starts) or not share_gpus(old, revision):
        return rollout.Step()
    pods = [p for p in seen.pods if label(p, TARGET) == target.name and not is_over(p)]
    # The last of the old servers goes for the first of the new ones, not for those after it.
    begun = any(label(p, REVISION) == revision.name and "nodeName" in p["spec"] for p in pods)
    return rollout.make_room(seen.engine, old, live, pods, seen.now, keep=1 if starts and begun else 0)


def _engine_of(seen: EngineSnapshot, revision: str | None) -> str | None:
    stored = seen.revisions.get(revision or "")
    return str(stored["data"]["artifacts"][-1]["name"]) if stored else None


def _ensure(
    seen: EngineSnapshot, spec: LLMEngineSpec, revision: Revision, writes: _Writes, policy_changed: bool
) -> None:
    """The revision is kept first, then its artifacts come to be: what is built is always needed by something."""
    if revision.name not in seen.revisions:
        numbers = [r["revision"] for r in seen.revisions.values() if label(r, TARGET) == revision.target]
        writes.create.append(controller_revision(seen.engine, revision, max(numbers, default=0) + 1))
    for artifact in revision.artifacts:
        live = seen.artifacts.get(artifact.name)
        wanted = _artifact_object(seen, spec, artifact, revision)
        # Applied, not posted: the finalizer has to belong to the manager that takes it away.
        if (live is None or (policy_changed and not is_ready(live))) and wanted not in writes.apply:
            writes.apply.append(wanted)


def _artifact_object(
    seen: EngineSnapshot, spec: LLMEngineSpec, artifact: Artifact, revision: Revision
) -> dict[str, Any]:
    gpu = revision.engine.spec.inputs.gpu
    assert gpu is not None  # the schema demands it
    current = artifact.spec.model_copy(update={"policy": policy(spec, artifact.spec, revision.plan, gpu)})
    return {
        "apiVersion": API_VERSION,
        "kind": ARTIFACT_KIND,
        "metadata": {
            "name": artifact.name,
            "namespace": seen.engine["metadata"]["namespace"],
            "labels": {MANAGED: "true", **({PARENT: current.inputs.parent} if current.inputs.parent else {})},
            "finalizers": [FINALIZER],
        },
        "spec": current.dump(),
    }


def _first_missing(seen: EngineSnapshot, revision: Revision, written: AbstractSet[str]) -> Wait | None:
    """The first artifact of the chain that is not ready, as what the target waits for.

    Of an artifact that is being written now, or whose plan has not seen its newest policy, the status speaks of what
    is past: a spec that was just put right must not look stalled.
    """
    for artifact in revision.artifacts:
        live = seen.artifacts.get(artifact.name)
        if live is None:
            return Wait("CreatingArtifacts", f"{artifact.name} is about to be made")
        if "deletionTimestamp" in live["metadata"]:
            return Wait("ArtifactBeingRemoved", f"{artifact.name} is being removed; it is made again after that")
        if is_ready(live):
            continue
        status = EngineArtifactStatus.model_validate(live.get("status") or {})
        ready = next((c for c in status.conditions if c.type == "Ready"), None)
        stalled = any(c.type == "Stalled" and c.status == "True" for c in status.conditions)
        if ready is None:
            return Wait("CreatingArtifacts", f"{artifact.name} has just been made")
        if artifact.name in written or status.observed_generation < live["metadata"]["generation"]:
            return Wait("PolicyChanged", f"{artifact.name} is looked at again: how it is built has changed")
        if ready.reason == "ParentNotReady":
            continue
        message = f"{artifact.spec.type} {artifact.name}: {ready.message}"
        return Wait(ready.reason, message, stalled=stalled, on_own_gpus=_on_gpus_of(revision, live))
    if all(is_ready(seen.artifacts[a.name]) for a in revision.artifacts):
        return None
    return Wait("CreatingArtifacts", f"{revision.engine.name} waits for what it is made from")


def _on_gpus_of(revision: Revision, artifact: Obj) -> bool:
    """Whether an artifact is made on the class of GPUs that the revision serves on."""
    own = revision.engine.spec.inputs.gpu
    made_for = artifact["spec"]["inputs"].get("gpu") or {}
    asked = made_for.get("product") or artifact["spec"].get("policy", {}).get("gpuProduct")
    return own is not None and asked == own.product


def _remove_rest(
    seen: EngineSnapshot, wanted: Wanted | Wait, outcomes: tuple[TargetOutcome, ...], writes: _Writes
) -> None:
    """Objects of targets that are none any more, and revisions beyond those that may still be needed."""
    names = {o.target.name for o in outcomes if not o.passed_by}
    for live in (*seen.deployments.values(), *seen.services.values(), *seen.revisions.values()):
        if label(live, TARGET) not in names and "deletionTimestamp" not in live["metadata"]:
            writes.delete.append(live)
    if isinstance(wanted, Wait):
        return
    for outcome in outcomes:
        if outcome.passed_by:
            continue
        needed = {outcome.served, outcome.revision.name if outcome.revision else None, *seen.deployments}
        spare = [r for n, r in seen.revisions.items() if label(r, TARGET) == outcome.target.name and n not in needed]
        spare.sort(key=lambda r: int(r["revision"]), reverse=True)
        writes.delete += spare[KEPT_REVISIONS:]
