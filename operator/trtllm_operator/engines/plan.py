"""What to do for one LLMEngine: a pure function of what is seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..actions import Actions, combined
from ..api import API_VERSION
from ..api.engineartifact import KIND as ARTIFACT_KIND
from ..api.llmengine import LLMEngineStatus, ResolvedModel
from ..api.stored import read_status, written_status
from ..artifacts.collection import FINALIZER
from ..artifacts.plan import is_ready
from ..objects import MANAGED, PARENT, TARGET, Artifact, Obj, label
from ..serving.revision import Revision, controller_revision
from .calibration import known_texts
from .front import plan_front
from .gpu_targets import concrete_targets
from .orphans import taken_back
from .renamed import gives_way, keep, leftovers, note, predecessors
from .snapshot import EngineSnapshot
from .status import TargetOutcome, Verdict, engine_status
from .target import Intent, plan_target
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
    last_served = {t.name: t.served_revision for t in before.targets}
    replaced = predecessors(seen, expansion.targets, last_served)
    planned = [
        plan_target(
            seen,
            Intent(
                spec,
                one,
                wanted if isinstance(wanted, Wait) else wanted.targets[one.name],
                last_served.get(one.name),
                replaced[one.name].revision.name if one.name in replaced else None,
            ),
        )
        for one in expansion.targets
    ]
    serving_on = [
        (outcome, replaced[outcome.target.name])
        for outcome, _ in planned
        if outcome.target.name in replaced
        and outcome.served is None
        and not gives_way(outcome, recreates=spec.rollout.strategy == "Recreate")
    ]
    notes = {outcome.target.name: note(old, seen.service_name(old.target)) for outcome, old in serving_on}
    outcomes = tuple(replace(outcome, note=notes.get(outcome.target.name, "")) for outcome, _ in planned)
    named = {outcome.target.name for outcome in outcomes if not outcome.skipped}
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
            *(keep(seen, old, outcome.target.replicas) for outcome, old in serving_on),
            Actions(delete=leftovers(seen, named, [old for _, old in serving_on])),
            Actions(delete=_spare(seen, outcomes)),
        ),
        status=written_status(status, seen.engine.get("status")),
    )


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


def _spare(seen: EngineSnapshot, outcomes: Iterable[TargetOutcome]) -> tuple[Obj, ...]:
    """Revisions that nothing needs: whose engine was never finished, as it would be built for nobody, and of the others
    those beyond the ones that are kept for the way back."""
    doomed: list[Obj] = []
    for outcome in outcomes:
        if outcome.skipped or outcome.revision is None:
            continue
        needed = {outcome.served, outcome.revision.name, *seen.deployments}
        others = [r for n, r in seen.revisions.items() if label(r, TARGET) == outcome.target.name and n not in needed]
        others.sort(key=lambda r: int(r["revision"]), reverse=True)
        finished = [r for r in others if _is_finished(seen, r)]
        doomed += [r for r in others if r not in finished[:KEPT_REVISIONS]]
    return tuple(r for r in doomed if "deletionTimestamp" not in r["metadata"])


def _is_finished(seen: EngineSnapshot, revision: Obj) -> bool:
    engine = seen.artifacts.get(revision["data"]["artifacts"][-1]["name"])
    return engine is not None and is_ready(engine)
