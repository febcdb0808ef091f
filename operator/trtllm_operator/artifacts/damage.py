"""What follows when a Pod finds an artifact damaged or missing in the store.

A CPU Job reads every file and takes the artifact away unless it is whole; then it is built again. Nothing of that goes
round in circles: a copy that was found whole is not read again for an hour, and what is damaged a second time within a
day waits for a person, as then the store itself is at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..actions import NOTHING, Actions
from ..api.engineartifact import Damage, EngineArtifactSpec, EngineArtifactStatus
from ..objects import ARTIFACT, CHECK, MANAGED, SCRATCH, Obj, label
from ..operator_config import OperatorConfig
from ..pods import container_statuses, termination_report
from ..storage import access, step_mounts, volumes
from . import attempt
from .failures import Failure
from .jobs import base_pod, manifest_digests, owned_job, policy_hash, step_container

WHOLE_SECONDS = 3600
"""How long a copy that was found whole is not read again, whatever is said of it."""
TWICE_SECONDS = 86_400
"""Two damages of one artifact within this time are not put down to chance."""
FAILED_CHECK_SECONDS = 60
"""Between a check that failed and the next."""
LOOK_AGAIN_SECONDS = 30
DAMAGED = "ArtifactCorrupted"
UNFIT = frozenset({"EngineMismatch", "VersionMismatch"})
"""Of an engine whose files are as published and which is not what its record says: what a server could not load, though
GPU and release are those of the record. Checksums prove nothing of it, so it is taken away without being read."""
MAX_MESSAGE = 2048


@dataclass(frozen=True)
class Report:
    """A Pod's word that an artifact is damaged."""

    time: str
    message: str
    pod: str
    own: bool
    """The Pod is one of the artifact's attempts, not of a server or of what is made from it."""
    unfit: bool = False
    """It is not what its record says."""
    born: str = ""
    """When the Pod was made: a Pod that is older than the copy in the store may speak of the copy before."""


@dataclass(frozen=True)
class Checking:
    """A check goes on, or has yet to begin."""

    message: str
    stalled: bool = False
    actions: Actions = NOTHING


@dataclass(frozen=True)
class Seen:
    """What of an artifact's snapshot matters here."""

    artifact: Obj
    checks: tuple[Obj, ...]
    """Jobs that check it."""
    pods: tuple[Obj, ...]
    """Of those Jobs."""
    reports: tuple[Report, ...]
    config: OperatorConfig
    now: datetime


def damaged_artifacts(pod: Obj) -> Iterator[tuple[str, Report]]:
    """The artifacts that a Pod's containers have found damaged, now or before their last restart."""
    for status in container_statuses(pod):
        for state in (status.get("state"), status.get("lastState")):
            ended = (state or {}).get("terminated") or {}
            failure = (termination_report(ended) or {}).get("failure")
            reason = failure.get("reason") if isinstance(failure, dict) else None
            if isinstance(failure, dict) and reason in (DAMAGED, *UNFIT) and failure.get("artifact"):
                artifact, own = str(failure["artifact"]), label(pod, ARTIFACT) == failure["artifact"]
                time, message = str(ended.get("finishedAt") or ""), str(failure.get("message"))
                born = str(pod["metadata"].get("creationTimestamp") or "")
                yield artifact, Report(time, message, str(pod["metadata"]["name"]), own, reason in UNFIT, born)


def reports_of(artifact: str, pods: Iterable[Obj]) -> tuple[Report, ...]:
    return tuple(report for pod in pods for name, report in damaged_artifacts(pod) if name == artifact and report.time)


def look(seen: Seen, spec: EngineArtifactSpec, before: EngineArtifactStatus) -> tuple[Damage | None, Checking | None]:
    """The record as it is now, and what goes on. With a record of a copy that was taken away and nothing that goes on,
    the artifact is to be built again."""
    record = before.damage
    if record is None or record.checked_time is not None:
        report = _news(seen, before, record)
        if report is None:
            return record, None
        record = Damage(
            check=record.check + 1 if record else 1,
            message=f"Pod {report.pod}: {report.message}"[:MAX_MESSAGE],
            removed_time=record.removed_time if record else None,
            attempt=record.attempt if record else 0,
            unfit=report.unfit or None,
        )
    return _check(seen, spec, before, record)


