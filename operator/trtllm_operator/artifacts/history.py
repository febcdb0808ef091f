"""The attempts that have failed: kept in status, so that neither a Pod nor a Job that is gone changes what is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..api.engineartifact import AttemptRecord, EngineArtifactStatus
from ..objects import ATTEMPT, POLICY_HASH, SECRETS, Obj, annotation, label
from .attempt import Failed, Surroundings, Waiting, read
from .failures import GROWTH, KINDS, Failure, Growth, Retry
from .secrets import has_changed

KEPT = 5
MAX_MESSAGE = 2048
SECRET_CHANGED = "SecretChanged"  # noqa: S105 (a reason)


@dataclass(frozen=True)
class History:
    """Failed attempts up to now."""

    records: tuple[AttemptRecord, ...]
    counts: Mapping[str, int]
    """Failures by reason since the policy last changed."""
    last_policy: str | None = None
    """Hash of the policy that the last of them ran under."""
    last_secrets: str | None = None
    """Digest of the Secrets that the last of them was made with."""

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
    last_policy, last_secrets = before.attempt_policy, before.attempt_secrets
    for job in sorted(jobs, key=number):
        if number(job) <= known:
            continue
        if records and is_of_secret(records[-1]) and has_changed(last_secrets, annotation(job, SECRETS)):
            counts = {}
        state = read(job, [p for p in pods if label(p, ATTEMPT) == label(job, ATTEMPT)], around)
        if not isinstance(state, Failed):
            continue
        records.append(_record(job, state))
        last_policy, last_secrets = annotation(job, POLICY_HASH), annotation(job, SECRETS)
        if last_policy == policy:
            reason = state.failure.reason
            counts[reason] = counts.get(reason, 0) + 1
    return History(tuple(records[-KEPT:]), counts, last_policy, last_secrets)


def superseded(history: History, job: Obj, state: Waiting, now: str, policy: str) -> History:
    """With an attempt that had not begun when its policy, or a Secret that it waited for, changed, and that another one
    takes the place of. `policy` is the hash of the policy now."""
    own = annotation(job, POLICY_HASH)
    reason, what = (SECRET_CHANGED, "a Secret") if own == policy else ("PolicyChanged", "its policy")
    message = f"it had not begun ({state.reason}) when {what} changed"
    records = (*history.records, _record(job, Failed(Failure(reason, message), None, now)))
    return History(records[-KEPT:], history.counts, own, annotation(job, SECRETS))


def is_of_secret(record: AttemptRecord) -> bool:
    """Whether a Secret that the spec names may be to blame."""
    return failure_of(record).kind.secrets == "named"


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
