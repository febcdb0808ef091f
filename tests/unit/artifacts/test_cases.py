"""Public reports about builds that fail, are tried again, download or wait in Kubernetes, by their number."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from trtllm_operator.actions import Actions
from trtllm_operator.artifacts.plan import Observations, plan
from trtllm_operator.artifacts.secrets import Secrets
from trtllm_operator.objects import SECRETS

from .test_plan import POLICY, condition, names, policy_of, snapshot, with_status
from .world import NOW, ended, engine_artifact, failed, job, pod, running, stamp, waiting


def told(reason: str, message: str = "why", **more: Any) -> str:
    return json.dumps({"failure": {"reason": reason, "message": message, "retryable": False, **more}})


def after(pod_: dict[str, Any], *, seconds: int = 0, artifact: dict[str, Any] | None = None, **seen: Any) -> Actions:
    return plan(
        snapshot(artifact=artifact or engine_artifact(), jobs=(job(1, POLICY, failed(seconds)),), pods=(pod_,), **seen)
    )


@pytest.mark.parametrize(
    ("end", "certain"),
    [
        (ended("build", 137, reason="OOMKilled"), True),
        (ended("build", 137, "Loading weights 40%\nKilled"), False),
        (ended("build", 1, "Loading weights 40%\nKilled"), False),
    ],
)
def test_c05_a_build_killed_without_a_traceback_is_host_memory(end: dict[str, Any], certain: bool) -> None:
    made = after(pod(1, initContainerStatuses=[end]))
    stalled = condition(made, "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "HostMemoryExhausted"), "not tried again within 8Gi"
    assert "8Gi" in stalled["message"]
    assert ("most likely" in stalled["message"]) is not certain


def test_c06_gpu_memory_in_the_build_is_not_tried_again_unchanged() -> None:
    message = "trtllm-build: One allocation asked for 24793579520 bytes (23.09 GiB)."
    made = after(pod(1, initContainerStatuses=[ended("build", 64, told("GpuMemoryExhausted", message))]), seconds=9999)
    assert made.create == ()
    assert "23.09 GiB" in condition(made, "Stalled")["message"]


def test_c36_a_converter_s_traceback_is_its_failure_and_not_the_spec_s() -> None:
    message = "convert_checkpoint.py ended with exit status 1: IndexError: tuple index out of range"
    end = ended("build", 64, told("ToolFailed", message, log="  File x\nIndexError: tuple index out of range"))
    made = after(pod(1, initContainerStatuses=[end]))
    assert condition(made, "Ready")["reason"] == "ToolFailed"
    (record,) = made.status["attempts"]
    assert record["log"].endswith("IndexError: tuple index out of range")


def test_c59_a_crash_is_not_repeated() -> None:
    made = after(pod(1, initContainerStatuses=[ended("build", 139)]), seconds=9999)
    assert (made.create, condition(made, "Stalled")["reason"]) == ((), "Crashed")


def test_c62_a_refused_flag_is_never_tried_again() -> None:
    end = ended("build", 64, told("FlagRefused", "unrecognized arguments: --remove_input_padding"))
    made = after(pod(1, initContainerStatuses=[end]), seconds=9999)
    assert (made.create, condition(made, "Stalled")["reason"]) == ((), "FlagRefused")


def test_c82_shared_gpus_that_the_device_plugin_refuses_are_not_asked_for_again() -> None:
    refused = pod(1, reason="UnexpectedAdmissionError", message="maximum request size for shared resources is 1")
    made = after(refused, seconds=9999)
    assert (made.create, condition(made, "Stalled")["reason"]) == ((), "GpuRequestRefused")


def test_c85_a_taint_that_is_not_tolerated_is_named() -> None:
    tainted = {
        "metadata": {"name": "h100", "labels": {}},
        "spec": {"taints": [{"key": "team", "value": "research", "effect": "NoSchedule"}]},
    }
    pending = pod(1, conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}])
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(pending,), nodes=(tainted,)))
    assert "h100: taint team=research:NoSchedule is not tolerated" in condition(made, "Ready")["message"]


def test_c86_waiting_for_a_gpu_is_told_apart_from_starting_and_is_no_stall() -> None:
    why = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    pending = pod(1, conditions=[{"type": "PodScheduled", "status": "False", "message": why}])
    pending["spec"]["initContainers"][1]["resources"]["limits"]["nvidia.com/gpu"] = "2"
    node = {
        "metadata": {"name": "h100", "labels": {}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "memory": "1Ti"}},
    }
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(pending,), nodes=(node,)))
    ready = condition(made, "Ready")
    assert ready["reason"] == "WaitingForGpu"
    assert "2 nvidia.com/gpu on h100" in ready["message"]
    assert condition(made, "Stalled")["status"] == "False"


def test_c89_gpu_memory_that_an_ending_pod_of_ours_may_hold_is_waited_for_and_then_counts() -> None:
    message = "CUDA out of memory. Tried to allocate 2.00 GiB"
    oom = pod(1, initContainerStatuses=[ended("build", 64, told("GpuMemoryExhausted", message))])
    server: dict[str, Any] = {
        "metadata": {"name": "chat-h100-1-abc", "deletionTimestamp": stamp(20)},
        "spec": {
            "nodeName": "h100",
            "containers": [{"name": "triton", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        },
    }
    held = after(oom, ending=(server,))
    assert condition(held, "Stalled")["status"] == "False"
    assert condition(held, "Ready")["reason"] == "GpuMemoryHeld"
    assert "while Pod chat-h100-1-abc was ending on node h100" in condition(held, "Ready")["message"]
    artifact = {**engine_artifact(), "status": dict(held.status)}
    again = after(oom, artifact=artifact, now=NOW + timedelta(seconds=60))
    assert names(again.create)[-1] == "engine-1-2", "what was seen while it was ending stands when it is gone"
    elsewhere = {**server, "spec": {**server["spec"], "nodeName": "other"}}
    without_gpu = {**server, "spec": {"nodeName": "h100", "containers": [{"name": "publish"}]}}
    over = {**server, "status": {"phase": "Failed"}}  # as the attempt's own Pod is, when somebody deletes it
    for ending in ((), (elsewhere,), (without_gpu,), (over,)):
        assert condition(after(oom, seconds=9999, ending=ending), "Stalled")["reason"] == "GpuMemoryExhausted"


def test_c90_a_claim_that_another_node_has_is_named_as_the_cause() -> None:
    event = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) chat-h100-1-abc'
    hangs = pod(1, phase="Pending")
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(hangs,), observations=Observations(volume_events=event)))
    ready = condition(made, "Ready")
    assert ready["reason"] == "VolumeUnavailable"
    assert event in ready["message"]
    assert "use a ReadWriteMany claim" in ready["message"]
    assert condition(made, "Stalled")["status"] == "False", "it goes on once the claim is free"
    starts = pod(1, initContainerStatuses=[running("stage")])
    assert plan(
        snapshot(jobs=(job(1, POLICY),), pods=(starts,), observations=Observations(volume_events=event))
    ).status["phase"] == ("Running")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Back-off pulling image: unauthorized", "unauthorized"),
        ('no match for platform in manifest: not found"', "spec.build.nodeSelector"),
    ],
)
def test_c93_an_image_that_cannot_be_pulled_is_said_at_once_and_recovers_by_itself(said: str, words: str) -> None:
    stuck = pod(1, initContainerStatuses=[waiting("stage", "ImagePullBackOff", said)])
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(stuck,)))
    assert condition(made, "Stalled")["reason"] == "ImagePullFailed"
    assert words in condition(made, "Stalled")["message"]
    pulled = pod(1, initContainerStatuses=[running("stage")])
    assert condition(plan(snapshot(jobs=(job(1, POLICY),), pods=(pulled,))), "Stalled")["status"] == "False"


def test_c94_a_refused_download_that_no_secret_opens_is_not_repeated_until_a_person_acts() -> None:
    refused = pod(1, containerStatuses=[ended("publish", 64, told("DownloadRefused", "HTTP 403: gated"))])
    made = after(refused, seconds=9999)
    assert (made.create, condition(made, "Stalled")["reason"]) == ((), "DownloadRefused")
    asked = engine_artifact()
    asked["metadata"]["annotations"] = {"llmengine.dev/retry": "1"}
    assert names(after(refused, artifact=asked).create)[-1] == "engine-1-2"


def with_token(**more: Any) -> dict[str, Any]:
    return {**engine_artifact(tokenSecretRef={"name": "hub-token"}), **more}


def seeing(named: str | None, pull: str | None = "p1", missing: tuple[str, ...] = ()) -> Secrets:
    return Secrets(named, pull, missing)


def made_with(number: int, secrets: Secrets, artifact: dict[str, Any], status: dict[str, Any] | None = None) -> Any:
    made = job(number, policy_of(artifact), status)
    made["metadata"]["annotations"] |= secrets.annotations()
    return made


@pytest.mark.parametrize("reason", ["DownloadRefused", "ModelNotFound", "StorageRefused"])
def test_c94_what_was_refused_is_tried_again_once_the_secret_has_changed(reason: str) -> None:
    artifact = with_token()
    refused = pod(1, containerStatuses=[ended("publish", 64, told(reason, "HTTP 401: the token is wrong"))])
    first = made_with(1, seeing("v1"), artifact, failed(9999))

    def then(secrets: Secrets, **seen: Any) -> Actions:
        return plan(snapshot(artifact=seen.pop("artifact", artifact), secrets=secrets, **seen))

    unchanged = then(seeing("v1", pull="p2"), jobs=(first,), pods=(refused,))
    assert (unchanged.create, condition(unchanged, "Stalled")["reason"]) == ((), reason)
    assert unchanged.again_seconds == 30, "a change is noticed within a minute"
    assert "once Secret hub-token changes" in condition(unchanged, "Stalled")["message"]
    assert unchanged.status["attemptSecrets"] == "v1"
    remembered = with_status(unchanged, artifact)
    again = then(seeing("v1"), artifact=remembered)
    assert (again.create, again.status) == ((), unchanged.status), "nothing is written at rest, the Job gone or not"
    corrected = then(seeing("v2"), artifact=remembered)
    assert names(corrected.create)[-1] == "engine-1-2"
    assert corrected.create[-1]["metadata"]["annotations"][SECRETS] == "v2"
    second = made_with(2, seeing("v2"), artifact, failed())
    still = pod(2, containerStatuses=[ended("publish", 64, told(reason, "HTTP 401: the token is wrong"))])
    refused_again = then(seeing("v2"), artifact=remembered, jobs=(second,), pods=(still,))
    assert (refused_again.create, refused_again.status["failureCounts"]) == ((), {reason: 1}), "counted anew"


def test_c94_an_attempt_that_recorded_no_secret_is_made_once_more_and_one_that_cannot_be_compared_is_not() -> None:
    """Of an operator that kept no record; and without the right to look."""
    artifact = with_token()
    refused = pod(1, containerStatuses=[ended("publish", 64, told("DownloadRefused"))])
    unrecorded = job(1, policy_of(artifact), failed(9999))
    seen = snapshot(artifact=artifact, jobs=(unrecorded,), pods=(refused,), secrets=seeing("v1"))
    assert names(plan(seen).create)[-1] == "engine-1-2"
    blind = plan(replace(seen, secrets=Secrets()))
    assert (blind.create, blind.again_seconds) == ((), None)
    assert "kubectl annotate eart engine-1 llmengine.dev/retry" in condition(blind, "Stalled")["message"]


def test_c94_a_changed_secret_is_no_reason_to_repeat_what_failed_otherwise() -> None:
    artifact = with_token()
    crashed = pod(1, initContainerStatuses=[ended("build", 139)])
    jobs = (made_with(1, seeing("v1"), artifact, failed(9999)),)
    made = plan(snapshot(artifact=artifact, jobs=jobs, pods=(crashed,), secrets=seeing("v2")))
    assert (made.create, made.again_seconds) == ((), None)


def test_c94_without_its_secret_no_attempt_begins() -> None:
    made = plan(snapshot(artifact=with_token(), secrets=seeing("v0", missing=("hub-token",))))
    assert (made.create, made.again_seconds) == ((), 30)
    assert condition(made, "Stalled")["reason"] == "SecretMissing"
    assert "Secret hub-token does not exist in namespace team" in condition(made, "Stalled")["message"]


def test_c94_a_missing_key_is_named_and_the_pod_made_anew_once_it_is_there() -> None:
    artifact = with_token()
    stuck = pod(1, initContainerStatuses=[waiting("stage", "PodInitializing")])
    stuck["spec"]["volumes"].append({"name": "token", "secret": {"secretName": "hub-token"}})
    word = 'MountVolume.SetUp failed for volume "token" : references non-existent secret key: token'
    jobs = (made_with(1, seeing("v1"), artifact),)

    def then(named: str) -> Actions:
        said = Observations(volume_events=word)
        return plan(snapshot(artifact=artifact, jobs=jobs, pods=(stuck,), secrets=seeing(named), observations=said))

    unchanged = then("v1")
    assert (unchanged.delete, unchanged.again_seconds) == ((), 30)
    assert condition(unchanged, "Stalled")["reason"] == "SecretMissing"
    assert "non-existent secret key: token" in condition(unchanged, "Stalled")["message"]
    assert "Secret hub-token" in condition(unchanged, "Stalled")["message"]
    corrected = then("v2")
    assert names(corrected.delete) == ["engine-1-1"]
    assert corrected.status["attempts"][0]["reason"] == "SecretChanged"
    after_that = plan(snapshot(artifact=with_status(corrected, artifact), secrets=seeing("v2")))
    assert names(after_that.create)[-1] == "engine-1-2", "at once"


def test_c93_an_attempt_whose_image_cannot_be_pulled_is_made_anew_with_other_pull_secrets() -> None:
    artifact = engine_artifact()
    stuck = pod(1, initContainerStatuses=[waiting("stage", "ImagePullBackOff", "unauthorized")])
    jobs = (made_with(1, seeing(None, "p1"), artifact),)
    unchanged = plan(snapshot(jobs=jobs, pods=(stuck,), secrets=seeing(None, "p1")))
    assert (unchanged.delete, unchanged.again_seconds) == ((), 30)
    changed = plan(snapshot(jobs=jobs, pods=(stuck,), secrets=seeing(None, "p2")))
    assert names(changed.delete) == ["engine-1-1"]
    pulled = pod(1, initContainerStatuses=[running("stage")])
    assert plan(snapshot(jobs=jobs, pods=(pulled,), secrets=seeing(None, "p2"))).delete == (), "not once it runs"


def test_c93_a_pod_that_never_started_within_its_deadline_is_waited_for_again() -> None:
    late = pod(1, reason="DeadlineExceeded", initContainerStatuses=[waiting("stage", "ImagePullBackOff")])
    late["spec"]["activeDeadlineSeconds"] = 3600
    made = after(late, seconds=11)
    assert names(made.create)[-1] == "engine-1-2"
    assert made.status["attempts"][0]["reason"] == "NeverStarted"
    ran = pod(1, reason="DeadlineExceeded", initContainerStatuses=[running("stage")])
    assert condition(after(ran, seconds=11), "Stalled")["reason"] == "DeadlineExceeded"


def test_c95_a_rate_limit_waits_as_asked_and_uses_up_no_attempt() -> None:
    limited = pod(1, containerStatuses=[ended("publish", 75, told("HubRateLimited", "429", retryAfterSeconds=100))])
    once = engine_artifact(maxAttempts=1)

    def seconds_after(seconds: int) -> Actions:
        return plan(snapshot(artifact=once, jobs=(job(1, policy_of(once), failed(seconds)),), pods=(limited,)))

    early = seconds_after(60)
    assert (early.create, condition(early, "Stalled")["status"]) == ((), "False")
    assert early.again_seconds == pytest.approx(40)
    late = seconds_after(101)
    assert names(late.create)[-1] == "engine-1-2", "maxAttempts 1 is for what the build itself does wrong"


def test_c97_eviction_for_disk_is_tried_elsewhere_a_few_times() -> None:
    def evicted(count: int) -> Actions:
        pods = tuple(
            {
                **(p := pod(1, phase="Failed", reason="Evicted", message="low on resource: ephemeral-storage")),
                "metadata": {**p["metadata"], "name": f"p{n}", "creationTimestamp": stamp(100 - n)},
            }
            for n in range(count)
        )
        return plan(snapshot(jobs=(job(1, POLICY),), pods=pods))

    assert evicted(1).delete == (), "the Job controller replaces it"
    third = evicted(3)
    assert names(third.delete) == ["engine-1-1"], "and would for ever"
    assert third.status["attempts"][0]["reason"] == "DiskPressure"


def test_c97_its_own_limit_of_disk_ends_the_attempt_at_once() -> None:
    message = 'Usage of EmptyDir volume "scratch" exceeds the limit "4Gi".'
    first = plan(snapshot(jobs=(job(1, POLICY),), pods=(pod(1, phase="Failed", reason="Evicted", message=message),)))
    assert names(first.delete) == ["engine-1-1"]
    artifact = {**engine_artifact(), "status": dict(first.status)}
    again = plan(snapshot(artifact=artifact, jobs=(job(1, POLICY),), pods=()))
    assert again.create == (), "not before the Job is gone"
    assert names(plan(snapshot(artifact=artifact)).create)[-1] == "engine-1-2"


def test_c113_a_pod_that_is_not_there_yet_is_no_failure() -> None:
    made = plan(snapshot(jobs=(job(1, POLICY),)))
    assert (made.status["phase"], made.status["reason"]) == ("Pending", "PodNotCreated")
    assert condition(made, "Stalled")["status"] == "False"


def test_c114_the_reason_of_the_failure_is_said_while_it_is_tried_again_and_kept() -> None:
    artifact = engine_artifact(resources=None, planned={"hostMemoryBytes": 8 * 2**30})
    artifact["spec"]["policy"].pop("resources")
    policy = policy_of(artifact)
    oom = pod(1, initContainerStatuses=[ended("build", 137, reason="OOMKilled")])
    first = plan(snapshot(artifact=artifact, jobs=(job(1, policy, failed()),), pods=(oom,)))
    assert (first.status["phase"], first.status["reason"]) == ("Pending", "HostMemoryExhausted")
    assert "12.0 GiB of memory" in condition(first, "Ready")["message"]
    vanished = plan(snapshot(artifact={**artifact, "status": dict(first.status)}, jobs=(job(1, policy, failed()),)))
    assert vanished.status["reason"] == "HostMemoryExhausted", "that the Pod is gone changes nothing"
    assert vanished.status["attempts"] == first.status["attempts"]


def test_a_quota_is_told_in_the_api_server_s_words() -> None:
    said = 'pods "engine-1-1-x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 0'
    made = plan(snapshot(jobs=(job(1, POLICY),), observations=Observations(job_events=said)))
    assert condition(made, "Ready")["reason"] == "QuotaExceeded"
    assert said in condition(made, "Ready")["message"]
    assert condition(made, "Stalled")["status"] == "False", "room may come by itself"


def test_a_pod_that_the_api_server_refuses_needs_a_person() -> None:
    said = 'pods "engine-1-1-x" is forbidden: violates PodSecurity "restricted:latest"'
    made = plan(snapshot(jobs=(job(1, POLICY),), observations=Observations(job_events=said)))
    assert condition(made, "Stalled")["reason"] == "PodRefused"


def test_a_node_that_stops_answering_does_not_hold_its_build_for_ever() -> None:
    stuck = pod(1, initContainerStatuses=[running("build")])
    stuck["metadata"]["deletionTimestamp"] = stamp(61)
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(stuck,)))
    assert names(made.delete) == ["engine-1-1"]
    assert made.status["attempts"][0]["reason"] == "NodeLost"
    leaving = pod(1, initContainerStatuses=[running("build")])
    leaving["metadata"]["deletionTimestamp"] = stamp(10)
    assert plan(snapshot(jobs=(job(1, POLICY),), pods=(leaving,))).delete == ()


def test_a_preempted_pod_is_replaced_in_its_attempt_and_that_is_said() -> None:
    target = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "by web"}]
    old, new = pod(1, phase="Failed", conditions=target), pod(1, initContainerStatuses=[running("build")])
    new["metadata"] = {**new["metadata"], "name": "second", "creationTimestamp": stamp(10)}
    made = plan(snapshot(jobs=(job(1, POLICY),), pods=(old, new)))
    assert made.status["phase"] == "Running"
    assert "its Pod before was ended" in condition(made, "Ready")["message"]
    assert "by web" in condition(made, "Ready")["message"]


def test_an_attempt_that_waits_is_replaced_when_its_policy_changes_and_one_that_runs_is_not() -> None:
    changed = engine_artifact(nodeSelector={"pool": "builds"})
    pending = pod(1, conditions=[{"type": "PodScheduled", "status": "False", "message": "no"}])
    made = plan(snapshot(artifact=changed, jobs=(job(1, POLICY),), pods=(pending,)))
    assert names(made.delete) == ["engine-1-1"]
    following = plan(snapshot(artifact={**changed, "status": dict(made.status)}))
    assert names(following.create)[-1] == "engine-1-2"
    busy = pod(1, initContainerStatuses=[running("build")])
    assert plan(snapshot(artifact=changed, jobs=(job(1, POLICY),), pods=(busy,))).delete == ()


def test_progress_is_said_in_steps_of_ten_percent() -> None:
    def said(done: int) -> str | None:
        log = json.dumps({"event": "downloading", "bytes": done, "totalBytes": 16_100_000_000})
        seen = snapshot(
            jobs=(job(1, POLICY),),
            pods=(pod(1, initContainerStatuses=[running("build")]),),
            observations=Observations(log=log),
        )
        return plan(seen).status.get("progress")

    assert said(12_900_000_000) == said(14_400_000_000) == "12.9 of 16.1 GB fetched (80%)"
    assert said(14_500_000_000) == "14.5 of 16.1 GB fetched (90%)"


def test_no_more_than_five_attempts_are_kept_and_all_are_counted() -> None:
    artifact = engine_artifact(maxAttempts=20)
    policy = policy_of(artifact)
    jobs = tuple(job(n, policy, failed()) for n in range(1, 9))
    pods = tuple(pod(n, initContainerStatuses=[ended("build", 3)]) for n in range(1, 9))
    made = plan(snapshot(artifact=artifact, jobs=jobs, pods=pods))
    assert [r["number"] for r in made.status["attempts"]] == [4, 5, 6, 7, 8]
    assert made.status["failureCounts"] == {"StepFailed": 8}
