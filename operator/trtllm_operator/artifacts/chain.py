"""From what the user asks for to the three artifacts that make it: Model -> Checkpoint -> Engine."""

from __future__ import annotations

from collections.abc import Mapping

from ..api.common import PersistentVolumeClaimDirectory
from ..api.engineartifact import (
    DEFAULT_GPU_RESOURCE,
    ArtifactType,
    CalibrationSource,
    EngineArtifactSpec,
    GpuClass,
    Inputs,
    PinnedHuggingFace,
    PinnedModel,
    PinnedPersistentVolumeClaim,
    PinnedS3,
    PlannedResources,
    Policy,
)
from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from ..objects import Artifact
from ..planning.commands import build_command, checkpoint_step, expectation, reads_texts
from ..planning.keys import artifact_name
from ..planning.model import ModelFacts

TRANSFER_BYTES_PER_SECOND = 20_000_000
"""A slow connection or volume: what an attempt's deadline allows for."""
BASE_SECONDS = 1800
RANK_SECONDS = 900
"""Of one rank's build: published builds of up to 35 billion parameters took 2 to 5 minutes."""
CALIBRATION_SECONDS = 7200
"""AWQ takes tens of minutes (blogs/quantization-in-TRT-LLM.md)."""
OVERHEAD_BYTES = 256 << 20
FILES_AT_ONCE = 2
"""Files of a model that are on their way into a bucket at a time (steps/object_store.py)."""
SHARED_MEMORY_BYTES = 1 << 30
"""Of /dev/shm with several processes: NCCL fails with less (troubleshooting.md)."""
SMALL_SHARED_MEMORY_BYTES = 64 << 20


def pin(spec: LLMEngineSpec, revision: str) -> PinnedModel:
    """The model source at the commit, or the digest of what is in a claim or a bucket, that the inspection found."""
    if hub := spec.model.hugging_face:
        return PinnedModel(hugging_face=PinnedHuggingFace(repo=hub.repo, commit=revision))
    if s3 := spec.model.s3:
        return PinnedModel(s3=PinnedS3(**s3.model_dump(exclude={"credentials_secret_ref"}), digest=revision))
    claim = spec.model.persistent_volume_claim
    assert claim is not None
    return PinnedModel(
        persistent_volume_claim=PinnedPersistentVolumeClaim(
            claim_name=claim.claim_name, path=claim.path, digest=revision
        )
    )


def chain(
    spec: LLMEngineSpec,
    *,
    revision: str,
    facts: ModelFacts,
    release: Release,
    image: str,
    gpu: GpuClass,
    texts_digest: str | None = None,
) -> tuple[Artifact, Artifact, Artifact]:
    """Model, Checkpoint, Engine, with their inputs alone; `policy` says how each is built.

    `image` is the toolchain image by digest, `texts_digest` that of the texts that `calibration_texts` names.
    """
    storage, texts = spec.storage.location, calibration_texts(spec, facts, release)

    def artifact(type_: ArtifactType, inputs: Inputs, gpus: int = 0) -> Artifact:
        wanted = None if type_ == "Model" else expectation(spec, facts, release, engine=type_ == "Engine")
        made = EngineArtifactSpec(type=type_, inputs=inputs, expected=wanted, policy=Policy(gpus=gpus))
        return Artifact(artifact_name(type_, inputs), made)

    model = artifact("Model", Inputs(model=pin(spec, revision), storage=storage))
    step = checkpoint_step(spec, facts, release)
    checkpoint = artifact(
        "Checkpoint",
        Inputs(
            parent=model.name,
            image=image,
            command=step.command,
            storage=storage,
            calibration=CalibrationSource(claim_name=texts.claim_name, path=texts.path, digest=texts_digest)
            if texts
            else None,
        ),
        gpus=int(step.needs_gpu),
    )
    engine = artifact(
        "Engine",
        Inputs(
            parent=checkpoint.name,
            image=image,
            command=build_command(spec, facts, release),
            gpu=gpu,
            storage=storage,
        ),
        gpus=1,
    )
    return model, checkpoint, engine


def calibration_texts(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release
) -> PersistentVolumeClaimDirectory | None:
    """The user's own texts that the checkpoint is calibrated with, where it is calibrated and there are such."""
    dataset = spec.precision.calibration.dataset
    if dataset is None or not reads_texts(checkpoint_step(spec, facts, release).command):
        return None
    return dataset.persistent_volume_claim


