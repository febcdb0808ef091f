"""What to do for one LLMEngine: a pure function of what is seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..actions import Actions, combined
from ..api import API_VERSION
from ..api.engineartifact import KIND as ARTIFACT_KIND
from ..api.engineartifact import EngineArtifactStatus
from ..api.llmengine import LLMEngineSpec, LLMEngineStatus, ResolvedModel, Target
from ..api.stored import read_status, written_status
from ..artifacts.builders import considered
from ..artifacts.chain import policy
from ..artifacts.collection import FINALIZER
from ..artifacts.jobs import policy_hash
from ..artifacts.plan import LOOK_AGAIN_SECONDS, NAME_MISMATCH, is_ready
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
)
from ..planning.expansion import ConcreteTarget
from ..pods import is_over, waits_for_volumes
from ..serving import rollout
from ..serving.digests import pinned
from ..serving.health import Problem
from ..serving.revision import Revision, controller_revision, read_revision
from ..serving.triton import deployment
from .calibration import known_texts
from .front import plan_front
from .gpu_targets import concrete_targets
from .orphans import taken_back
from .server_problem import WAITING_FOR_GPU, gpu_holders, server_problem, share_gpus
from .services import service_of
from .snapshot import EngineSnapshot
from .status import TargetOutcome, Verdict, engine_status
from .wanted import Wait, Wanted, decide, resolve_model

KEPT_REVISIONS = 1
"""Revisions of a target that neither serve nor are wanted, kept with their artifacts for the way back."""


def plan(seen: EngineSnapshot) -> Actions:
    """The next step of an LLMEngine that is not being deleted."""
    before = read_status(LLMEngineStatus, seen.engine.get("status"))
    spec = seen.spec
    if isinstance(spec, str):
        verdict = Verdict(None, Wait("SpecInvalid", spec, stalled=True, refused=True))
        return Actions(status=engine_status(seen, before, None, verdict, ()).dump())
    wanted: Wanted | Wait
    model = resolve_model(seen, spec, before)
    expansion = concrete_targets(seen, spec)
    texts = known_texts(seen, spec, before.calibration or ())
    wanted = model if isinstance(model, Wait) else decide(seen, spec, model, texts, expansion.targets)
    revisions = () if isinstance(wanted, Wait) else wanted.revisions
    # What a revision needs is stored with it before its artifacts come to be: what is built is always needed.
    stored = Actions(create=_new_revisions(seen, revisions))
    made = _artifacts(seen, revisions)
    planned = [_target(seen, spec, one, wanted) for one in expansion.targets]
    outcomes = tuple(outcome for outcome, _ in planned)
    resolved = model if isinstance(model, ResolvedModel) else None
    verdict = Verdict(resolved, wanted if isinstance(wanted, Wait) else None, expansion.skipped)
    front = plan_front(seen, spec, outcomes)
    status = engine_status(seen, before, spec, verdict, outcomes, front.state).model_copy(
        update={
            "calibration": tuple(texts.values()) or None,
        }
    )
    return combined(
        (
            taken_back(seen),
            *([wanted.actions] if isinstance(wanted, Wait) else ()),
            stored,
            Actions(apply=made),
            *(actions for _, actions in planned),
            front.actions,
            Actions(delete=_unneeded(seen, outcomes, known=not isinstance(wanted, Wait))),
        ),
        status=written_status(status, seen.engine.get("status")),
    )


def _target(
    seen: EngineSnapshot,
    spec: LLMEngineSpec,
    concrete: ConcreteTarget,
    wanted: Wanted | Wait,
) -> tuple[TargetOutcome, Actions]:
    """What becomes of one target."""
    target = concrete.target
    name = service_of(seen, target.name)
    observed = rollout.Observed(
        service_name=name,
        service=seen.services.get(name),
        deployments={n: d for n, d in seen.deployments.items() if label(d, TARGET) == target.name},
    )
    entry = wanted if isinstance(wanted, Wait) else wanted.targets[target.name]
    revision = _pinned(seen, entry) if isinstance(entry, Revision) else None
    missing = entry if isinstance(entry, Wait) else _first_missing(seen, spec, entry)
    step = rollout.step(
        seen.engine,
        target.name,
        None if missing else revision,
        target.replicas,
        observed,
        seen.now,
        in_place=spec.rollout.strategy == "Recreate",
    )
    problem = server_problem(seen, revision, spec.rollout, observed.selected) if revision and not missing else None
    superseded = rollout.superseded(revision.name, observed, seen.now) if revision else ()
    room = _room(seen, spec, target, revision, missing, problem, observed)
    waits = any(waits_for_volumes(p) for p in seen.pods if label(p, TARGET) == target.name)
    if revision and missing and missing.on_own_gpus:
        holders = gpu_holders(seen, revision, spec.rollout, observed.selected, missing.reason)
        missing = replace(missing, message=missing.message + holders)
    served = observed.deployments.get(step.served or "")
    outcome = TargetOutcome(
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
        server_problem=problem,
    )
    mounted = _runner(seen, revision) if revision and not missing else ()
    then = Actions(create=mounted, delete=superseded, again_seconds=LOOK_AGAIN_SECONDS if waits else None)
    return outcome, combined((step.actions, then, room))


def _runner(seen: EngineSnapshot, revision: Revision) -> tuple[Obj, ...]:
    """The runner that the revision's servers mount, where it is this operator's and not there yet."""
    if revision.runner_config_map != seen.runner.config_map or revision.runner_config_map in seen.config_maps:
        return ()
    return (runner_config_map(seen.runner, seen.engine["metadata"]["namespace"]),)


def _room(
    seen: EngineSnapshot,
    spec: LLMEngineSpec,
    target: Target,
    revision: Revision | None,
    missing: Wait | None,
    problem: Problem | None,
    observed: rollout.Observed,
) -> Actions:
    """What the old servers give up for the new revision of a target, or get back: also where there is none to be."""
    stored, live = seen.revisions.get(observed.selected or ""), observed.deployments.get(observed.selected or "")
    if stored is None or live is None or (revision and observed.selected == revision.name):
        return Actions()
    old = _pinned(seen, read_revision(stored))
    recreates = spec.rollout.strategy == "Recreate"
    too_many = revision is not None and live["spec"].get("replicas", 1) > target.replicas
    if too_many or (annotation(live, rollout.ROOM) and (not recreates or (missing and missing.stalled))):
        return Actions(apply=(deployment(seen.engine, old, target.replicas),))
    builds = missing is not None and missing.on_own_gpus and missing.reason == WAITING_FOR_GPU
    starts = problem is not None and problem.reason == WAITING_FOR_GPU
    if revision is None or not recreates or not (builds or starts) or not share_gpus(old, revision):
        return Actions()
    pods = [p for p in seen.pods if label(p, TARGET) == target.name and not is_over(p)]
    # The last of the old servers goes for the first of the new ones, not for those after it.
    begun = any(label(p, REVISION) == revision.name and "nodeName" in p["spec"] for p in pods)
    return rollout.make_room(seen.engine, old, live, pods, seen.now, keep=1 if starts and begun else 0)


def _pinned(seen: EngineSnapshot, revision: Revision) -> Revision:
    return pinned(revision, seen.deployments.get(revision.name), seen.artifacts)


def _engine_of(seen: EngineSnapshot, revision: str | None) -> str | None:
    stored = seen.revisions.get(revision or "")
    return str(stored["data"]["artifacts"][-1]["name"]) if stored else None


def _new_revisions(seen: EngineSnapshot, revisions: Iterable[Revision]) -> tuple[Obj, ...]:
    made: list[Obj] = []
    for revision in revisions:
        if revision.name not in seen.revisions:
            numbers = [r["revision"] for r in seen.revisions.values() if label(r, TARGET) == revision.target]
            made.append(controller_revision(seen.engine, revision, max(numbers, default=0) + 1))
    return tuple(made)


def _artifacts(seen: EngineSnapshot, revisions: Iterable[Revision]) -> tuple[Obj, ...]:
    """Artifacts that do not exist.

    Applied, not posted: the finalizer has to belong to the manager that takes it away."""
    absent = {
        artifact.name: _artifact_object(seen, artifact)
        for revision in revisions
        for artifact in revision.artifacts
        if artifact.name not in seen.artifacts and artifact.name not in seen.mismatched
    }
    return tuple(absent.values())


def _artifact_object(seen: EngineSnapshot, artifact: Artifact) -> dict[str, Any]:
    """Without a policy: it is shared, and built as those who need it say at the time."""
    parent = artifact.spec.inputs.parent
    return {
        "apiVersion": API_VERSION,
        "kind": ARTIFACT_KIND,
        "metadata": {
            "name": artifact.name,
            "namespace": seen.engine["metadata"]["namespace"],
            "labels": {MANAGED: "true", **({PARENT: parent} if parent else {})},
            "finalizers": [FINALIZER],
        },
        "spec": {field: value for field, value in artifact.spec.dump().items() if field != "policy"},
    }


def _first_missing(seen: EngineSnapshot, spec: LLMEngineSpec, revision: Revision) -> Wait | None:
    """The first artifact of the chain that is not ready, as what the target waits for.

    Of an artifact whose plan has not seen the policy of this LLMEngine as it is now, the status speaks of what is past:
    a spec that was just put right must not look stalled.
    """
    for artifact in revision.artifacts:
        live = seen.artifacts.get(artifact.name)
        if wrong := seen.mismatched.get(artifact.name):
            told = f"EngineArtifact {artifact.name} is in the way: {wrong.why}. {wrong.advice}"
            return Wait(NAME_MISMATCH, told, stalled=True)
        if live is None:
            return Wait("CreatingArtifacts", f"{artifact.name} is about to be made")
        if "deletionTimestamp" in live["metadata"]:
            return Wait("ArtifactBeingRemoved", f"{artifact.name} is being removed; it is made again after that")
        if is_ready(live):
            continue
        status = read_status(EngineArtifactStatus, live.get("status"))
        ready = next((c for c in status.conditions if c.type == "Ready"), None)
        stalled = any(c.type == "Stalled" and c.status == "True" for c in status.conditions)
        if ready is None:
            return Wait("CreatingArtifacts", f"{artifact.name} has just been made")
        if stalled and _policy_hash(spec, artifact, revision, live) not in considered(
            status.given_up, status.attempt_policy
        ):
            return Wait("PolicyChanged", f"{artifact.name} is looked at again: how it is built has changed")
        if ready.reason == "ParentNotReady":
            continue
        message = f"{artifact.spec.type} {artifact.name}: {ready.message}"
        return Wait(ready.reason, message, stalled=stalled, on_own_gpus=_on_gpus_of(revision, artifact))
    if all(is_ready(seen.artifacts[a.name]) for a in revision.artifacts):
        return None
    return Wait("CreatingArtifacts", f"{revision.engine.name} waits for what it is made from")


def _policy_hash(spec: LLMEngineSpec, artifact: Artifact, revision: Revision, live: Obj) -> str:
    """Of how this LLMEngine would have an artifact built."""
    gpu = revision.engine.spec.inputs.gpu
    assert gpu is not None  # the schema demands it
    return policy_hash(live, policy(spec, artifact.spec, revision.plan, gpu))


def _on_gpus_of(revision: Revision, artifact: Artifact) -> bool:
    """Whether an artifact is made on the class of GPUs that the revision serves on."""
    own, made_for = revision.engine.spec.inputs.gpu, artifact.spec.inputs.gpu
    if made_for is None:
        return artifact.spec.policy.gpus > 0  # it is calibrated, on GPUs like those
    return own is not None and made_for.product == own.product


def _unneeded(seen: EngineSnapshot, outcomes: tuple[TargetOutcome, ...], *, known: bool) -> tuple[Obj, ...]:
    """Objects of targets that are none any more and, once it is `known` what the targets want, revisions beyond those
    that may still be needed."""
    names = {o.target.name for o in outcomes if not o.skipped}
    doomed = [
        live
        for live in (*seen.deployments.values(), *seen.services.values(), *seen.revisions.values())
        if label(live, TARGET) not in names and "deletionTimestamp" not in live["metadata"]
    ]
    for outcome in outcomes if known else ():
        if outcome.skipped:
            continue
        needed = {outcome.served, outcome.revision.name if outcome.revision else None, *seen.deployments}
        spare = [r for n, r in seen.revisions.items() if label(r, TARGET) == outcome.target.name and n not in needed]
        spare.sort(key=lambda r: int(r["revision"]), reverse=True)
        doomed += spare[KEPT_REVISIONS:]
    return tuple(doomed)
