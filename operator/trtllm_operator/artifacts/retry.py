"""Whether another attempt follows one that has failed, and when: the table of failures applied to one artifact."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..api.engineartifact import AttemptRecord, EngineArtifactSpec
from .failures import Failure, Retry, pause_seconds, retry_hint, secrets_hint
from .history import History, failure_of
from .job_resources import describe_growth, own_limit
from .secrets import named_secrets


@dataclass(frozen=True)
class Verdict:
    reason: str
    message: str
    """What is wrong, and what follows or what a person would change."""
    wait_seconds: float | None
    """Until the next attempt, not positive when it is due; None: there is none by itself."""


def after_failure(
    spec: EngineArtifactSpec, name: str, past: History, last: AttemptRecord, now: datetime, *, watched: bool = False
) -> Verdict:
    """What follows `last`, the last attempt at artifact `name`; `past` counts it already. `watched`: a change of a
    Secret would be noticed."""
    failure, times = failure_of(last), past.counts.get(last.reason, 0)
    retry = failure.kind.retry
    final = None if retry is None else _final(spec, past, failure, retry, times, last.number)
    if retry is None or final is not None:
        return Verdict(failure.reason, failure.message + (final or _hint(spec, name, failure, watched)), None)
    pause = pause_seconds(failure, max(times, 1))
    ended = datetime.fromisoformat(last.end_time) if last.end_time else now
    counted = f" of {spec.policy.max_attempts}" if retry.counted else ""
    bigger = f", with {describe_growth(spec, past, retry.grows)}" if retry.grows else ""
    follows = f"(attempt {last.number}{counted}; the next begins {pause} s after this one failed{bigger})"
    left = (ended + timedelta(seconds=pause) - now).total_seconds()
    return Verdict(failure.reason, f"{failure.message} {follows}", left)


def _hint(spec: EngineArtifactSpec, name: str, failure: Failure, watched: bool) -> str:
    if watched:
        return secrets_hint("eart", name, named_secrets(spec.policy), outside=failure.kind.outside)
    return retry_hint("eart", name) if failure.kind.outside else ""


def _final(
    spec: EngineArtifactSpec, past: History, failure: Failure, retry: Retry, times: int, last: int
) -> str | None:
    """Why there is no further attempt, though one may help; None when there is one."""
    if own := own_limit(spec, failure.reason):
        return f" (attempt {last}; its limit of {own} is spec.build.resources' own, which the operator does not exceed)"
    if retry.counted and past.counted >= spec.policy.max_attempts:
        return f" (attempt {last}, the last of {spec.policy.max_attempts} allowed)"
    if times > retry.times:
        return f" (attempt {last}; {times} attempts ended like this, and more are not made by themselves)"
    return None