def policy(spec: LLMEngineSpec, artifact: EngineArtifactSpec, numbers: Mapping[str, int], gpu: GpuClass) -> Policy:
    """How the artifact is built, as the spec says now. `numbers` are the plan's (`serving.revision.Revision.plan`),
    `gpu` is what the engine that needs it is built for."""
    hub, bucket, store, build = spec.model.hugging_face, spec.model.s3, spec.storage.s3, spec.build
    is_model = artifact.type == "Model"
    gpus = _gpus(spec, artifact, numbers)
    return Policy(
        node_selector=build.node_selector,
        tolerations=build.tolerations,
        resources=None if is_model else build.resources,
        planned=_passing_through(artifact, numbers) if is_model else _planned(artifact, numbers, max(gpus, 1)),
        gpus=gpus,
        gpu_product=gpu.product if gpus and not artifact.inputs.gpu and gpu.resource == DEFAULT_GPU_RESOURCE else None,
        timeout_seconds=build.timeout_seconds or _timeout_seconds(artifact, numbers),
        max_attempts=build.max_attempts,
        token_secret_ref=hub.token_secret_ref if hub and is_model else None,
        model_secret_ref=bucket.credentials_secret_ref if bucket and is_model else None,
        store_secret_ref=store.credentials_secret_ref if store else None,
        scale_from_zero=build.scale_from_zero,
        priority_class_name=build.priority_class_name,
        queue_name=build.queue_name,
    )


def _world_size(artifact: EngineArtifactSpec) -> int:
    expected = artifact.expected
    return expected.tensor_parallel * expected.pipeline_parallel if expected else 1


def _gpus(spec: LLMEngineSpec, artifact: EngineArtifactSpec, numbers: Mapping[str, int]) -> int:
    """One for each rank built at once; for calibration what holds the model unquantized and half as much again
    (examples/llama/README.md: 210 GB for a model of 140 GB)."""
    if artifact.type == "Engine":
        return min(spec.build.workers, _world_size(artifact))
    if not artifact.policy.gpus:
        return 0
    room = numbers.get("gpuMemoryBytes", 0) * 9 // 10
    needed = -(-numbers["modelBytes"] * 3 // (2 * room)) if room else 1
    return spec.build.calibration_gpus or max(needed, 1)


def _planned(artifact: EngineArtifactSpec, numbers: Mapping[str, int], workers: int) -> PlannedResources:
    """Each worker of a build is a process with a rank of its own. /dev/shm counts as memory of the container."""
    kind = artifact.type.lower()
    at_once = workers if artifact.type == "Engine" else 1
    shared_memory = SHARED_MEMORY_BYTES if _world_size(artifact) > 1 or workers > 1 else SMALL_SHARED_MEMORY_BYTES
    output = numbers.get(f"{kind}Bytes", numbers["modelBytes"])
    if artifact.inputs.calibration:
        output += numbers.get("calibrationBytes", 0)
    if artifact.inputs.storage.s3:
        output += numbers["modelBytes"] if artifact.type == "Checkpoint" else numbers["checkpointBytes"]
    return PlannedResources(
        host_memory_bytes=numbers[f"{kind}HostMemoryBytes"] * at_once + shared_memory,
        ephemeral_storage_bytes=output + output // 10 + OVERHEAD_BYTES,
        shared_memory_bytes=shared_memory,
    )


def _passing_through(artifact: EngineArtifactSpec, numbers: Mapping[str, int]) -> PlannedResources | None:
    """A model goes to a volume directly, and to a bucket a few files at a time."""
    if artifact.inputs.storage.s3 is None:
        return None
    file = numbers.get("modelLargestFileBytes", numbers["modelBytes"])
    return PlannedResources(ephemeral_storage_bytes=FILES_AT_ONCE * file + OVERHEAD_BYTES)


def _timeout_seconds(artifact: EngineArtifactSpec, numbers: Mapping[str, int]) -> int:
    """From the bytes that are read, written, copied and hashed, at the pace of a slow volume."""
    model = numbers["modelBytes"]
    checkpoint, engine = numbers.get("checkpointBytes", model), numbers.get("engineBytes", model)
    if artifact.type == "Model":
        return BASE_SECONDS + model // TRANSFER_BYTES_PER_SECOND
    if artifact.type == "Checkpoint":
        calibration = CALIBRATION_SECONDS if artifact.policy.gpus else 0
        return BASE_SECONDS + calibration + (model + 3 * checkpoint) // TRANSFER_BYTES_PER_SECOND
    return BASE_SECONDS + _world_size(artifact) * RANK_SECONDS + (checkpoint + 3 * engine) // TRANSFER_BYTES_PER_SECOND
