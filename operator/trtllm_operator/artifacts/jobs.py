"""The Job of one attempt, for each kind of artifact. A Job is created once and never applied again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..api.common import PersistentVolumeClaimDirectory
from ..api.engineartifact import CalibrationSource, EngineArtifactSpec, PinnedModel, Policy
from ..api.llmengine import ModelSource
from ..objects import (
    ARTIFACT,
    ATTEMPT,
    AWAY_FROM_GPUS,
    CONTAINER_SECURITY,
    MANAGED,
    POD_SECURITY,
    POLICY_HASH,
    PRODUCT_LABEL,
    RETRY,
    SCRATCH,
    Obj,
    annotation,
    env,
    gpu_affinity,
    owner_reference,
    short_hash,
    tolerations,
)
from ..operator_config import OperatorConfig
from ..planning.commands import reads_texts
from ..storage import access, secret_volume, step_mounts, volumes, work_mounts
from .attempt import QUEUE_LABEL
from .history import History
from .job_resources import (
    SHARED_MEMORY_BYTES,
    STEP_RESOURCES,
    ask_for_scratch,
    give_steps_memory,
    mebibytes,
    size_volumes,
    work_resources,
)
from .secrets import UNKNOWN, Secrets

TOKEN_PATH = "/var/run/secrets/llmengine/token"  # noqa: S105 (a path)
MODEL_SOURCE = "/model"
MODEL_CREDENTIALS = "/var/run/secrets/llmengine/model"
CALIBRATION = "/calibration"
WAITING_SECONDS = 86_400
"""How long an attempt may wait for a node before another one takes its place."""
KEEP_RUNNING = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Keeps autoscalers from ending a build to save a node."""
KEEP_FINISHED_SECONDS = 86_400
"""What a Job did is in the artifact's status long before; its log stays readable for a day."""


def policy_hash(artifact: Obj, policy: Policy) -> str:
    """Changes when the policy does or when a person asks for another attempt with the retry annotation."""
    return short_hash([policy.dump(), annotation(artifact, RETRY)])


def attempt_job(
    artifact: Obj,
    spec: EngineArtifactSpec,
    number: int,
    *,
    config: OperatorConfig,
    runner: str,
    past: History,
    parent: Obj | None = None,
    model: Obj | None = None,
    trial: Sequence[str] = (),
    secrets: Secrets = UNKNOWN,
) -> dict[str, Any]:
    """The Job of attempt `number` (from 1). `runner` is the name of the runner's ConfigMap in the namespace, `past` the
    attempts before, `parent` the artifact that this one is made from, `model` the one whose tokenizer `trial` takes,
    which is the command that tries what was made; `secrets` are those that it depends on."""
    name = artifact["metadata"]["name"]
    labels = {MANAGED: "true", ARTIFACT: name, ATTEMPT: str(number)}
    if spec.type == "Model":
        pod = _model_pod(name, spec, config, past)
    else:
        pod = _toolchain_pod(name, spec, config, runner, past, [a for a in (parent, model) if a], trial)
    give_steps_memory(pod, past)
    ask_for_scratch(pod, spec, past)
    queue = {QUEUE_LABEL: spec.policy.queue_name} if spec.policy.queue_name else {}
    job = owned_job(
        artifact,
        f"{name}-{number}",
        labels,
        pod,
        spec.policy.timeout_seconds,
        annotations={POLICY_HASH: policy_hash(artifact, spec.policy), **secrets.annotations()},
    )
    job["metadata"]["labels"] = {**labels, **queue}
    return job


def owned_job(
    owner: Obj,
    name: str,
    labels: Mapping[str, str],
    pod: Mapping[str, Any],
    timeout_seconds: int,
    *,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A Job in its owner's namespace that goes with it; Job and Pod carry `labels`."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": dict(labels),
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": job_spec(labels, pod, timeout_seconds),
    }


def job_spec(labels: Mapping[str, str], pod: Mapping[str, Any], timeout_seconds: int) -> dict[str, Any]:
    """A Job of one Pod that is not tried again by the Job controller, but replaced when the cluster ends it.

    The Pod's own deadline counts from when a node has taken it: waiting for a GPU is no failure. The Job's lies a day
    beyond.
    """
    template = {
        "metadata": {"labels": dict(labels), "annotations": KEEP_RUNNING},
        "spec": {**pod, "activeDeadlineSeconds": timeout_seconds},
    }
    return {
        "backoffLimit": 0,
        "activeDeadlineSeconds": timeout_seconds + WAITING_SECONDS,
        "ttlSecondsAfterFinished": KEEP_FINISHED_SECONDS,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": template,
    }


