"""What the Job of an attempt asks for: as planned, as the user says, and more after running out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trtllm_operator.api.common import PersistentVolumeClaimDirectory
from trtllm_operator.api.engineartifact import AttemptRecord, EngineArtifactSpec
from trtllm_operator.api.llmengine import LLMEngineSpec
from trtllm_operator.artifacts.diagnosis import STEPS
from trtllm_operator.artifacts.history import History
from trtllm_operator.artifacts.inspection import inspection_job, texts_inspection_job
from trtllm_operator.artifacts.jobs import attempt_job

from .world import CONFIG, engine_artifact

GIB = 1 << 30
PLANNED = {"hostMemoryBytes": 8 * GIB, "ephemeralStorageBytes": 4 * GIB, "sharedMemoryBytes": GIB}
NOTHING = History((), {})


def job(past: History = NOTHING, **policy: Any) -> dict[str, Any]:
    artifact = engine_artifact(**{"planned": PLANNED, "resources": None, **policy})
    artifact["spec"]["policy"] = {k: v for k, v in artifact["spec"]["policy"].items() if v is not None}
    spec = EngineArtifactSpec.model_validate(artifact["spec"])
    parent = {"metadata": {"name": "checkpoint-1"}, "spec": {"inputs": {"parent": "model-1"}}}
    return attempt_job(artifact, spec, 1, config=CONFIG, runner="runner", past=past, parent=parent)


def pod(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["spec"]["template"]["spec"]
    return found


def container(made: dict[str, Any], name: str) -> dict[str, Any]:
    spec = pod(made)
    found: dict[str, Any] = next(c for c in (*spec["initContainers"], *spec["containers"]) if c["name"] == name)
    return found


def after(reason: str, times: int = 1) -> History:
    return History((AttemptRecord(number=times, reason=reason),), {reason: times})


def test_memory_and_disk_are_as_planned_and_limited_where_more_would_hide_a_mistake() -> None:
    made = job()
    assert container(made, "build")["resources"] == {
        "requests": {"cpu": "1", "memory": "8192Mi", "ephemeral-storage": "4096Mi"},
        "limits": {"memory": "8192Mi", "nvidia.com/gpu": "1"},
    }
    sizes = {v["name"]: v["emptyDir"].get("sizeLimit") for v in pod(made)["volumes"] if "emptyDir" in v}
    assert sizes == {"scratch": "8192Mi", "shm": "1024Mi", "tmp": None}


@pytest.mark.parametrize(("times", "memory"), [(1, "12288Mi"), (2, "18432Mi")])
def test_an_attempt_that_ran_out_of_planned_memory_is_followed_by_a_bigger_one(times: int, memory: str) -> None:
    resources = container(job(after("HostMemoryExhausted", times)), "build")["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == (memory, memory)
    assert resources["requests"]["ephemeral-storage"] == "4096Mi", "what did not run out stays"


def test_a_step_of_the_operator_s_own_gets_more_too() -> None:
    assert container(job(), "publish")["resources"]["limits"]["memory"] == "1024Mi"
    assert container(job(after("StepMemoryExhausted")), "publish")["resources"]["limits"]["memory"] == "1536Mi"


def test_disk_that_did_not_suffice_grows_with_the_volume_s_limit() -> None:
    made = job(after("EphemeralStorageExhausted"))
    assert container(made, "build")["resources"]["requests"]["ephemeral-storage"] == "6144Mi"
    (scratch,) = (v for v in pod(made)["volumes"] if v["name"] == "scratch")
    assert scratch["emptyDir"]["sizeLimit"] == "12288Mi"


def test_what_the_user_gives_of_a_resource_stands_in_place_of_what_was_planned() -> None:
    made = job(after("HostMemoryExhausted"), resources={"limits": {"memory": "2Gi"}, "requests": {"cpu": "4"}})
    assert container(made, "build")["resources"] == {
        "requests": {"cpu": "4", "ephemeral-storage": "4096Mi"},
        "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"},
    }


def test_workers_have_a_gpu_each_and_are_told_to_the_command_alone() -> None:
    artifact = engine_artifact(gpus=4, planned=PLANNED)
    artifact["spec"]["inputs"]["command"] = ["trtllm-build", "--workers", "1", "--log_level", "info"]
    spec = EngineArtifactSpec.model_validate(artifact["spec"])
    made = attempt_job(artifact, spec, 1, config=CONFIG, runner="runner", past=NOTHING)
    build = container(made, "build")
    run = json.loads(build["command"][-1])
    assert run["command"] == ["trtllm-build", "--workers", "4", "--log_level", "info"]
    assert build["resources"]["limits"]["nvidia.com/gpu"] == "4"
    publish = json.loads(container(made, "publish")["command"][-1])
    assert publish["inputs"]["command"][2] == "1", "the manifest and the key know the one worker of every build"


def test_the_deadline_is_the_pod_s_and_waiting_for_a_node_does_not_count() -> None:
    made = job(timeoutSeconds=3600)
    assert pod(made)["activeDeadlineSeconds"] == 3600
    assert made["spec"]["activeDeadlineSeconds"] == 3600 + 86_400


def test_autoscalers_are_told_to_leave_builds_alone() -> None:
    assert job()["spec"]["template"]["metadata"]["annotations"] == {
        "karpenter.sh/do-not-disrupt": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }


def test_a_queue_admits_the_job_and_a_priority_class_orders_its_pods() -> None:
    made = job(queueName="gpu-builds", priorityClassName="low")
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpu-builds"
    assert pod(made)["priorityClassName"] == "low"
    assert "suspend" not in made["spec"], "Kueue's webhook suspends the Job itself"
    assert "kueue.x-k8s.io/queue-name" not in job()["metadata"]["labels"]


def test_disruptions_are_ignored_first_and_only_a_failed_pod_is_replaced() -> None:
    spec = job()["spec"]
    assert spec["podFailurePolicy"]["rules"][0] == {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    assert (spec["podReplacementPolicy"], spec["backoffLimit"]) == ("Failed", 0)


def test_what_dies_without_a_word_leaves_its_last_lines() -> None:
    spec = pod(job())
    for one in (*spec["initContainers"], *spec["containers"]):
        assert one["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_the_build_knows_the_model_whose_tokenizer_the_trial_takes() -> None:
    assert json.loads(container(job(), "build")["command"][-1])["model"] == "/store/model-1"


def checkpoint(**inputs: Any) -> dict[str, Any]:
    artifact = engine_artifact(gpus=2, gpuProduct="NVIDIA-H100-80GB-HBM3", planned=PLANNED)
    artifact["spec"]["type"] = "Checkpoint"
    del artifact["spec"]["inputs"]["gpu"]
    artifact["spec"]["inputs"] |= {"command": ["quantize.py", "--calib_dataset", "{calibration}/texts-1"], **inputs}
    spec = EngineArtifactSpec.model_validate(artifact["spec"])
    return attempt_job(artifact, spec, 1, config=CONFIG, runner="runner", past=NOTHING)


def test_a_conversion_on_several_gpus_has_one_worker_which_its_memory_is_planned_for() -> None:
    command = ["convert_checkpoint.py", "--int8_kv_cache", "--workers", "1"]
    made = checkpoint(command=command)
    convert = container(made, "convert")
    assert json.loads(convert["command"][-1])["command"] == command
    assert convert["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_a_calibration_runs_on_the_gpus_its_number_was_computed_for() -> None:
    made = checkpoint()
    assert container(made, "convert")["resources"]["limits"]["nvidia.com/gpu"] == "2"
    (term,) = pod(made)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"][0]["values"] == ["NVIDIA-H100-80GB-HBM3"]
    assert json.loads(container(made, "stage")["command"][-1])["texts"] is True
    assert json.loads(container(made, "convert")["command"][-1])["calibration"] == "/scratch/calibration"


def test_a_user_s_own_texts_are_mounted_where_they_are_compared_and_nowhere_else() -> None:
    source = {"claimName": "texts", "path": "chat", "digest": "a" * 64}
    made = checkpoint(calibration=source)
    volume = {"name": "calibration", "persistentVolumeClaim": {"claimName": "texts"}}
    assert volume in pod(made)["volumes"]
    mounts = {
        c["name"]: m
        for c in (*pod(made)["initContainers"], *pod(made)["containers"])
        for m in c["volumeMounts"]
        if m["name"] == "calibration"
    }
    assert mounts == {"stage": {"name": "calibration", "mountPath": "/calibration", "readOnly": True}}
    stage = json.loads(container(made, "stage")["command"][-1])
    assert stage["calibration"] == {**source, "root": "/calibration"}
    assert "texts" not in stage
    assert json.loads(container(made, "convert")["command"][-1])["calibration"] == "/scratch/calibration"


def test_the_inspection_of_a_user_s_texts_reads_their_claim_and_nothing_else() -> None:
    engine = {"metadata": {"name": "smol", "namespace": "team", "uid": "u"}, "apiVersion": "v", "kind": "LLMEngine"}
    texts = PersistentVolumeClaimDirectory(claim_name="texts", path="chat")
    spec = LLMEngineSpec.model_validate(
        {
            "model": {"huggingFace": {"repo": "org/model", "tokenSecretRef": {"name": "hub"}}},
            "release": "1.2.1",
            "budgets": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048},
            "targets": [{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}],
            "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
            "build": {"nodeSelector": {"pool": "builds"}},
        }
    )
    made = texts_inspection_job(engine, spec, texts, CONFIG)
    assert made["metadata"]["name"] != inspection_job(engine, spec, CONFIG)["metadata"]["name"]
    assert [v["name"] for v in pod(made)["volumes"]] == ["scratch", "tmp", "calibration"]
    assert pod(made)["nodeSelector"] == {"pool": "builds"}
    (step,) = pod(made)["containers"]
    assert step["name"] in STEPS, "its memory is the operator's to set"
    assert "nvidia.com" not in json.dumps(step["resources"])
    assert pod(made)["securityContext"]["runAsNonRoot"] is True
    assert step["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"name": "calibration", "mountPath": "/calibration", "readOnly": True} in step["volumeMounts"]
    assert step["command"][3] == "digest"
    arguments = {"claimName": "texts", "path": "chat", "root": "/calibration"}
    assert json.loads(step["command"][-1]) == arguments
