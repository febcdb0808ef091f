"""What an artifact's plan does in each situation it can meet."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from trtllm_operator.actions import Actions
from trtllm_operator.api.engineartifact import EngineArtifactSpec
from trtllm_operator.artifacts.jobs import policy_hash
from trtllm_operator.artifacts.plan import UNPUBLISHED_GRACE_SECONDS, Snapshot, plan

from .world import (
    CONFIG,
    NOW,
    RUNNER,
    complete,
    ended,
    engine_artifact,
    failed,
    job,
    node,
    pod,
    ready_artifact,
    running,
    stamp,
    waiting,
)

H100 = node("h100", "NVIDIA-H100-80GB-HBM3")
A100 = node("a100", "NVIDIA-A100-SXM4-80GB", "8.0", 81920)


def snapshot(**seen: Any) -> Snapshot:
    defaults: dict[str, Any] = {
        "artifact": engine_artifact(),
        "parent": ready_artifact("checkpoint-1"),
        "jobs": (),
        "pods": (),
        "nodes": (H100, A100),
        "referenced": True,
        "config": CONFIG,
        "runner": RUNNER,
        "now": NOW,
    }
    return Snapshot(**{**defaults, **seen})


def policy_of(artifact: dict[str, Any]) -> str:
    return policy_hash(artifact, EngineArtifactSpec.model_validate(artifact["spec"]).policy)


POLICY = policy_of(engine_artifact())


def condition(made: Actions, type_: str) -> dict[str, Any]:
    """The condition; one that says no where it is absent, as Stalled is while nothing stalls."""
    found = (c for c in made.status["conditions"] if c["type"] == type_)
    return next(found, {"type": type_, "status": "False", "reason": "", "message": ""})


def names(objects: tuple[Any, ...]) -> list[str]:
    return [o["metadata"]["name"] for o in objects]


def with_status(made: Actions, artifact: dict[str, Any]) -> dict[str, Any]:
    return {**artifact, "status": dict(made.status)}


def test_a_build_begins_once_its_parent_is_published() -> None:
    made = plan(snapshot())
    assert names(made.create) == [RUNNER.config_map, "engine-1-1"]
    assert made.status["phase"] == "Pending"
    assert made.status["attempt"] == 1


def test_nothing_begins_before_the_parent_is_published() -> None:
    made = plan(snapshot(parent={"metadata": {"name": "checkpoint-1"}, "status": {}}))
    assert made.create == ()
    assert condition(made, "Ready")["reason"] == "ParentNotReady"
    assert condition(made, "Stalled")["status"] == "False"


def test_a_gpu_that_no_node_has_is_waiting_with_what_was_looked_for_and_what_there_is() -> None:
    made = plan(snapshot(nodes=(A100, node("cpu"))))
    assert made.create == ()
    assert condition(made, "Stalled")["status"] == "False", "a GPU that may still join is no reason to call a person"
    message = condition(made, "Ready")["message"]
    assert "NVIDIA-H100-80GB-HBM3" in message
    assert "NVIDIA-A100-SXM4-80GB (a100)" in message


def test_the_status_names_step_and_node_while_the_build_runs() -> None:
    seen = snapshot(jobs=(job(1, POLICY),), pods=(pod(1, initContainerStatuses=[ended("stage", 0), running("build")]),))
    made = plan(seen)
    assert made.status["phase"] == "Running"
    assert condition(made, "Ready")["message"] == "build runs on node h100"
    assert made.create == ()


def test_between_two_steps_the_next_one_is_named() -> None:
    between = [ended("stage", 0), waiting("build", "PodInitializing")]
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(pod(1, initContainerStatuses=between),)))
    assert (made.status["phase"], made.status["reason"]) == ("Running", "RunningBuild")


def test_success_is_recorded_with_what_the_publication_reported() -> None:
    report = {
        "result": {
            "manifestDigest": "ab" * 32,
            "sizeBytes": 270_000_000,
            "files": 2,
            "build": {"gpu": "NVIDIA H100 80GB HBM3", "peakHostMemoryBytes": 1_000_000_000},
        }
    }
    seen = snapshot(
        jobs=(job(1, POLICY, complete()),),
        pods=(pod(1, containerStatuses=[ended("publish", 0, json.dumps(report))]),),
    )
    made = plan(seen)
    assert made.status["phase"] == "Ready"
    assert made.status["manifestDigest"] == "ab" * 32
    assert made.status["durationSeconds"] == 60
    assert made.status["gpu"] == "NVIDIA H100 80GB HBM3"
    again = plan(replace(seen, artifact=with_status(made, engine_artifact()), jobs=(), pods=()))
    assert again.create == (), "a published artifact is never built again, whatever became of its Job"
    assert again.status == made.status


def test_a_success_whose_report_is_lost_is_looked_up_by_another_attempt() -> None:
    made = plan(snapshot(jobs=(job(1, POLICY, complete()),)))
    assert names(made.create)[-1] == "engine-1-2"


@pytest.mark.parametrize(
    ("pod_status", "reason", "words"),
    [
        (
            {"initContainerStatuses": [ended("build", 137, reason="OOMKilled")]},
            "HostMemoryExhausted",
            ["8Gi", "spec.build.resources.limits.memory"],
        ),
        (
            {
                "initContainerStatuses": [
                    ended(
                        "build",
                        64,
                        json.dumps({"failure": {"reason": "FlagRefused", "message": "no --x", "retryable": False}}),
                    )
                ]
            },
            "FlagRefused",
            ["no --x"],
        ),
    ],
)
def test_a_failure_that_repeating_cannot_help_stops_and_says_what_would(
    pod_status: dict[str, Any], reason: str, words: list[str]
) -> None:
    made = plan(snapshot(jobs=(job(1, POLICY, failed()),), pods=(pod(1, **pod_status),)))
    stalled = condition(made, "Stalled")
    assert (made.create, made.status["phase"], stalled["status"]) == ((), "Failed", "True")
    assert stalled["reason"] == reason
    for word in words:
        assert word in stalled["message"]


def test_a_failure_that_may_pass_is_repeated_after_a_pause() -> None:
    silent = pod(1, initContainerStatuses=[ended("build", 3)])
    early = plan(snapshot(jobs=(job(1, POLICY, failed(3)),), pods=(silent,)))
    assert early.create == ()
    assert early.again_seconds == pytest.approx(7)
    assert "attempt 1 of 3" in condition(early, "Ready")["message"]
    later = plan(snapshot(jobs=(job(1, POLICY, failed(10)),), pods=(silent,)))
    assert names(later.create)[-1] == "engine-1-2"


def test_the_last_attempt_allowed_is_the_last() -> None:
    jobs = tuple(job(n, POLICY, failed(600)) for n in (1, 2, 3))
    silent = tuple(pod(n, initContainerStatuses=[ended("build", 3)]) for n in (1, 2, 3))
    made = plan(snapshot(jobs=jobs, pods=silent))
    assert made.create == ()
    assert condition(made, "Stalled")["status"] == "True"
    assert "the last of 3 allowed" in condition(made, "Stalled")["message"]


def test_another_policy_opens_another_attempt_of_what_failed() -> None:
    bigger = engine_artifact(resources={"limits": {"memory": "16Gi"}})
    oom = pod(1, initContainerStatuses=[ended("build", 137, reason="OOMKilled")])
    made = plan(snapshot(artifact=bigger, jobs=(job(1, POLICY, failed()),), pods=(oom,)))
    assert names(made.create)[-1] == "engine-1-2"
    build = made.create[-1]["spec"]["template"]["spec"]["initContainers"][1]
    assert build["resources"]["limits"]["memory"] == "16Gi"


def test_the_retry_annotation_opens_another_attempt_of_what_failed() -> None:
    asked = engine_artifact()
    asked["metadata"]["annotations"] = {"llmengine.dev/retry": "please"}
    flag = pod(1, initContainerStatuses=[ended("build", 2)])
    made = plan(snapshot(artifact=asked, jobs=(job(1, POLICY, failed()),), pods=(flag,)))
    assert names(made.create)[-1] == "engine-1-2"


def test_a_failure_stays_known_when_its_job_is_deleted() -> None:
    oom = pod(1, initContainerStatuses=[ended("build", 137, reason="OOMKilled")])
    made = plan(snapshot(jobs=(job(1, POLICY, failed()),), pods=(oom,)))
    again = plan(snapshot(artifact=with_status(made, engine_artifact())))
    assert again.create == ()
    assert again.status == made.status


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_an_image_that_cannot_be_pulled_needs_a_person(reason: str) -> None:
    stuck = pod(1, initContainerStatuses=[waiting("stage", reason, "not found")])
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(stuck,)))
    stalled = condition(made, "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "ImagePullFailed")
    assert "registry/none:1" in stalled["message"]


def test_an_unschedulable_build_says_why_and_waits() -> None:
    why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    unscheduled = pod(1, conditions=[{"type": "PodScheduled", "status": "False", "message": why}])
    unscheduled["spec"]["initContainers"][1]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(unscheduled,)))
    assert condition(made, "Ready")["reason"] == "WaitingForGpu"
    assert why in condition(made, "Ready")["message"]
    assert condition(made, "Stalled")["status"] == "False"


def test_a_deadline_is_not_repeated() -> None:
    begun = pod(1, startTime=stamp(3600), initContainerStatuses=[running("build")])
    made = plan(snapshot(jobs=(job(1, POLICY, failed(reason="DeadlineExceeded")),), pods=(begun,)))
    assert condition(made, "Stalled")["reason"] == "DeadlineExceeded"
    assert "spec.build.timeoutSeconds" in condition(made, "Stalled")["message"]


@pytest.mark.parametrize(
    ("published", "grace_seconds"), [(True, CONFIG.artifact_grace_seconds), (False, UNPUBLISHED_GRACE_SECONDS)]
)
def test_an_artifact_that_nothing_needs_is_deleted_after_its_grace_time_and_not_before(
    published: bool, grace_seconds: int
) -> None:
    """What is published is kept for the way back; a build is stopped."""
    artifact = engine_artifact()
    if published:
        artifact = {**artifact, "status": {"manifestDigest": "ab" * 32, "sizeBytes": 1, "phase": "Ready"}}
    first = plan(snapshot(artifact=artifact, referenced=False, nodes=()))
    assert first.delete == ()
    assert first.again_seconds == pytest.approx(grace_seconds)
    since = {**dict(first.status)}
    since["conditions"] = [
        {**c, "lastTransitionTime": stamp(grace_seconds)} if c["type"] == "Referenced" else c
        for c in first.status["conditions"]
    ]
    late = plan(snapshot(artifact={**artifact, "status": since}, referenced=False, nodes=()))
    assert names(late.delete) == ["engine-1"]
    wanted_again = plan(snapshot(artifact={**artifact, "status": since}, referenced=True, nodes=()))
    assert wanted_again.delete == ()


def test_planning_again_changes_nothing() -> None:
    seen = snapshot(jobs=(job(1, POLICY),), pods=(pod(1, initContainerStatuses=[ended("stage", 0), running("build")]),))
    made = plan(seen)
    again = plan(replace(seen, artifact=with_status(made, engine_artifact())))
    assert again.status == made.status


def test_only_publication_may_write_to_the_store_and_only_the_build_gets_a_gpu() -> None:
    spec = plan(snapshot()).create[-1]["spec"]["template"]["spec"]
    containers = {c["name"]: c for c in (*spec["initContainers"], *spec["containers"])}
    store = {n: next(m for m in c["volumeMounts"] if m["name"] == "store") for n, c in containers.items()}
    assert [n for n, m in store.items() if not m.get("readOnly")] == ["publish"]
    limits = {n: c.get("resources", {}).get("limits", {}) for n, c in containers.items()}
    assert [n for n, limit in limits.items() if "nvidia.com/gpu" in limit] == ["build"]
    assert spec["automountServiceAccountToken"] is False
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    wanted = {e["key"]: e["values"] for e in terms[0]["matchExpressions"]}
    assert wanted == {
        "nvidia.com/gpu.product": ["NVIDIA-H100-80GB-HBM3"],
        "nvidia.com/gpu.compute.major": ["9"],
        "nvidia.com/gpu.compute.minor": ["0"],
        "kubernetes.io/arch": ["amd64"],
    }
