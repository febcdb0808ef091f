"""EngineArtifact: one node of the build graph Model -> Checkpoint -> Engine, named by a hash of its inputs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .common import NodePlacement, ResourceRequirements, SecretKeyReference, Storage
from .conditions import Condition
from .markers import Cel, ListMap, Name, Object, Status

KIND = "EngineArtifact"
PLURAL = "engineartifacts"

ArtifactType = Literal["Model", "Checkpoint", "Engine"]
Phase = Literal["Pending", "Running", "Ready", "Failed"]


class PinnedHuggingFace(Object):
    repo: Annotated[str, Field(max_length=192)]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class PinnedPersistentVolumeClaim(Object):
    claim_name: Name
    path: Annotated[str, Field(max_length=512)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Of the files' identity as inspected; a directory that has changed since is refused."""


class PinnedModel(Object):
    """A model source at exactly one content."""

    hugging_face: PinnedHuggingFace | None = None
    persistent_volume_claim: PinnedPersistentVolumeClaim | None = None


class GpuClass(Object):
    """What the engine is bound to."""

    product: Annotated[str, Field(max_length=63)]
    compute_capability: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")]


class Inputs(Object):
    """Everything the content depends on; the artefact's name is a hash of it."""

    key_schema: Literal[1] = 1
    model: PinnedModel | None = None
    parent: Name | None = None
    """Artefact this one is made from."""
    image: Annotated[str | None, Field(max_length=512)] = None
    """Toolchain image, by digest."""
    command: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=128)] = ()
    """Effective command line; {parent}, {model} and {output} stand for the mounted directories."""
    gpu: GpuClass | None = None
    storage: Storage


class Expectation(Object):
    """What verification must find in what was made; it follows from the inputs and is not hashed."""

    release: str
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    dtype: str | None = None
    quant_algo: str | None = None
    kv_cache_quant_algo: str | None = None
    max_batch_size: int | None = None
    max_input_len: int | None = None
    max_seq_len: int | None = None
    max_num_tokens: int | None = None
    max_beam_width: int | None = None


class Policy(NodePlacement):
    """How it is built. May change; a change opens a new attempt for what failed."""

    resources: ResourceRequirements | None = None
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    timeout_seconds: Annotated[int, Field(ge=1)] = 3600
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3
    token_secret_ref: SecretKeyReference | None = None


@Cel(
    "self.type == 'Model' ? has(self.inputs.model) : has(self.inputs.parent)",
    message="a Model has inputs.model, a Checkpoint or Engine has inputs.parent",
)
class EngineArtifactSpec(Object):
    type: Annotated[ArtifactType, Cel("self == oldSelf", message="type is immutable")]
    inputs: Annotated[Inputs, Cel("self == oldSelf", message="inputs are immutable: another input is another artefact")]
    expected: Expectation | None = None
    policy: Policy = Policy()


class EngineArtifactStatus(Status):
    observed_generation: int = -1
    conditions: Annotated[tuple[Condition, ...], ListMap("type")] = ()
    phase: Phase | None = None
    reason: str | None = None
    attempt: int | None = None
    """Number of the current or last attempt, from 1."""
    attempt_policy: str | None = None
    """Hash of the policy that attempt ran under: another policy opens another attempt."""
    job_name: str | None = None
    node_name: str | None = None
    gpu: str | None = None
    """Name of the GPU the build saw."""
    start_time: str | None = None
    completion_time: str | None = None
    duration_seconds: int | None = None
    size_bytes: int | None = None
    manifest_digest: str | None = None
    """SHA-256 of manifest.json, which names every file with size and SHA-256."""
    peak_host_memory_bytes: int | None = None
