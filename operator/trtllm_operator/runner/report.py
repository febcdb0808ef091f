"""How a step says what became of it: one JSON object in the container's termination message, and its exit status."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

PERMANENT_STATUS = 64
"""Exit status of a failure that the same inputs on the same node will meet again (EX_USAGE)."""
RETRYABLE_STATUS = 75
"""Exit status of a failure that may pass by itself (EX_TEMPFAIL)."""
MAX_MESSAGE_BYTES = 4096
"""What kubelet keeps of a termination message."""
MAX_LOG_CHARACTERS = 1536
_SECRET = re.compile(r"hf_[A-Za-z0-9_-]{6,}|(?<=[Bb]earer )\S+")

REASONS = frozenset(
    {
        "ArchitectureUnsupported",
        "ArtifactCorrupted",
        "CalibrationChanged",
        "CalibrationUnavailable",
        "CalibrationUnreadable",
        "CheckpointBroken",
        "Crashed",
        "DiskFull",
        "DownloadCorrupted",
        "DownloadRefused",
        "DrainTimeout",
        "DriverTooOld",
        "EngineBroken",
        "EngineCorrupted",
        "EngineMismatch",
        "FlagRefused",
        "GpuMemoryExhausted",
        "GpuMismatch",
        "GpuUnavailable",
        "GpuUnhealthy",
        "GpuUnsupported",
        "HostMemoryExhausted",
        "HubRateLimited",
        "HubUnreachable",
        "Internal",
        "KernelMissing",
        "ModelChanged",
        "ModelLoadFailed",
        "ModelNotFound",
        "ModelUnreadable",
        "NoPeerAccess",
        "NodeDiskFull",
        "OutputInvalid",
        "OutputMissing",
        "PluginMismatch",
        "PrecisionUnsupported",
        "SharedMemoryExhausted",
        "SpecInvalid",
        "StorageRefused",
        "StorageUnreachable",
        "StoreFailed",
        "TemplateMismatch",
        "Terminated",
        "TokenizerMissing",
        "ToolFailed",
        "ToolMissing",
        "VersionMismatch",
        "VocabularyPadding",
        "WorldSizeMismatch",
    }
)
"""Every reason that a step of either image can give."""


class StepError(Exception):
    """A failure a person is told of: `reason` from REASONS, `message` with the numbers and what would fix it."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        retryable: bool = False,
        artifact: str | None = None,
        log: str = "",
        retry_after_seconds: int | None = None,
    ) -> None:
        """`artifact` is what the failure is about where the operator can do something for it; `log` are last lines of
        what failed; `retry_after_seconds` is a pause that the other side asked for."""
        if reason not in REASONS:
            raise ValueError(f"{reason} is not in REASONS")
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retryable = retryable
        self.artifact = artifact
        self.log = log
        self.retry_after_seconds = retry_after_seconds

    @property
    def status(self) -> int:
        return RETRYABLE_STATUS if self.retryable else PERMANENT_STATUS

    def report(self) -> dict[str, Any]:
        failure = {"reason": self.reason, "message": self.message, "retryable": self.retryable}
        if self.artifact is not None:
            failure["artifact"] = self.artifact
        if self.retry_after_seconds is not None:
            failure["retryAfterSeconds"] = self.retry_after_seconds
        if self.log:
            failure["log"] = without_secrets(self.log)[-MAX_LOG_CHARACTERS:]
        return {"failure": failure}


def progress(event: str, **facts: Any) -> None:
    """One JSON line of progress on standard output."""
    print(json.dumps({"event": event, **facts}), flush=True)


def without_secrets(text: str) -> str:
    """Text with what looks like a token taken out."""
    return _SECRET.sub("***", text)


def encode(report: dict[str, Any]) -> bytes:
    """The report as at most MAX_MESSAGE_BYTES of JSON: where it is too long, the oldest lines of the log go first, then
    the end of the message."""
    data = _json(report)
    failure = report.get("failure")
    while len(data) > MAX_MESSAGE_BYTES and failure and failure.get("log"):
        failure = {**failure, "log": failure["log"][max(8, (len(data) - MAX_MESSAGE_BYTES) // 4) :]}
        data = _json({**report, "failure": failure})
    while len(data) > MAX_MESSAGE_BYTES and failure and failure["message"]:
        excess = len(data) - MAX_MESSAGE_BYTES
        kept = failure["message"].rstrip("…")
        failure = {**failure, "message": kept[: max(0, len(kept) - max(excess // 4, 8))] + "…"}
        data = _json({**report, "failure": failure})
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a report of {len(data)} bytes; a termination message holds {MAX_MESSAGE_BYTES}")
    return data


def stop_on_sigterm(termination_log: Path) -> None:
    """Make SIGTERM end this process at once and say so. As PID 1 it would otherwise be ignored."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        error = StepError(
            "Terminated", "the step was stopped: the Pod was deleted, evicted or ran out of time", retryable=True
        )
        termination_log.write_bytes(encode(error.report()))
        os._exit(error.status)

    signal.signal(signal.SIGTERM, stop)


def run_step(step: Callable[[], dict[str, Any]], termination_log: Path) -> int:
    """Run a step, write its report and return the exit status. No traceback reaches the report; it goes to the log."""
    try:
        data = encode({"result": step()})
    except StepError as error:
        failure = error
    except Exception as error:
        traceback.print_exc()
        failure = _unforeseen(error)
    else:
        termination_log.write_bytes(data)
        return 0
    print(f"{failure.reason}: {failure.message}", file=sys.stderr, flush=True)
    termination_log.write_bytes(encode(failure.report()))
    return failure.status


def _unforeseen(error: Exception) -> StepError:
    """An error that no step has words for: a volume's, or our own."""
    where = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
    if is_disk_full(error):
        return StepError("DiskFull", f"a volume of the Pod is full{where}. Enlarge it.")
    if isinstance(error, OSError) and error.strerror:
        return StepError("StoreFailed", f"a volume of the Pod failed: {error.strerror}{where}", retryable=True)
    return StepError("Internal", f"it failed on its own account: {type(error).__name__}: {error}")


def is_disk_full(error: BaseException) -> bool:
    """Whether the error says that a volume, or one's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
