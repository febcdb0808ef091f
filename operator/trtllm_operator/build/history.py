"""The attempts that have failed: kept in status, so that neither a Pod nor a Job that is gone changes what is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..api.engineartifact import AttemptRecord, EngineArtifactStatus
from ..objects import ATTEMPT, POLICY_HASH, Obj, annotation, label
from .attempt import Failed, Surroundings, Waiting, read
from .failures import GROWTH, KINDS, Failure, Growth, Retry

KEPT = 5
MAX_MESSAGE = 2048


@dataclass(frozen=True)
class History:
    """Failed attempts up to now."""

    records: tuple[AttemptRecord, ...]
    counts: Mapping[str, int]
    """Failures by reason since the policy last changed."""
    last_policy: str | None = None
    """Hash of the policy that the last of them ran under."""

    @property
    def last(self) -> AttemptRecord | None:
        return self.records[-1] if self.records else None

    @property
    def counted(self) -> int:
        """Failures that use up spec.build.maxAttempts."""
        return sum(n for reason, n in self.counts.items() if (retry := _retry(reason)) is None or retry.counted)

    def grown(self, what: Growth, planned: int) -> int:
        """A planned amount after as many attempts as ran out of it."""
        times = sum(n for reason, n in self.counts.items() if (retry := _retry(reason)) and retry.grows == what)
        return int(planned * GROWTH[0] ** times // GROWTH[1] ** times)


def _retry(reason: str) -> Retry | None:
    return KINDS[reason].retry if reason in KINDS else None


def recall(
    before: EngineArtifactStatus, jobs: Iterable[Obj], pods: tuple[Obj, ...], policy: str, around: Surroundings
) -> History:
    """What status knows, and every attempt that has failed since. `policy` is the hash of the policy now.

    An attempt is recorded once, by its number, as it was first seen: what its Pod says later does not count.
    """
    records = list(before.attempts)
    counts = dict(before.failure_counts) if before.attempt_policy in (None, policy) else {}
    known = max((r.number for r in records), default=0)
    last_policy = before.attempt_policy
    for job in sorted(jobs, key=number):
        if number(job) <= known:
            continue
        state = read(job, [p for p in pods if label(p, ATTEMPT) == label(job, ATTEMPT)], around)
        if not isinstance(state, Failed):
            continue
        records.append(_record(job, state))
        last_policy = annotation(job, POLICY_HASH)
        if last_policy == policy:
            reason = state.failure.reason
            counts[reason] = counts.get(reason, 0) + 1
    return History(tuple(records[-KEPT:]), counts, last_policy)


def superseded(history: History, job: Obj, state: Waiting, now: str) -> History:
    """With an attempt that had not begun when its policy changed, and that another one takes the place of."""
    message = f"it had not begun ({state.reason}) when its policy changed"
    records = (*history.records, _record(job, Failed(Failure("PolicyChanged", message), None, now)))
    return History(records[-KEPT:], history.counts, annotation(job, POLICY_HASH))


def number(job: Obj) -> int:
    return int(label(job, ATTEMPT) or 0)


def failure_of(record: AttemptRecord) -> Failure:
    reason = record.reason if record.reason in KINDS else "StepFailed"  # written by another version
    return Failure(reason, record.message, retry_after_seconds=record.retry_after_seconds)


def _record(job: Obj, state: Failed) -> AttemptRecord:
    failure = state.failure
    return AttemptRecord(
        number=number(job),
        reason=failure.reason,
        message=failure.message[:MAX_MESSAGE],
        node_name=state.node,
        start_time=job.get("status", {}).get("startTime"),
        end_time=state.time,
        log=failure.log or None,
        retry_after_seconds=failure.retry_after_seconds,
    )
