"""What to do for one EngineArtifact: a pure function of what is seen.

An attempt is one Job, named after the artifact and the attempt's number, so that creating it twice is creating it
once. A failure that may pass opens the next attempt after a pause; any other failure, or too many, waits until a person
changes the policy or asks for a retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ..actions import NOTHING, Actions, earliest
from ..api.conditions import Condition, find, transition, truth
from ..api.engineartifact import AttemptRecord, Cleanup, EngineArtifactSpec, EngineArtifactStatus, Phase
from ..api.stored import read_status, read_stored, written_status
from ..objects import (
    ATTEMPT,
    NO_MATCHING_NODE,
    POLICY_HASH,
    SECRETS,
    Obj,
    Runner,
    annotation,
    condition_true,
    label,
    runner_config_map,
    timestamp,
)
from ..operator_config import OperatorConfig
from ..planning.gpu_classes import inventory, sought_class
from ..planning.gpu_nodes import read_node
from ..planning.keys import Mismatch
from . import attempt, damage
from .builders import KEPT, Builder, in_turn, without_builders
from .failures import retry_hint
from .history import SECRET_CHANGED, History, is_of_secret, number, recall, superseded
from .jobs import attempt_job, policy_hash
from .progress import progress
from .retry import after_failure
from .secrets import UNKNOWN, Secrets, has_changed, is_watched, missing_message, outdates

LOOK_AGAIN_SECONDS = 30
"""At an attempt that goes on: what its log and the cluster say of it does not come as an event of ours."""
_LOOK_AGAIN = Actions(again_seconds=LOOK_AGAIN_SECONDS)
NAME_MISMATCH = "NameMismatch"
UNPUBLISHED_GRACE_SECONDS = 5
"""How long a build goes on that nothing needs: long enough for a ControllerRevision that was deleted to be back."""
READY, RECONCILING, STALLED, REFERENCED = "Ready", "Reconciling", "Stalled", "Referenced"


@dataclass(frozen=True)
class Observations:
    """What was read beside the objects: one look at most every LOOK_AGAIN_SECONDS."""

    log: str = ""
    """Last lines of the container that runs."""
    job_events: str | None = None
    """Why the Job controller cannot create the Pod, in the API server's words."""
    volume_events: str | None = None
    """Why a volume of the Pod cannot be attached or mounted, in the cluster's words."""


@dataclass(frozen=True)
class Snapshot:
    """Everything that the plan of one artifact depends on."""

    artifact: Obj
    parent: Obj | None
    jobs: tuple[Obj, ...]
    """Attempts, any order."""
    pods: tuple[Obj, ...]
    """Pods of the attempts."""
    nodes: tuple[Obj, ...]
    referenced: bool
    """Whether a revision of a live LLMEngine, or an artifact that one needs, names this artifact."""
    config: OperatorConfig
    runner: Runner
    now: datetime
    observations: Observations = Observations()
    ending: tuple[Obj, ...] = ()
    """Pods of ours in the namespace that were told to end and are still there."""
    claim_gone: bool = False
    """The claim that is the store does not exist, or is being deleted."""
    builders: tuple[Builder, ...] | None = None
    """Those who need it now, by name; None: it is built as the object itself says."""
    secrets: Secrets = UNKNOWN
    """Those that the next attempt depends on, while none runs."""
    checks: tuple[Obj, ...] = ()
    """Jobs that check the store's copy."""
    reports: tuple[damage.Report, ...] = ()
    """What Pods say of damage to the store's copy."""
    model: Obj | None = None
    """The Model that an Engine comes from in the end."""
    trial: tuple[str, ...] = ()
    """Command with which the release tries a finished Engine; empty where it has none."""
    mismatch: Mismatch | None = None
    """Why the artifact is not what its name says."""


