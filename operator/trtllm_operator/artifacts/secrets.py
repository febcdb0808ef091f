"""The Secrets that an attempt depends on, by their versions alone: what is in them is never looked at.

An attempt's Job carries the versions as they were before it was made. What a Secret may be to blame for is tried again
once its version is another one, however long that takes and whoever has led in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..api.engineartifact import Policy
from ..objects import PULL_SECRETS, SECRETS, Obj, annotation, short_hash
from .failures import KINDS


@dataclass(frozen=True)
class Secrets:
    """As they are now. Nothing is known of those that the operator may not look at."""

    named: str | None = None
    """Digest of the versions of those that the spec names; None: it names none, or nothing is known."""
    pull: str | None = None
    """The same of the pull secrets of the namespace's ServiceAccount; also which those are."""
    missing: tuple[str, ...] = ()
    """Those that the spec names and that do not exist."""

    def annotations(self) -> dict[str, str]:
        """What the Job of an attempt remembers of them."""
        known = {SECRETS: self.named, PULL_SECRETS: self.pull}
        return {key: value for key, value in known.items() if value is not None}


UNKNOWN = Secrets()


def named_secrets(policy: Policy) -> tuple[str, ...]:
    """Those that an attempt under this policy mounts."""
    references = (policy.token_secret_ref, policy.model_secret_ref, policy.store_secret_ref)
    return tuple(sorted({reference.name for reference in references if reference}))


def digest(versions: Mapping[str, str | None]) -> str:
    """Of versions by name; None is a Secret that does not exist."""
    return short_hash(dict(versions))


def has_changed(recorded: str | None, now: str | None) -> bool:
    """Also where an attempt has no record, as one of an operator that kept none: its Secret may have changed since."""
    return now is not None and now != recorded


def is_watched(reason: str, now: Secrets) -> bool:
    """Whether a failure of this reason ends when a Secret changes."""
    return KINDS[reason].secrets == "named" and now.named is not None


def outdates(now: Secrets, job: Obj, reason: str) -> bool:
    """Whether an attempt that waits, or has failed, for this reason did so with Secrets that are others by now."""
    match KINDS[reason].secrets:
        case "named":
            return has_changed(annotation(job, SECRETS), now.named)
        case "pull":
            return has_changed(annotation(job, PULL_SECRETS), now.pull)
        case None:
            return False


def missing_message(missing: tuple[str, ...], namespace: str) -> str:
    """What to do about Secrets that do not exist."""
    one = len(missing) == 1
    which = f"Secret {missing[0]} does" if one else f"Secrets {', '.join(missing)} do"
    it = "it" if one else "them"
    return f"{which} not exist in namespace {namespace}, and the spec names {it}: create {it}, and it begins by itself"
