"""EngineArtifact: one node of the build graph Model -> Checkpoint -> Engine, named by a hash of its inputs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .common import (
    NodePlacement,
    ResourceRequirements,
    S3Location,
    SecretKeyReference,
    SecretReference,
    StoreLocation,
)
from .conditions import Conditions
from .markers import Cel, ListMap, Name, Object, ShortString, Status

KIND = "EngineArtifact"
PLURAL = "engineartifacts"

ROOT_RULES = (
    Cel(
        "self.metadata.name.matches('^(model|checkpoint|engine)-[0-9a-f]{20}$') && "
        "self.metadata.name.startsWith(self.spec.type.lowerAscii() + '-')",
        message="an EngineArtifact is named after its type and 20 hexadecimal digits of the hash of its inputs, "
        "for example engine-0123456789abcdef0123; the operator makes it",
        field_path=".metadata.name",
    ),
)

DEFAULT_CPU_ARCHITECTURE = "amd64"
DEFAULT_GPU_RESOURCE = "nvidia.com/gpu"

ArtifactType = Literal["Model", "Checkpoint", "Engine"]
Phase = Literal["Pending", "Running", "Ready", "Failed"]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]
Limit = Annotated[int, Field(ge=1, le=16_777_216)]
Time = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


class PinnedHuggingFace(Object):
    """A repository of the hub at one commit."""

    repo: Annotated[str, Field(min_length=1, max_length=192)]
    """Name of the repository."""
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", max_length=40)]
    """The commit."""


class PinnedPersistentVolumeClaim(Object):
    """A directory on a claim, as it was when it was inspected."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""
    path: Annotated[str, Field(min_length=1, max_length=512)]
    """Directory relative to the root of the volume."""
    digest: Digest
    """Of the files' identity as inspected; a directory that has changed since is refused."""


class PinnedS3(S3Location):
    """Objects below a prefix of a bucket, as they were when they were inspected."""

    digest: Digest
    """Of the objects' identity as inspected; others are refused."""


@Cel(
    "(has(self.huggingFace) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.s3) ? 1 : 0) == 1",
    message="give exactly one of huggingFace, persistentVolumeClaim and s3",
)
class PinnedModel(Object):
    """A model source at exactly one content."""

    hugging_face: PinnedHuggingFace | None = None
    """A repository of the hub."""
    persistent_volume_claim: PinnedPersistentVolumeClaim | None = None
    """A directory on a claim."""
    s3: PinnedS3 | None = None
    """Objects of a bucket."""


class CalibrationSource(Object):
    """A directory of sample texts on a claim, as it was when it was inspected."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""
    path: Annotated[str, Field(min_length=1, max_length=512)]
    """Directory relative to the root of the volume."""
    digest: Digest | None = None
    """Of the names, sizes and contents of the texts; a build that finds others fails. Absent where an operator that did
    not inspect them has made the artifact."""


class GpuClass(Object):
    """What the engine is bound to: it is built and runs on GPUs of exactly this class."""

    product: Annotated[str, Field(min_length=1, max_length=63)]
    """The node label nvidia.com/gpu.product; of a MIG slice with a resource of its own, the label of that slice."""
    compute_capability: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$", max_length=8)]
    """Compute capability, for example 9.0."""
    cpu_architecture: Annotated[str, Field(pattern=r"^[a-z0-9]+$", max_length=16)] = DEFAULT_CPU_ARCHITECTURE
    """Of the nodes, as the label kubernetes.io/arch says it."""
    resource: Annotated[str, Field(pattern=r"^nvidia\.com/[a-zA-Z0-9.-]+$", max_length=80)] = DEFAULT_GPU_RESOURCE
    """What Pods ask for: nvidia.com/gpu, or nvidia.com/mig-... of slices that a node offers beside others."""


class Inputs(Object):
    """Everything the content depends on; the artifact's name is a hash of it."""

    key_schema: Literal[1] = 1
    """Version of the rule by which the name follows from the inputs."""
    model: PinnedModel | None = None
    """Source of the files, of a Model."""
    parent: Name | None = None
    """Artifact this one is made from."""
    image: Annotated[str | None, Field(max_length=512)] = None
    """Toolchain image, by digest."""
    command: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=128)] = ()
    """Effective command line; {parent} and {output} stand for the mounted directories."""
    gpu: GpuClass | None = None
    """GPU that an Engine is built on and for."""
    storage: StoreLocation
    """Where the artifact is kept."""
    calibration: CalibrationSource | None = None
    """Texts on a claim that a Checkpoint is calibrated with."""


