"""What is made of a Pod that failed: the step's own word first, then the cluster's, then what the last lines say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trtllm_operator.artifacts.diagnosis import diagnose

from .world import ended, pod, stamp


def report(reason: str, message: str = "why", **more: Any) -> str:
    return json.dumps({"failure": {"reason": reason, "message": message, "retryable": False, **more}})


def disrupted(reason: str, message: str = "") -> list[dict[str, Any]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"conditions": disrupted("PreemptionByScheduler")}, "Preempted"),
        ({"conditions": disrupted("DeletionByTaintManager")}, "NodeLost"),
        ({"conditions": disrupted("DeletionByPodGC")}, "NodeLost"),
        ({"conditions": disrupted("EvictionByEvictionAPI")}, "Evicted"),
        ({"reason": "Evicted", "message": "The node was low on resource: memory."}, "Evicted"),
        ({"reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."}, "DiskPressure"),
        (
            {"reason": "Evicted", "message": 'Usage of EmptyDir volume "scratch" exceeds the limit "4Gi".'},
            "EphemeralStorageExhausted",
        ),
        (
            {"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit of containers"},
            "EphemeralStorageExhausted",
        ),
        ({"reason": "DeadlineExceeded"}, "DeadlineExceeded"),
        ({"reason": "UnexpectedAdmissionError", "message": "no healthy devices present"}, "NodeRefused"),
        ({"reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough"}, "NodeRefused"),
        ({"reason": "Shutdown"}, "NodeShutdown"),
        ({"message": "strange"}, "PodFailed"),
    ],
)
def test_what_the_cluster_did_to_a_pod(status: dict[str, Any], reason: str) -> None:
    told = diagnose(pod(1, phase="Failed", **status))
    assert told.reason == reason
    assert told.message


def test_a_step_told_to_end_by_an_eviction_is_an_eviction() -> None:
    """The runner knows no more than that it was told to end."""
    stopped = [ended("build", 75, report("Terminated"))]
    told = diagnose(pod(1, initContainerStatuses=stopped, conditions=disrupted("PreemptionByScheduler", "by Pod x")))
    assert told.reason == "Preempted"
    assert "by Pod x" in told.message


def test_a_step_that_had_failed_before_its_pod_was_evicted_keeps_its_reason() -> None:
    refused = [ended("build", 64, report("FlagRefused", "no --x"))]
    told = diagnose(pod(1, initContainerStatuses=refused, conditions=disrupted("PreemptionByScheduler")))
    assert (told.reason, told.message) == ("FlagRefused", "no --x")


def test_137_of_a_pod_that_was_being_deleted_is_not_memory() -> None:
    """The kubelet's SIGKILL after the grace period looks the same as the kernel's."""
    killed = pod(1, initContainerStatuses=[ended("build", 137)])
    killed["metadata"]["deletionTimestamp"] = stamp(5)
    assert diagnose(killed).reason == "Terminated"


def test_a_reason_of_another_version_is_kept_in_the_message() -> None:
    told = diagnose(pod(1, initContainerStatuses=[ended("build", 64, report("NotYetInvented", "hm"))]))
    assert (told.reason, told.message) == ("StepFailed", "NotYetInvented: hm")


@pytest.mark.parametrize(
    ("code", "said", "why", "reason"),
    [
        (139, "...", "Error", "Crashed"),
        (134, "terminate called after throwing", "Error", "Crashed"),
        (127, "sh: trtllm-build: command not found", "Error", "ToolMissing"),
        (1, "Traceback\nValueError: x", "Error", "StepFailed"),
        (128, 'exec: "python3": executable file not found in $PATH', "StartError", "ToolMissing"),
        (128, "exec /usr/bin/python3: exec format error", "StartError", "ImagePlatformMismatch"),
        (
            128,
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver",
            "StartError",
            "DriverTooOld",
        ),
        (
            128,
            "nvidia-container-cli: initialization error: nvml error: driver not loaded",
            "StartError",
            "GpuUnavailable",
        ),
    ],
)
def test_what_dies_without_a_word_is_read_from_its_end(code: int, said: str, why: str, reason: str) -> None:
    told = diagnose(pod(1, initContainerStatuses=[ended("build", code, said, reason=why)]))
    assert told.reason == reason
    assert said.splitlines()[-1] in told.message


def test_the_last_lines_and_the_source_s_pause_are_kept() -> None:
    limited = report("HubRateLimited", "slow down", retryAfterSeconds=90, log="GET /api\n429")
    told = diagnose(pod(1, containerStatuses=[ended("fetch", 75, limited)]))
    assert (told.retry_after_seconds, told.log) == (90, "GET /api\n429")
    silent = diagnose(pod(1, containerStatuses=[ended("fetch", 1, "first\nlast")]))
    assert silent.log == "first\nlast"


def test_memory_of_a_step_of_the_operator_is_not_the_user_s_to_set() -> None:
    told = diagnose(pod(1, containerStatuses=[ended("publish", 137, reason="OOMKilled")]))
    assert told.reason == "StepMemoryExhausted"
    assert "spec.build" not in told.message
