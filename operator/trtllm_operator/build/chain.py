"""From what the user asks for to the three artefacts that make it: Model -> Checkpoint -> Engine."""

from __future__ import annotations

from collections.abc import Mapping

from ..api.common import ResourceRequirements
from ..api.engineartifact import (
    ArtifactType,
    EngineArtifactSpec,
    GpuClass,
    Inputs,
    PinnedHuggingFace,
    PinnedModel,
    PinnedPersistentVolumeClaim,
    Policy,
)
from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from ..objects import Artifact
from ..planning.commands import build_command, checkpoint_step, expectation
from ..planning.keys import artifact_name
from ..planning.model import ModelFacts

TRANSFER_BYTES_PER_SECOND = 20_000_000
"""A slow connection or volume: what an attempt's deadline allows for."""
BASE_SECONDS = 1800


def pin(spec: LLMEngineSpec, revision: str) -> PinnedModel:
    """The model source at the commit, or the content digest of a claim, that the inspection found."""
    if hub := spec.model.hugging_face:
        return PinnedModel(hugging_face=PinnedHuggingFace(repo=hub.repo, commit=revision))
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
) -> tuple[Artifact, Artifact, Artifact]:
    """Model, Checkpoint, Engine, with their inputs alone; `policy` says how each is built.

    `image` is the toolchain image by digest.
    """
    storage = spec.storage

    def artifact(type_: ArtifactType, inputs: Inputs, gpus: int = 0) -> Artifact:
        wanted = None if type_ == "Model" else expectation(spec, facts, release, engine=type_ == "Engine")
        made = EngineArtifactSpec(type=type_, inputs=inputs, expected=wanted, policy=Policy(gpus=gpus))
        return Artifact(artifact_name(type_, inputs), made)

    model = artifact("Model", Inputs(model=pin(spec, revision), storage=storage))
    step = checkpoint_step(spec, facts, release)
    checkpoint = artifact(
        "Checkpoint",
        Inputs(parent=model.name, image=image, command=step.command, storage=storage),
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


def policy(spec: LLMEngineSpec, artifact: EngineArtifactSpec, numbers: Mapping[str, int]) -> Policy:
    """How the artefact is built, as the spec says now. `numbers` are the plan's (`serving.revision.Revision.plan`)."""
    hub, build = spec.model.hugging_face, spec.build
    is_model = artifact.type == "Model"
    planned = None if is_model else _memory(numbers[f"{artifact.type.lower()}HostMemoryBytes"])
    return Policy(
        node_selector=build.node_selector,
        tolerations=build.tolerations,
        resources=None if is_model else build.resources or planned,
        gpus=artifact.policy.gpus,
        timeout_seconds=build.timeout_seconds or BASE_SECONDS + numbers["modelBytes"] // TRANSFER_BYTES_PER_SECOND,
        max_attempts=build.max_attempts,
        token_secret_ref=hub.token_secret_ref if hub and is_model else None,
    )


def _memory(host_memory_bytes: int) -> ResourceRequirements:
    """Memory as planned, requested and limited alike: a build beyond its plan ends at once and says so."""
    mebibytes = f"{-(-host_memory_bytes // 2**20)}Mi"
    return ResourceRequirements(requests={"cpu": "1", "memory": mebibytes}, limits={"memory": mebibytes})
