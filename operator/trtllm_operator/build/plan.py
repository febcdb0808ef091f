"""What to do for one EngineArtifact: a pure function of what is seen.

An attempt is one Job, named after the artefact and the attempt's number, so that creating it twice is creating it
once. A failure that may pass opens the next attempt after a pause; any other failure, or too many, waits until a person
changes the policy or asks for a retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..api.conditions import Condition, find, transition, truth
from ..api.engineartifact import EngineArtifactSpec, EngineArtifactStatus, Phase
from ..config import OperatorConfig
from ..objects import (
    ATTEMPT,
    POLICY_HASH,
    PRODUCT_LABEL,
    Obj,
    Runner,
    annotation,
    condition_true,
    label,
    runner_config_map,
)
from . import attempt
from .jobs import attempt_job, policy_hash

RETRY_PAUSE_SECONDS = (10, 30, 120, 300)
"""Between a failure that may pass and the next attempt; the last one repeats."""
READY, RECONCILING, STALLED, REFERENCED = "Ready", "Reconciling", "Stalled", "Referenced"


@dataclass(frozen=True)
class Snapshot:
    """Everything that the plan of one artefact depends on."""

    artifact: Obj
    parent: Obj | None
    jobs: tuple[Obj, ...]
    """Attempts, any order."""
    pods: tuple[Obj, ...]
    """Pods of the attempts."""
    nodes: tuple[Obj, ...]
    referenced: bool
    """Whether a revision of a live LLMEngine, or an artefact that one needs, names this artefact."""
    config: OperatorConfig
    runner: Runner
    now: datetime


@dataclass(frozen=True)
class Plan:
    create: tuple[Obj, ...] = ()
    """Created once: that it exists already is success."""
    delete: tuple[Obj, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    again_seconds: float | None = None


@dataclass(frozen=True)
class _Outcome:
    """What the rules below find: the phase, its reason and message, and what follows from it."""

    phase: Phase
    reason: str
    message: str
    stalled: bool = False
    create: tuple[Obj, ...] = ()
    again_seconds: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the status that this outcome settles."""


def is_ready(artifact: Obj) -> bool:
    """Whether the artefact is published and proven."""
    return condition_true(artifact, READY) is not None


def plan(seen: Snapshot) -> Plan:
    """The next step of one artefact that is not being deleted."""
    spec = EngineArtifactSpec.model_validate(seen.artifact["spec"])
    before = EngineArtifactStatus.model_validate(seen.artifact.get("status") or {})
    outcome = _outcome(seen, spec, before)
    status = _status(seen, before, outcome)
    expired = _grace_left_seconds(seen, status)
    again = [s for s in (outcome.again_seconds, expired) if s is not None and s > 0]
    return Plan(
        create=outcome.create,
        delete=(seen.artifact,) if expired is not None and expired <= 0 else (),
        status=status.dump(),
        again_seconds=min(again, default=None),
    )


def _outcome(seen: Snapshot, spec: EngineArtifactSpec, before: EngineArtifactStatus) -> _Outcome:
    ready = find(before.conditions, READY)
    if ready and ready.status == "True":
        return _Outcome("Ready", ready.reason, ready.message)
    newest = max(seen.jobs, key=_number, default=None)
    wanted_policy = policy_hash(seen.artifact, spec.policy)
    if newest is None:
        if before.phase == "Failed" and before.attempt_policy == wanted_policy:
            failed = find(before.conditions, READY)
            return _Outcome("Failed", before.reason or "Failed", failed.message if failed else "", stalled=True)
        return _start(seen, spec, before.attempt or 1)
    state = attempt.read(newest, [p for p in seen.pods if label(p, ATTEMPT) == label(newest, ATTEMPT)])
    number = _number(newest)
    facts: dict[str, Any] = {
        "attempt": number,
        "job_name": newest["metadata"]["name"],
        "attempt_policy": annotation(newest, POLICY_HASH),
        "start_time": newest.get("status", {}).get("startTime"),
    }
    match state:
        case attempt.Waiting(reason, message, stuck):
            return _Outcome("Pending", reason, message, stalled=stuck, facts=facts)
        case attempt.Running(step, node):
            return _Outcome(
                "Running",
                f"Running{step.capitalize()}",
                f"{step} runs on node {node}",
                facts={**facts, "node_name": node},
            )
        case attempt.Succeeded():
            return _succeeded(seen, spec, state, number, facts)
        case attempt.Failed():
            return _failed(seen, spec, state, number, wanted_policy, facts)


