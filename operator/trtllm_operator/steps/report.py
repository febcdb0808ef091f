"""How a step says what became of it: one JSON object in the container's termination message, and its exit status."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

PERMANENT_STATUS = 64
"""Exit status of a failure that the same inputs will meet again (EX_USAGE)."""
RETRYABLE_STATUS = 75
"""Exit status of a failure that may pass by itself (EX_TEMPFAIL)."""
MAX_MESSAGE_BYTES = 4096
"""What kubelet keeps of a termination message."""

REASONS = frozenset(
    {
        "ArtifactCorrupted",
        "DiskFull",
        "DownloadCorrupted",
        "DownloadRefused",
        "HubRateLimited",
        "HubUnreachable",
        "Internal",
        "ModelChanged",
        "ModelNotFound",
        "ModelUnreadable",
        "OutputInvalid",
        "OutputMissing",
        "ParentCorrupted",
        "ParentMissing",
        "SpecInvalid",
        "StoreFailed",
        "Terminated",
        "TokenizerMissing",
    }
)
"""Every reason a step can give; the operator's build/failures.py knows them all."""


class StepError(Exception):
    """A failure a person is told of: `reason` from REASONS, `message` with the numbers and what would fix it."""

    def __init__(self, reason: str, message: str, *, retryable: bool = False) -> None:
        if reason not in REASONS:
            raise ValueError(f"{reason} is not in REASONS")
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retryable = retryable

    @property
    def status(self) -> int:
        return RETRYABLE_STATUS if self.retryable else PERMANENT_STATUS

    def report(self) -> dict[str, Any]:
        return {"failure": {"reason": self.reason, "message": self.message, "retryable": self.retryable}}


def progress(event: str, **facts: Any) -> None:
    """One JSON line of progress on standard output."""
    print(json.dumps({"event": event, **facts}), flush=True)


def encode(report: dict[str, Any]) -> bytes:
    """The report as at most MAX_MESSAGE_BYTES of JSON; a failure's message is cut where it is too long."""
    data = _json(report)
    failure = report.get("failure")
    while len(data) > MAX_MESSAGE_BYTES and failure and failure["message"]:
        excess = len(data) - MAX_MESSAGE_BYTES
        kept = failure["message"].rstrip("…")
        failure = {**failure, "message": kept[: max(0, len(kept) - max(excess // 4, 8))] + "…"}
        data = _json({**report, "failure": failure})
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a report of {len(data)} bytes; a termination message holds {MAX_MESSAGE_BYTES}")
    return data


def run_step(step: Callable[[], dict[str, Any]], termination_log: Path) -> int:
    """Run a step, write its report and return the exit status. No traceback reaches the report; it goes to the log."""
    try:
        report: dict[str, Any] = {"result": step()}
        data, status = encode(report), 0
    except StepError as error:
        failure = error
    except OSError as error:
        traceback.print_exc()
        failure = _system_failure(error)
    except Exception as error:
        traceback.print_exc()
        failure = StepError("Internal", f"the step failed on its own account: {type(error).__name__}: {error}")
    else:
        termination_log.write_bytes(data)
        return status
    print(f"{failure.reason}: {failure.message}", file=sys.stderr, flush=True)
    termination_log.write_bytes(encode(failure.report()))
    return failure.status


def stop_on_sigterm(termination_log: Path) -> None:
    """Make SIGTERM end this process at once and say so. As PID 1 it would otherwise be ignored."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        message = "the step was stopped: the Pod was deleted, evicted or ran out of time"
        error = StepError("Terminated", message, retryable=True)
        termination_log.write_bytes(encode(error.report()))
        os._exit(error.status)

    signal.signal(signal.SIGTERM, stop)


def gib(n: int) -> str:
    """Bytes for a person: `1.25 GiB`, or `180 MiB` below one GiB."""
    return f"{n / 2**30:.2f} GiB" if n >= 2**30 else f"{n / 2**20:.0f} MiB"


def disk_full(where: Path, needed_bytes: int | None = None) -> StepError:
    """The volume that holds `where` is full, with its numbers."""
    volume = os.statvfs(where)
    free, size = volume.f_bavail * volume.f_frsize, volume.f_blocks * volume.f_frsize
    needs = f"; {gib(needed_bytes)} more are needed" if needed_bytes is not None else ""
    return StepError(
        "DiskFull",
        f"the volume of {where} is full: {gib(free)} of {gib(size)} are free{needs}. Enlarge the claim, or remove what "
        "no LLMEngine needs from it.",
    )


def is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _system_failure(error: OSError) -> StepError:
    where = f" ({error.filename})" if error.filename else ""
    if is_disk_full(error):
        return StepError("DiskFull", f"a volume of the Pod is full{where}. Enlarge it.")
    return StepError("StoreFailed", f"a volume of the Pod failed: {error.strerror}{where}", retryable=True)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
