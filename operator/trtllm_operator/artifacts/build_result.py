"""How attempts at an artifact ended, from two of its statuses: what is new in the second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..api.engineartifact import EngineArtifactStatus


@dataclass(frozen=True)
class BuildResult:
    """One attempt that has ended."""

    result: Literal["success", "failure"]
    reason: str
    """Published, or a reason of docs/failures.md."""
    seconds: int | None = None
    size_bytes: int | None = None


def new_results(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[BuildResult, ...]:
    """Attempts that ended between two statuses. The same status twice has none: a restart counts nothing again."""
    old, new = EngineArtifactStatus.model_validate(before), EngineArtifactStatus.model_validate(after)
    known = {attempt.number for attempt in old.attempts}
    failures = tuple(BuildResult("failure", a.reason) for a in new.attempts if a.number not in known)
    if new.manifest_digest and (new.manifest_digest, new.completion_time) != (old.manifest_digest, old.completion_time):
        return (*failures, BuildResult("success", "Published", new.duration_seconds, new.size_bytes))
    return failures