def _start(seen: Snapshot, spec: EngineArtifactSpec, number: int) -> _Outcome:
    if spec.inputs.parent:
        if seen.parent is None:
            return _Outcome("Pending", "ParentMissing", f"{spec.inputs.parent} does not exist (yet)")
        if not is_ready(seen.parent):
            return _Outcome("Pending", "ParentNotReady", f"waits for {spec.inputs.parent}")
    if missing := missing_gpu(spec, seen.nodes):
        return _Outcome("Pending", "NoMatchingNode", missing)
    job = attempt_job(seen.artifact, spec, number, config=seen.config, runner=seen.runner.config_map)
    create: tuple[Obj, ...] = (job,)
    if spec.type != "Model":
        create = (runner_config_map(seen.runner, seen.artifact["metadata"]["namespace"]), job)
    return _Outcome(
        "Pending",
        "JobCreated",
        f"attempt {number} begins",
        create=create,
        facts={"attempt": number, "job_name": job["metadata"]["name"]},
    )


def missing_gpu(spec: EngineArtifactSpec, nodes: tuple[Obj, ...]) -> str | None:
    """What was looked for and what there is, when no node has the GPU that the build needs."""
    gpu = spec.inputs.gpu
    if gpu is None or any(label(n, PRODUCT_LABEL) == gpu.product for n in nodes):
        return None
    return f"no node has {PRODUCT_LABEL}={gpu.product}; {gpus_of(nodes)}"


def gpus_of(nodes: tuple[Obj, ...]) -> str:
    """The GPUs of the nodes in words, for a message."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if product := label(node, PRODUCT_LABEL):
            found.setdefault(product, []).append(node["metadata"]["name"])
    if not found:
        return f"no node carries the label {PRODUCT_LABEL}"
    listed = (
        f"{product} ({', '.join(sorted(names)[:5])}{', ...' if len(names) > 5 else ''})"
        for product, names in sorted(found.items())
    )
    return f"the nodes have {', '.join(listed)}"


def _succeeded(
    seen: Snapshot, spec: EngineArtifactSpec, state: attempt.Succeeded, number: int, facts: dict[str, Any]
) -> _Outcome:
    result = state.result
    if "manifestDigest" not in result:
        # The Pod was gone before its report was read. Another attempt finds the artefact published and says so.
        return _start(seen, spec, number + 1)
    build = result.get("build") or {}
    size = int(result["sizeBytes"])
    where = f" on node {state.node}" if state.node else ""
    return _Outcome(
        "Ready",
        "Published",
        f"{result['files']} files, {size} bytes, published{where} by attempt {number}",
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


def _failed(
    seen: Snapshot,
    spec: EngineArtifactSpec,
    state: attempt.Failed,
    number: int,
    wanted_policy: str,
    facts: dict[str, Any],
) -> _Outcome:
    newest_policy = facts["attempt_policy"]
    if newest_policy != wanted_policy:
        return _start(seen, spec, number + 1)
    failure = state.failure
    facts = {**facts, "node_name": state.node}
    attempts = sum(annotation(j, POLICY_HASH) == wanted_policy for j in seen.jobs)
    if not failure.retryable:
        return _Outcome("Failed", failure.reason, failure.message, stalled=True, facts=facts)
    if attempts >= spec.policy.max_attempts:
        message = f"{failure.message} (attempt {number}, the last of {spec.policy.max_attempts} allowed)"
        return _Outcome("Failed", failure.reason, message, stalled=True, facts=facts)
    pause = RETRY_PAUSE_SECONDS[min(attempts, len(RETRY_PAUSE_SECONDS)) - 1]
    left = (datetime.fromisoformat(state.time) + timedelta(seconds=pause) - seen.now).total_seconds()
    if left <= 0:
        return _start(seen, spec, number + 1)
    counted = f"attempt {number} of {spec.policy.max_attempts}; the next begins {pause} s after this one failed"
    message = f"{failure.message} ({counted})"
    return _Outcome("Pending", failure.reason, message, again_seconds=left, facts=facts)


def _number(job: Obj) -> int:
    return int(label(job, ATTEMPT) or 0)


def _status(seen: Snapshot, before: EngineArtifactStatus, outcome: _Outcome) -> EngineArtifactStatus:
    generation = seen.artifact["metadata"]["generation"]
    now = seen.now.strftime("%Y-%m-%dT%H:%M:%SZ")

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
            else f"nothing needs it; removed, files and all, {seen.config.artifact_grace_seconds} s after this changed",
        ),
    )
    kept = before.model_dump(exclude={"conditions", "observed_generation", "phase", "reason"})
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
    """Until an artefact that nothing needs goes; None while something needs it."""
    referenced = find(status.conditions, REFERENCED)
    if referenced is None or referenced.status == "True":
        return None
    since = datetime.fromisoformat(referenced.last_transition_time)
    return (since + timedelta(seconds=seen.config.artifact_grace_seconds) - seen.now).total_seconds()