class Expectation(Object):
    """What verification must find in what was made; it follows from the inputs and is not hashed."""

    release: Annotated[str, Field(max_length=32)]
    """TensorRT-LLM release."""
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks over which each layer is split."""
    pipeline_parallel: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks over which the layers are spread."""
    dtype: ShortString | None = None
    """Type of weights that are not quantized."""
    quant_algo: ShortString | None = None
    """Quantization of the weights, in TensorRT-LLM's own words."""
    kv_cache_quant_algo: ShortString | None = None
    """Quantization of the KV cache, in TensorRT-LLM's own words."""
    max_batch_size: Limit | None = None
    """Sequences in flight at once."""
    max_input_len: Limit | None = None
    """Longest prompt in tokens."""
    max_seq_len: Limit | None = None
    """Longest prompt and answer in tokens."""
    max_num_tokens: Limit | None = None
    """Tokens processed in one step."""
    max_beam_width: Limit | None = None
    """Beams of beam search."""


class PlannedResources(Object):
    """What the planner computed for the container that does the work; grows when an attempt runs out of it."""

    host_memory_bytes: Annotated[int | None, Field(ge=0)] = None
    """Host memory, requested and limited alike."""
    ephemeral_storage_bytes: Annotated[int | None, Field(ge=0)] = None
    """Files it needs on its node's disk: what it makes, before it is published, and what was brought there for it."""
    shared_memory_bytes: Annotated[int | None, Field(ge=0)] = None
    """Size of /dev/shm."""


class Policy(NodePlacement):
    """How it is built. A change opens a new attempt for what failed."""

    resources: ResourceRequirements | None = None
    """Of the container that does the work."""
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """GPUs of the container that does the work."""
    timeout_seconds: Annotated[int, Field(ge=1, le=604_800)] = 3600
    """Longest run of one attempt."""
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3
    """Attempts before it is given up."""
    token_secret_ref: SecretKeyReference | None = None
    """Token for the model's source."""
    model_secret_ref: SecretReference | None = None
    """Credentials of the bucket that the model comes from."""
    store_secret_ref: SecretReference | None = None
    """Credentials of the bucket that the artifact is kept in."""
    planned: PlannedResources | None = None
    """What was computed of the build; `resources` stand above it."""
    gpu_product: Annotated[str | None, Field(max_length=63)] = None
    """Node label nvidia.com/gpu.product of a step that needs GPUs and is not bound to a class."""
    scale_from_zero: bool = False
    """The Job is made although no node has its GPU, for an autoscaler that adds one."""
    priority_class_name: Name | None = None
    """PriorityClass of the Pods."""
    queue_name: Name | None = None
    """Kueue LocalQueue that admits the Jobs."""


@Cel(
    "self.type == 'Model' ? has(self.inputs.model) : has(self.inputs.parent)",
    message="a Model has inputs.model, a Checkpoint or Engine has inputs.parent",
)
@Cel(
    "self.type == 'Engine' ? has(self.inputs.gpu) : !has(self.inputs.gpu)",
    message="an Engine has inputs.gpu, a Model or Checkpoint has not: it fits every GPU",
)
@Cel(
    "self.type == 'Model' || (has(self.inputs.image) && has(self.inputs.command))",
    message="a Checkpoint or Engine has inputs.image and inputs.command",
)
class EngineArtifactSpec(Object):
    """What it is made from, and how."""

    type: Annotated[ArtifactType, Cel("self == oldSelf", message="type is immutable")]
    """Model: the files of the model; Checkpoint: converted weights; Engine: what Triton loads."""
    inputs: Annotated[Inputs, Cel("self == oldSelf", message="inputs are immutable: another input is another artifact")]
    """Everything the content depends on; immutable."""
    expected: Annotated[
        Expectation | None, Cel("self == oldSelf", message="expected is immutable: it follows from the inputs")
    ] = None
    """What verification must find in what was made; immutable."""
    policy: Policy = Policy()
    """Of objects that earlier versions made. How an artifact is built is computed from the LLMEngines that need it."""


