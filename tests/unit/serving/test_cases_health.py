"""Public reports about servers that end at their start, by their number: what the LLMEngine says of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trtllm_operator.serving.health import Problem, problem


def pod(*, name: str = "triton", limit: str | None = None, **ended: Any) -> dict[str, Any]:
    """A server's Pod, one of whose containers has ended and waits for its next start."""
    status = {
        "name": name,
        "image": "i",
        "ready": False,
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    container = {"name": name, "resources": {"limits": {"memory": limit} if limit else {}}}
    return {
        "metadata": {"name": "smol-h100-1-pod"},
        "spec": {"containers": [container], "nodeName": "h100"},
        "status": {"containerStatuses": [status]},
    }


def said(**ended: Any) -> Problem:
    found = problem([pod(**ended)])
    assert found is not None
    return found


def told(reason: str, message: str, *, retryable: bool) -> str:
    return json.dumps({"failure": {"reason": reason, "message": message, "retryable": retryable}})


@pytest.mark.parametrize("retryable", [True, False])
def test_a_server_s_own_word_is_passed_on(retryable: bool) -> None:
    found = said(exitCode=64, message=told("VersionMismatch", "runtime tag 228, engine tag 237", retryable=retryable))
    assert (found.reason, found.stalled) == ("VersionMismatch", not retryable)
    assert found.message == "a server does not start: runtime tag 228, engine tag 237"


def test_a_reason_of_another_version_of_the_runner_is_kept_as_words() -> None:
    found = said(exitCode=64, message=told("NotYetInvented", "hm", retryable=False))
    assert (found.reason, found.message) == ("StepFailed", "a server does not start: NotYetInvented: hm")


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("Version tag does not match. Note: Current Version: 228, Serialized Engine Version: 237", "VersionMismatch"),
        ("OSError: x is not a local folder and is not a valid model identifier", "TokenizerMissing"),
        ("CUDA error: out of memory", "GpuMemoryExhausted"),
        ("mpirun noticed that process rank 0 exited on signal 7 (Bus error)", "SharedMemoryExhausted"),
        ("NVRM: Xid 79, GPU has fallen off the bus", "GpuUnhealthy"),
    ],
)
def test_c17_c66_c77_what_died_without_a_word_is_read_from_its_last_lines(log: str, reason: str) -> None:
    """By the table that tells the failures of builds apart."""
    found = said(exitCode=1, message=f"loading\n{log}")
    assert found.reason == reason
    assert log in found.message


def test_c77_a_bus_error_without_a_line_is_possibly_shared_memory() -> None:
    found = said(exitCode=135)
    assert found.reason == "SharedMemoryExhausted"
    assert "possible cause" in found.message
    assert found.stalled


@pytest.mark.parametrize(
    ("ended", "certain"), [({"reason": "OOMKilled", "exitCode": 137}, True), ({"exitCode": 137}, False)]
)
def test_a_server_killed_for_memory_names_its_own_field(ended: dict[str, Any], certain: bool) -> None:
    found = said(limit="8Gi", **ended)
    assert (found.reason, found.stalled) == ("HostMemoryExhausted", True)
    assert "spec.serving.resources.limits.memory" in found.message
    assert "8Gi" in found.message
    assert ("most likely" in found.message) is not certain


def test_a_step_of_the_operator_s_own_is_not_told_to_the_user_as_the_server_s() -> None:
    found = said(name="provide", reason="OOMKilled", exitCode=137)
    assert found.reason == "StepMemoryExhausted"
    assert "spec.serving" not in found.message


@pytest.mark.parametrize("ended", [{"exitCode": 139}, {"exitCode": 2, "message": "something nobody knows"}])
def test_what_nothing_is_known_of_is_a_restart_with_its_numbers(ended: dict[str, Any]) -> None:
    found = said(**ended)
    assert (found.reason, found.stalled) == ("ServerRestarts", False)
    assert f"exited {ended['exitCode']} and was restarted 3 times" in found.message
    assert ended.get("message", "") in found.message


def test_a_driver_that_is_too_old_is_found_where_the_container_cannot_start() -> None:
    found = said(
        exitCode=128,
        reason="StartError",
        message="nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.1",
    )
    assert (found.reason, found.stalled) == ("DriverTooOld", True)