@dataclass(frozen=True)
class _Outcome:
    """What the rules below find: the phase, its reason and message, and what follows from it."""

    phase: Phase
    reason: str
    message: str
    stalled: bool = False
    actions: Actions = NOTHING
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the status that this outcome settles."""


def current_attempt(seen: Snapshot) -> Obj | None:
    """The Job of the attempt that goes on, if one does."""
    newest = max(seen.jobs, key=number, default=None)
    return newest if newest is not None and not _is_finished(newest) else None


def is_ready(artifact: Obj) -> bool:
    """Whether the artifact is published and proven."""
    return condition_true(artifact, READY) is not None


def plan(seen: Snapshot) -> Actions:
    """The next step of one artifact that is not being deleted."""
    before = read_status(EngineArtifactStatus, seen.artifact.get("status"))
    if seen.mismatch and seen.mismatch.later:
        return NOTHING
    if seen.mismatch:
        message = f"{seen.mismatch.why}. Nothing is built, served or removed for it. {seen.mismatch.advice}"
        status = _status(seen, before, _Outcome("Failed", NAME_MISMATCH, message, stalled=True))
        return Actions(status=written_status(status, seen.artifact.get("status")))
    spec = read_stored(EngineArtifactSpec, seen.artifact["spec"])
    outcome = _built_outcome(seen, spec, before)
    status = _status(seen, before, outcome)
    expired = _grace_left_seconds(seen, status)
    doomed = (seen.artifact,) if expired is not None and expired <= 0 else ()
    todo = outcome.actions
    return replace(
        todo,
        delete=(*todo.delete, *doomed),
        status=written_status(status, seen.artifact.get("status")),
        again_seconds=earliest(s for s in (todo.again_seconds, expired) if s is None or s > 0),
    )


def _built_outcome(seen: Snapshot, spec: EngineArtifactSpec, before: EngineArtifactStatus) -> _Outcome:
    """With the policy of the first of those who need it that can go on by itself; see `builders`."""
    if seen.builders is None:
        return _checked_outcome(seen, spec, before)
    if not seen.builders:
        return _checked_outcome(seen, without_builders(spec, before), before)
    if is_ready(seen.artifact):
        return _with_builder(seen, spec, before, seen.builders[0])
    damaged = before.damage.given_up_policy if before.damage else None
    held = [b for b in seen.builders if damaged == policy_hash(seen.artifact, b.policy)]
    job = current_attempt(seen)
    pods = [p for p in seen.pods if job and label(p, ATTEMPT) == label(job, ATTEMPT)]
    turns = in_turn(
        held or seen.builders,
        seen.artifact,
        spec,
        seen.nodes,
        attempted=annotation(job, POLICY_HASH) if job else before.attempt_policy,
        running=any(p["spec"].get("nodeName") for p in pods),
        given_up=before.given_up,
    )
    outcome = _with_builder(seen, spec, before, turns[0])
    key = turns[0].key(seen.artifact)
    if not outcome.stalled or outcome.phase not in ("Pending", "Failed") or key in before.given_up:
        return outcome
    given_up = {"given_up": (*before.given_up, key)[-KEPT:]}
    if len(turns) == 1:
        return replace(outcome, facts={**outcome.facts, **given_up})
    # Recorded first: what follows is decided from the record.
    message = f"{outcome.message} (as LLMEngine {turns[0].engine} has it built; tried next as {turns[1].engine} has)"
    return _Outcome("Pending", outcome.reason, message, facts={**outcome.facts, **given_up})


def _with_builder(seen: Snapshot, spec: EngineArtifactSpec, before: EngineArtifactStatus, builder: Builder) -> _Outcome:
    outcome = _checked_outcome(replace(seen, secrets=builder.secrets), builder.spec(spec), before)
    policy = builder.policy
    cleanup = Cleanup(
        node_selector=policy.node_selector, tolerations=policy.tolerations, store_secret_ref=policy.store_secret_ref
    )
    facts = {"cleanup": cleanup, **({} if outcome.phase == "Ready" else {"built_for": builder.engine})}
    return replace(outcome, facts={**facts, **outcome.facts})


def _checked_outcome(seen: Snapshot, spec: EngineArtifactSpec, before: EngineArtifactStatus) -> _Outcome:
    """What is said to be damaged is checked before anything else."""
    record, going_on = damage.look(
        damage.Seen(seen.artifact, seen.checks, seen.pods, seen.reports, seen.config, seen.now), spec, before
    )
    if going_on:
        return _Outcome(
            "Running",
            "CheckingFiles",
            going_on.message,
            stalled=going_on.stalled,
            actions=going_on.actions,
            facts={"damage": record},
        )
    now_gone = record is not None and record.whole is False and record != before.damage
    if now_gone:
        before = before.model_copy(update={**_GONE, "damage": record})
    outcome = _outcome(seen, spec, before)
    return replace(outcome, facts={**(_GONE if now_gone else {}), "damage": record, **outcome.facts})


_GONE: Mapping[str, Any] = {"conditions": (), "manifest_digest": None, "size_bytes": None, "completion_time": None}
"""Of a status, when the copy in the store has been taken away."""


def _outcome(seen: Snapshot, spec: EngineArtifactSpec, before: EngineArtifactStatus) -> _Outcome:
    ready = find(before.conditions, READY)
    if ready and ready.status == "True":
        return _Outcome("Ready", ready.reason, ready.message)
    if before.manifest_digest:
        checked = before.damage.checked_time if before.damage else None
        return _Outcome("Ready", "Published", f"{before.size_bytes} bytes, found whole in the store at {checked}")
    now = timestamp(seen.now)
    around = attempt.Surroundings(
        seen.nodes, seen.now, seen.observations.job_events, seen.observations.volume_events, ending=seen.ending
    )
    wanted_policy = policy_hash(seen.artifact, spec.policy)
    past = recall(before, seen.jobs, seen.pods, wanted_policy, around)
    removed = before.damage.attempt if before.damage else 0
    over = max(past.last.number if past.last else 0, removed)
    newest = max((j for j in seen.jobs if number(j) > over), key=number, default=None)
    if newest is None:
        return _between(seen, spec, before, past, wanted_policy)
    pods = [p for p in seen.pods if label(p, ATTEMPT) == label(newest, ATTEMPT)]
    state = attempt.read(newest, pods, around)
    if isinstance(state, attempt.Waiting) and (
        annotation(newest, POLICY_HASH) != wanted_policy or outdates(seen.secrets, newest, state.reason)
    ):
        past = superseded(past, newest, state, now, wanted_policy)
        return _between(seen, spec, before, past, wanted_policy)
    facts: dict[str, Any] = {
        **_remembered(past),
        "attempt": number(newest),
        "job_name": newest["metadata"]["name"],
        "attempt_policy": annotation(newest, POLICY_HASH),
        "attempt_secrets": annotation(newest, SECRETS),
        "start_time": newest.get("status", {}).get("startTime"),
    }
    pod = attempt.current_pod(pods)
    begun = pod is not None and attempt.has_just_begun(pod, seen.now)
    match state:
        case attempt.Waiting(reason, message, stuck):
            return _Outcome("Pending", reason, message, stalled=stuck, actions=_LOOK_AGAIN, facts=facts)
        case attempt.Running(step, node, note):
            return _Outcome(
                "Running",
                f"Running{step.capitalize()}",
                f"{step} runs on node {node}{note}",
                actions=Actions(again_seconds=attempt.FIRST_LOOK_SECONDS) if begun else _LOOK_AGAIN,
                facts={**facts, "node_name": node, "progress": progress(step, seen.observations.log)},
            )
        case attempt.Succeeded():
            return _succeeded(seen, spec, state, past, number(newest), facts)
        case attempt.Failed():
            raise AssertionError("a failed attempt is among those recalled")


def _remembered(past: History) -> dict[str, Any]:
    return {"attempts": past.records, "failure_counts": dict(past.counts)}


def _start(seen: Snapshot, spec: EngineArtifactSpec, past: History, number_: int) -> _Outcome:
    facts = _remembered(past)
    if seen.builders == ():
        return _Outcome("Pending", "Unneeded", "no LLMEngine needs it: it is not built", facts=facts)
    if spec.inputs.parent:
        if seen.parent is None:
            return _Outcome("Pending", "ParentMissing", f"{spec.inputs.parent} does not exist (yet)", facts=facts)
        if not is_ready(seen.parent):
            return _Outcome("Pending", "ParentNotReady", f"waits for {spec.inputs.parent}", facts=facts)
    secrets, namespace = seen.secrets, seen.artifact["metadata"]["namespace"]
    if secrets.missing:
        why = missing_message(secrets.missing, namespace)
        return _Outcome("Pending", "SecretMissing", why, stalled=True, actions=_LOOK_AGAIN, facts=facts)
    if missing := missing_gpu(spec, seen.nodes):
        return _Outcome("Pending", NO_MATCHING_NODE, missing, facts=facts)
    job = attempt_job(
        seen.artifact,
        spec,
        number_,
        config=seen.config,
        runner=seen.runner.config_map,
        past=past,
        parent=seen.parent,
        model=seen.model,
        trial=seen.trial,
        secrets=secrets,
    )
    create: tuple[Obj, ...] = (job,)
    if spec.type != "Model":
        create = (runner_config_map(seen.runner, namespace), job)
    return _Outcome(
        "Pending",
        "JobCreated",
        f"attempt {number_} begins",
        actions=Actions(create=create),
        facts={**facts, "attempt": number_, "job_name": job["metadata"]["name"]},
    )


def _between(
    seen: Snapshot, spec: EngineArtifactSpec, before: EngineArtifactStatus, past: History, wanted_policy: str
) -> _Outcome:
    """No attempt goes on: the next begins, now or after a pause, or a person has to act."""
    gone = before.damage
    if gone and gone.given_up_policy == wanted_policy:
        message = f"{gone.message} It was damaged twice within a day and has been taken away: see to the store"
        message += retry_hint("eart", seen.artifact["metadata"]["name"])
        return _Outcome("Failed", damage.DAMAGED, message, stalled=True, facts=_remembered(past))
    if gone and gone.removed_time and (past.last is None or past.last.number <= gone.attempt):
        return _start(seen, spec, past, gone.attempt + 1)
    if past.last is None:
        return _start(seen, spec, past, before.attempt or 1)
    following = max(past.last.number + 1, before.attempt or 0)
    lingering = tuple(j for j in seen.jobs if number(j) <= past.last.number and not _is_finished(j))
    if lingering:
        # Recorded first, deleted then: what follows is decided from the record once the Job is gone.
        message = f"{past.last.message} (attempt {past.last.number}; its Job is being removed)"
        facts = {
            **_remembered(past),
            "attempt": past.last.number,
            "attempt_policy": past.last_policy,
            "attempt_secrets": past.last_secrets,
        }
        doomed = tuple(j for j in lingering if "deletionTimestamp" not in j["metadata"])
        return _Outcome("Pending", past.last.reason, message, actions=Actions(delete=doomed), facts=facts)
    if past.last_policy != wanted_policy or past.last.reason == SECRET_CHANGED:
        return _start(seen, spec, past, following)
    if is_of_secret(past.last) and has_changed(past.last_secrets, seen.secrets.named):
        return _start(seen, spec, replace(past, counts={}), following)
    return _after_failure(seen, spec, past, past.last, following)


def _is_finished(job: Obj) -> bool:
    return condition_true(job, "Complete") is not None or condition_true(job, "Failed") is not None


def _after_failure(
    seen: Snapshot, spec: EngineArtifactSpec, past: History, last: AttemptRecord, following: int
) -> _Outcome:
    facts = {
        **_remembered(past),
        "attempt": last.number,
        "attempt_policy": past.last_policy,
        "attempt_secrets": past.last_secrets,
        "node_name": last.node_name,
        "start_time": last.start_time,
    }
    watched = is_watched(last.reason, seen.secrets)
    verdict = after_failure(spec, seen.artifact["metadata"]["name"], past, last, seen.now, watched=watched)
    if verdict.wait_seconds is None:
        again = _LOOK_AGAIN if watched else Actions()
        return _Outcome("Failed", verdict.reason, verdict.message, stalled=True, actions=again, facts=facts)
    if verdict.wait_seconds <= 0:
        return _start(seen, spec, past, following)
    pause = Actions(again_seconds=verdict.wait_seconds)
    return _Outcome("Pending", verdict.reason, verdict.message, actions=pause, facts=facts)


def missing_gpu(spec: EngineArtifactSpec, nodes: tuple[Obj, ...]) -> str | None:
    """What was looked for and what there is, when no node has the GPU that the build needs."""
    gpu = spec.inputs.gpu
    if gpu is None or spec.policy.scale_from_zero:
        return None
    read = [read_node(node) for node in nodes]
    if any(offer.gpu == gpu for node in read for offer in node.offers):
        return None
    return f"no node has {sought_class(gpu)}; {inventory(read)}"


def _succeeded(
    seen: Snapshot,
    spec: EngineArtifactSpec,
    state: attempt.Succeeded,
    past: History,
    number_: int,
    facts: dict[str, Any],
) -> _Outcome:
    result = state.result
    if "manifestDigest" not in result:
        # The Pod was gone before its report was read. Another attempt finds the artifact published and says so.
        return _start(seen, spec, past, number_ + 1)
    build = result.get("build") or {}
    size = int(result["sizeBytes"])
    where = f" on node {state.node}" if state.node else ""
    return _Outcome(
        "Ready",
        "Published",
        f"{result['files']} files, {size} bytes, published{where} by attempt {number_}",
        facts={
            **facts,
            "node_name": state.node,
            "gpu": build.get("gpu"),
            "completion_time": state.completion_time,
            "duration_seconds": state.seconds,
            "size_bytes": size,
            "manifest_digest": result["manifestDigest"],
            "peak_host_memory_bytes": build.get("peakHostMemoryBytes"),
        },
    )


def _status(seen: Snapshot, before: EngineArtifactStatus, outcome: _Outcome) -> EngineArtifactStatus:
    generation = seen.artifact["metadata"]["generation"]
    now = timestamp(seen.now)

    def condition(type_: str, value: bool, reason: str, message: str) -> Condition:
        return transition(before.conditions, type_, truth(value), reason, message, generation=generation, now=now)

    done = outcome.phase == "Ready"
    conditions = (
        condition(READY, done, outcome.reason, outcome.message),
        *([condition(RECONCILING, True, outcome.reason, outcome.message)] if not done and not outcome.stalled else ()),
        *([condition(STALLED, True, outcome.reason, outcome.message)] if outcome.stalled else ()),
        condition(
            REFERENCED,
            seen.referenced,
            "Needed" if seen.referenced else "Unneeded",
            ""
            if seen.referenced
            else f"nothing needs it; removed, files and all, {_grace_seconds(seen, before)} s after this changed",
        ),
    )
    kept = before.model_dump(exclude={"conditions", "observed_generation", "phase", "reason", "progress"})
    return EngineArtifactStatus.model_validate(
        {
            **kept,
            **outcome.facts,
            "observed_generation": generation,
            "phase": outcome.phase,
            "reason": outcome.reason,
            "conditions": conditions,
        }
    )


def _grace_left_seconds(seen: Snapshot, status: EngineArtifactStatus) -> float | None:
    """Until an artifact that nothing needs goes; None while something needs it."""
    referenced = find(status.conditions, REFERENCED)
    if referenced is None or referenced.status == "True":
        return None
    since = datetime.fromisoformat(referenced.last_transition_time)
    return (since + timedelta(seconds=_grace_seconds(seen, status)) - seen.now).total_seconds()


def _grace_seconds(seen: Snapshot, status: EngineArtifactStatus) -> int:
    """What is published is kept for the way back. What is not is a build that works for nobody."""
    grace = seen.config.artifact_grace_seconds
    return grace if status.manifest_digest else min(grace, UNPUBLISHED_GRACE_SECONDS)