def step_container(
    name: str, step: str, spec: Mapping[str, Any], config: OperatorConfig, volume_mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """A container of the operator's own image that runs one CPU step."""
    out: dict[str, Any] = {
        "name": name,
        "image": config.operator_image,
        "imagePullPolicy": config.image_pull_policy,
        "command": ["python3", "-m", "trtllm_operator.steps", step, "--spec", json.dumps(spec, sort_keys=True)],
        "resources": STEP_RESOURCES,
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": volume_mounts,
    }
    if step == "publish":
        out["env"] = [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    return out


def base_pod(placement: Policy, volumes_: list[dict[str, Any]], *, gpu: bool = False) -> dict[str, Any]:
    """What every Pod of a Job has: restricted, without a token of the API server, never restarted in place."""
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "volumes": volumes_,
    }
    if not gpu:
        pod["affinity"] = AWAY_FROM_GPUS
    if placement.priority_class_name:
        pod["priorityClassName"] = placement.priority_class_name
    if placement.node_selector:
        pod["nodeSelector"] = dict(placement.node_selector)
    if tolerated := tolerations(placement, gpu=gpu):
        pod["tolerations"] = tolerated
    return pod


def with_model_source(
    pod: dict[str, Any],
    container: dict[str, Any],
    policy: Policy,
    model: ModelSource | PinnedModel,
    config: OperatorConfig,
) -> None:
    """Gives a container what reaching the model takes: its claim, the hub's endpoint and a token file, or the
    credentials of its bucket."""
    if claim := model.persistent_volume_claim:
        pod["volumes"].append({"name": "model", "persistentVolumeClaim": {"claimName": claim.claim_name}})
        container["volumeMounts"].append({"name": "model", "mountPath": MODEL_SOURCE, "readOnly": True})
        return
    if model.s3:
        if policy.model_secret_ref:
            pod["volumes"].append(secret_volume("model-credentials", policy.model_secret_ref.name))
            mount = {"name": "model-credentials", "mountPath": MODEL_CREDENTIALS, "readOnly": True}
            container["volumeMounts"].append(mount)
        return
    values = {"HF_HOME": f"{SCRATCH}/hf", "HF_HUB_DISABLE_TELEMETRY": "1"}
    if config.hub_endpoint:
        values["HF_ENDPOINT"] = config.hub_endpoint
    if secret := policy.token_secret_ref:
        values["HF_TOKEN_PATH"] = TOKEN_PATH
        token = secret_volume("token", secret.name)
        token["secret"]["items"] = [{"key": secret.key, "path": "token"}]
        pod["volumes"].append(token)
        container["volumeMounts"].append(
            {"name": "token", "mountPath": TOKEN_PATH.rpartition("/")[0], "readOnly": True}
        )
    container["env"] = container.get("env", []) + env(values)


def source_arguments(policy: Policy) -> dict[str, str]:
    """Where a step that reads a model finds it, or what opens it."""
    return {"root": MODEL_SOURCE, **({"credentials": MODEL_CREDENTIALS} if policy.model_secret_ref else {})}


def texts_arguments(texts: CalibrationSource | PersistentVolumeClaimDirectory) -> dict[str, str]:
    """The texts of a calibration as a step's arguments name them."""
    return {**texts.dump(), "root": CALIBRATION}


def mount_texts(pod: dict[str, Any], mounts: list[dict[str, Any]], claim_name: str) -> None:
    """Lets a container of the operator's own image read a claim with texts."""
    pod["volumes"].append({"name": "calibration", "persistentVolumeClaim": {"claimName": claim_name}})
    mounts.append({"name": "calibration", "mountPath": CALIBRATION, "readOnly": True})


def manifest_digests(artifacts: Iterable[Obj]) -> dict[str, str]:
    """What publication recorded of artifacts, by name: whoever reads one compares its manifest with that."""
    known = ((a["metadata"]["name"], (a.get("status") or {}).get("manifestDigest")) for a in artifacts)
    return {name: digest for name, digest in known if digest}


def _model_pod(name: str, spec: EngineArtifactSpec, config: OperatorConfig, past: History) -> dict[str, Any]:
    pinned, store = spec.inputs.model, access(spec)
    assert pinned is not None
    pod = base_pod(spec.policy, volumes(store))
    fetch = {
        "artifact": name,
        "inputs": spec.inputs.dump(),
        "model": pinned.dump(),
        "store": store.argument,
        **source_arguments(spec.policy),
        "scratch": SCRATCH,
    }
    container = step_container("fetch", "fetch", fetch, config, step_mounts(store, writable=True))
    with_model_source(pod, container, spec.policy, pinned, config)
    pod["containers"] = [container]
    size_volumes(pod, spec, past)
    return pod


def _toolchain_pod(
    name: str,
    spec: EngineArtifactSpec,
    config: OperatorConfig,
    runner: str,
    past: History,
    read: Sequence[Obj],
    trial: Sequence[str],
) -> dict[str, Any]:
    """`read` are the artifact that this one is made from, and the model of that where it is another one."""
    inputs, gpus, store = spec.inputs, spec.policy.gpus, access(spec)
    pod = base_pod(
        spec.policy, volumes(store, runner=runner, shared_memory=mebibytes(SHARED_MEMORY_BYTES)), gpu=gpus > 0
    )
    size_volumes(pod, spec, past)
    if inputs.gpu:
        pod["affinity"] = gpu_affinity(inputs.gpu)
    elif gpus and spec.policy.gpu_product:
        pod["affinity"] = _product_affinity(spec.policy.gpu_product)
    verb, workers = ("build", gpus) if spec.type == "Engine" else ("convert", 1)
    where = {"artifact": name, "store": store.argument, "scratch": SCRATCH}
    stage: dict[str, Any] = {**where, "parent": inputs.parent}
    staged = step_mounts(store)
    calibrated = reads_texts(inputs.command)
    if calibrated and inputs.calibration:
        stage["calibration"] = texts_arguments(inputs.calibration)
        mount_texts(pod, staged, inputs.calibration.claim_name)
    elif calibrated:
        stage["texts"] = True
    model = read[0]["spec"].get("inputs", {}).get("parent") if read else None
    if model:
        stage["model"] = model
    digests = manifest_digests(read)
    stage["digests"] = digests
    run = {
        "artifact": name,
        "command": list(_with_workers(inputs.command, workers)),
        "parent": f"{store.directory}/{inputs.parent}",
        "output": f"{SCRATCH}/output",
        # A copy that was brought from a bucket has a manifest of its own; `stage` has compared the original.
        "digests": {} if inputs.storage.s3 else digests,
        "expected": spec.expected.dump() if spec.expected else {},
        "trial": list(trial),
        "gpu": inputs.gpu.dump() if inputs.gpu else None,
        "gpus": gpus,
        **({"model": f"{store.directory}/{model}"} if model else {}),
        **({"calibration": f"{SCRATCH}/calibration"} if calibrated else {}),
    }
    publish = {**where, "type": spec.type, "inputs": inputs.dump()}
    pod["initContainers"] = [
        step_container("stage", "stage", stage, config, staged),
        {
            "name": verb,
            "image": inputs.image,
            "imagePullPolicy": config.image_pull_policy,
            "command": ["python3", "/opt/llmengine/runner.pyz", verb, "--spec", json.dumps(run, sort_keys=True)],
            "workingDir": SCRATCH,
            "env": env({"HOME": SCRATCH, "HF_HUB_OFFLINE": "1"}),
            "resources": work_resources(spec, past),
            "securityContext": CONTAINER_SECURITY,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": work_mounts(store),
        },
    ]
    pod["containers"] = [step_container("publish", "publish", publish, config, step_mounts(store, writable=True))]
    return pod


def _product_affinity(product: str) -> dict[str, Any]:
    """For a step that needs a GPU and is bound to no class: those its number of GPUs was computed for."""
    expressions = [{"key": PRODUCT_LABEL, "operator": "In", "values": [product]}]
    terms = [{"matchExpressions": expressions}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _with_workers(command: tuple[str, ...], workers: int) -> tuple[str, ...]:
    """As many ranks built at once as there are GPUs: how an engine is built, and so no part of its key. A conversion
    has one worker whatever its GPUs: each would load the model again."""
    if "--workers" not in command or workers < 2:
        return command
    at = command.index("--workers") + 1
    return (*command[:at], str(workers), *command[at + 1 :])