def _news(seen: Seen, before: EngineArtifactStatus, record: Damage | None) -> Report | None:
    """The newest report of the copy that is published now; while none is, of one that an attempt has met."""
    checked = record.checked_time if record else None
    trusted = bool(record and checked and record.whole and seen.now < _time(checked) + timedelta(seconds=WHOLE_SECONDS))
    completed = before.completion_time if before.manifest_digest is not None else None
    published = before.manifest_digest is not None
    known = [_time(t) for t in (checked, completed) if t]

    def counts(report: Report) -> bool:
        if report.unfit:
            return bool(completed and report.born and _time(report.born) >= _time(completed))
        return not trusted and (published or report.own)

    told = [r for r in seen.reports if counts(r) and all(_time(r.time) > t for t in known)]
    return max(told, key=lambda r: _time(r.time), default=None)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _check(
    seen: Seen, spec: EngineArtifactSpec, before: EngineArtifactStatus, record: Damage
) -> tuple[Damage, Checking | None]:
    job = next((j for j in seen.checks if label(j, CHECK) == str(record.check)), None)
    if job is None:
        wanted = check_job(seen.artifact, spec, record, seen.config)
        said = (
            "said not to be what its record says, and about to be taken away"
            if record.unfit
            else ("said to be damaged, and about to be read")
        )
        return record, Checking(f"{said} ({record.message})", actions=Actions(create=(wanted,)))
    pods = [p for p in seen.pods if label(p, CHECK) == label(job, CHECK)]
    match attempt.read(job, pods, attempt.Surroundings(now=seen.now)):
        case attempt.Waiting(reason, message, stuck):
            told = f"said to be damaged ({record.message}); its check waits ({reason}: {message})"
            return record, Checking(told, stalled=stuck, actions=Actions(again_seconds=LOOK_AGAIN_SECONDS))
        case attempt.Running(_, node, note):
            doing = "it is taken away" if record.unfit else "every file of it is read"
            told = f"said to be damaged; {doing} on node {node}{note} ({record.message})"
            return record, Checking(told, actions=Actions(again_seconds=LOOK_AGAIN_SECONDS))
        case attempt.Failed(failure, _, time):
            return _check_failed(seen, spec, before, record, failure, time)
        case attempt.Succeeded(completion_time=time, result=result):
            if not isinstance(result.get("whole"), bool):
                # The Pod was gone before its report was read.
                return _begin_again(seen, spec, before, record)
            return _checked(seen, spec, before, record, time, result), None


def _check_failed(
    seen: Seen, spec: EngineArtifactSpec, before: EngineArtifactStatus, record: Damage, failure: Failure, time: str
) -> tuple[Damage, Checking | None]:
    left = (_time(time) + timedelta(seconds=FAILED_CHECK_SECONDS) - seen.now).total_seconds()
    told = f"said to be damaged, and its check failed ({failure.reason}: {failure.message})"
    if left > 0:
        return record, Checking(told, stalled=not failure.retryable, actions=Actions(again_seconds=left))
    return _begin_again(seen, spec, before, record)


def _begin_again(
    seen: Seen, spec: EngineArtifactSpec, before: EngineArtifactStatus, record: Damage
) -> tuple[Damage, Checking | None]:
    return _check(seen, spec, before, record.model_copy(update={"check": record.check + 1}))


def _checked(
    seen: Seen, spec: EngineArtifactSpec, before: EngineArtifactStatus, record: Damage, time: str, result: Any
) -> Damage:
    if result["whole"]:
        return record.model_copy(update={"checked_time": time, "whole": True})
    message = str(result.get("problem") or record.message)[:MAX_MESSAGE]
    last = record.removed_time
    soon = last is not None and _time(time) - _time(last) < timedelta(seconds=TWICE_SECONDS)
    return record.model_copy(
        update={
            "checked_time": time,
            "whole": False,
            "message": message,
            "removed_time": time,
            "attempt": before.attempt or 0,
            "given_up_policy": policy_hash(seen.artifact, spec.policy) if soon else None,
        }
    )


def check_job(artifact: Obj, spec: EngineArtifactSpec, record: Damage, config: OperatorConfig) -> dict[str, Any]:
    """The Job of a record's check: on a CPU, with the store writable."""
    number = record.check
    name, store = artifact["metadata"]["name"], access(spec)
    labels = {MANAGED: "true", ARTIFACT: name, CHECK: str(number)}
    pod = base_pod(spec.policy, volumes(store))
    where: dict[str, Any] = {"artifact": name, "type": spec.type, "inputs": spec.inputs.dump()}
    where |= {"store": store.argument, "scratch": SCRATCH}
    if digest := manifest_digests([artifact]).get(name):
        where["digest"] = digest
    if record.unfit:
        where["unfit"] = record.message
    pod["containers"] = [step_container("check", "check", where, config, step_mounts(store, writable=True))]
    return owned_job(artifact, f"{name}-check-{number}", labels, pod, spec.policy.timeout_seconds)