class Cleanup(NodePlacement):
    """How the files of an artifact are removed that no LLMEngine needs any more: as the last one had it built."""

    store_secret_ref: SecretReference | None = None
    """Credentials of the bucket that the artifact is kept in."""


class AttemptRecord(Status):
    """An attempt that has failed."""

    number: Annotated[int, Field(ge=1)]
    """Number of the attempt."""
    reason: ShortString
    """Why it failed, in one word; docs/failures.md lists them."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """Why it failed, with the numbers."""
    node_name: ShortString | None = None
    """Node it ran on."""
    start_time: Time | None = None
    """When it began."""
    end_time: Time | None = None
    """When it failed."""
    log: Annotated[str | None, Field(max_length=2048)] = None
    """Last lines of what failed."""
    retry_after_seconds: Annotated[int | None, Field(ge=0)] = None
    """Pause that the source of a download asked for."""


class Damage(Status):
    """The last time that a Pod found the artifact damaged or missing in the store."""

    check: Annotated[int, Field(ge=1)]
    """Number of the Job that reads every file of it, `<artifact>-check-<number>`."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """What was found, and by whom."""
    checked_time: Time | None = None
    """When that Job ended; absent while it goes on."""
    unfit: bool | None = None
    """A server found that it is not what its record says: that Job takes it away without reading it."""
    whole: bool | None = None
    """Whether it found the artifact whole; else it has taken it away, and the artifact is built again."""
    removed_time: Time | None = None
    """When a damaged copy was last taken away."""
    attempt: Annotated[int, Field(ge=0)] = 0
    """The last attempt before that; later ones build the artifact again."""
    given_up_policy: Annotated[str | None, Field(max_length=64)] = None
    """Hash of the policy under which it is not built again by itself, as this was the second damage within a day."""


class EngineArtifactStatus(Status):
    """Where the build stands and what came out of it."""

    observed_generation: Annotated[int, Field(ge=-1)] = -1
    """metadata.generation that the status speaks of; -1 is that nobody has looked yet."""
    conditions: Conditions = ()
    """Ready, and Reconciling or Stalled."""
    phase: Phase | None = None
    """Where it stands, in one word."""
    reason: Annotated[str | None, Field(max_length=1024)] = None
    """Why it is in that phase, in one word."""
    attempt: Annotated[int | None, Field(ge=0)] = None
    """Number of the current or last attempt, from 1."""
    attempt_policy: Annotated[str | None, Field(max_length=64)] = None
    """Hash of the policy that attempt ran under; another policy opens another attempt."""
    attempt_secrets: Annotated[str | None, Field(max_length=64)] = None
    """Digest of the versions of the Secrets that attempt was made with; where one was at fault, others open another."""
    built_for: ShortString | None = None
    """LLMEngine whose build policy the current or last attempt has."""
    given_up: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=32)] = ()
    """Policies, and versions of the Secrets they name, under which a person would have to act."""
    cleanup: Cleanup | None = None
    """How its files are removed once no LLMEngine needs it."""
    attempts: Annotated[tuple[AttemptRecord, ...], Field(max_length=5), ListMap("number")] = ()
    """The last attempts that failed, oldest first."""
    failure_counts: Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(max_length=64)] = {}
    """Failures under the current policy, by reason."""
    damage: Damage | None = None
    """What became of the last report that the store's copy is damaged."""
    progress: Annotated[str | None, Field(max_length=128)] = None
    """How far the step that runs is."""
    job_name: ShortString | None = None
    """Job of that attempt."""
    node_name: ShortString | None = None
    """Node it ran on."""
    gpu: ShortString | None = None
    """Name of the GPU the build saw."""
    start_time: Time | None = None
    """When the attempt began."""
    completion_time: Time | None = None
    """When the attempt ended."""
    duration_seconds: Annotated[int | None, Field(ge=0)] = None
    """Time the build took."""
    size_bytes: Annotated[int | None, Field(ge=0)] = None
    """Size of the files."""
    manifest_digest: Digest | None = None
    """SHA-256 of manifest.json, which names every file with size and SHA-256."""
    peak_host_memory_bytes: Annotated[int | None, Field(ge=0)] = None
    """Most host memory the build had in use."""
