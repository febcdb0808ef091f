"""LLMEngine: the model, the precision and the limits a team wants served, and on which GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .build import Build
from .calibration import Calibration
from .common import (
    NodePlacement,
    PersistentVolumeClaimModel,
    ResourceRequirements,
    S3Model,
    SecretKeyReference,
    Storage,
    TargetName,
)
from .conditions import Conditions
from .fields import (
    BatchSize,
    BeamWidth,
    Dtype,
    GroupSize,
    KvCacheDtype,
    Percent,
    Quantization,
    QueueSize,
    Ranks,
    TokenCount,
)
from .front import Front
from .markers import Cel, Extension, ListMap, Object, ShortString, Status
from .overrides import BudgetsOverride, ParallelismOverride, PrecisionOverride, ServingOverride

KIND = "LLMEngine"
PLURAL = "llmengines"

MAX_NAME_LENGTH = 36
"""Of an LLMEngine: `<name>-<target>-<8 hex>` with a target of 16 fits the 63 characters of a label."""

ROOT_RULES = (
    Cel(
        f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        message=f"the name must be at most {MAX_NAME_LENGTH} characters: the names of Deployments and Services "
        "are made from it and the target's",
        field_path=".metadata.name",
    ),
    Cel(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message="the name must begin with a letter and hold lower-case letters, digits and '-' only: "
        "the names of Services are made from it",
        field_path=".metadata.name",
    ),
    Cel(
        f"self.spec.targets.all(t, has(t.gpu.product) || size(self.metadata.name) + size(t.name) <= {MAX_NAME_LENGTH})",
        message=f"the name and that of a target whose gpu is not a product must together be at most {MAX_NAME_LENGTH} "
        "characters: the GPU's name follows them in the names of Deployments and Services",
        field_path=".metadata.name",
    ),
)

Architecture = Literal["volta", "turing", "ampere", "ada-lovelace", "hopper", "blackwell", "rubin"]
"""As the label nvidia.com/gpu.family calls them, those that a release knows or may."""


class HuggingFaceModel(Object):
    """A model repository on the Hugging Face hub or a server with its routes."""

    repo: Annotated[
        str,
        Field(min_length=1, max_length=192, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$"),
        Cel("!self.contains('..') && !self.contains('--')", message="the hub allows neither '..' nor '--' in a name"),
    ]
    """Name of the repository, for example meta-llama/Llama-3.1-8B-Instruct."""
    revision: Annotated[
        str,
        Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"),
        Cel("!self.contains('..')", message="a revision has no '..' in it"),
    ] = "main"
    """Commit, tag or branch. A branch is resolved once, to the commit it then names; pin the commit to be exact."""
    token_secret_ref: SecretKeyReference | None = None
    """Token for a gated or private repository; a file where the model is inspected and fetched, and nowhere else."""


@Cel(
    "(has(self.huggingFace) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.s3) ? 1 : 0) == 1",
    message="give exactly one of huggingFace, persistentVolumeClaim and s3",
)
class ModelSource(Object):
    """Where the model comes from: exactly one source."""

    hugging_face: HuggingFaceModel | None = None
    """A repository of the Hugging Face hub."""
    persistent_volume_claim: PersistentVolumeClaimModel | None = None
    """A directory on a claim."""
    s3: S3Model | None = None
    """Objects of a bucket."""


class Precision(Object):
    """Number formats. What a GPU generation and a release cannot do is said in the condition Validated."""

    dtype: Dtype = "auto"
    """Type of the weights that are not quantized and of the activations; auto takes the checkpoint's own, and float16
    where that is float32."""
    quantization: Quantization = "none"
    """Format of the weights, by TensorRT-LLM's own name; none keeps them as dtype says."""
    kv_cache: KvCacheDtype = "auto"
    """Type of the KV cache; auto is the type of the activations."""
    group_size: GroupSize = 128
    """Elements that share a scale, of int4_awq and w4a8_awq: 64 where 128 does not divide the model's sizes."""
    calibration: Calibration = Calibration()
    """Calibration of formats that need it; others have nothing to do with it."""


@Cel(
    "(has(self.tensor) ? self.tensor : 1) * (has(self.pipeline) ? self.pipeline : 1) <= 64",
    message="tensor x pipeline must be at most 64: all GPUs of one server are in one node",
)
class Parallelism(Object):
    """How many GPUs of one node one server uses: tensor x pipeline."""

    tensor: Ranks = 1
    """GPUs over which each layer is split; must divide the model's attention heads."""
    pipeline: Ranks = 1
    """GPUs over which the layers are spread."""


@Cel(
    "self.maxInputLen < self.maxSeqLen",
    message="maxInputLen must be less than maxSeqLen: a sequence is the prompt and at least one generated token",
    field_path=".maxInputLen",
)
class Budgets(Object):
    """Limits compiled into the engine; a change of any of them rebuilds it."""

    max_batch_size: BatchSize
    """Sequences in flight at once."""
    max_input_len: TokenCount
    """Longest prompt, in tokens."""
    max_seq_len: TokenCount
    """Longest prompt and answer together, in tokens."""
    max_num_tokens: TokenCount
    """Tokens processed in one step over all sequences; without chunked context also a limit of the prompt."""
    max_beam_width: BeamWidth = 1
    """Beams of beam search; each takes the KV cache of one sequence."""


class AnyGpu(Object):
    """Every GPU; there is nothing to say about it."""


@Cel(
    "(has(self.product) ? 1 : 0) + (has(self.architecture) ? 1 : 0) + (has(self.computeCapability) ? 1 : 0) + "
    "(has(self.any) ? 1 : 0) == 1",
    message="give exactly one of product, architecture, computeCapability and any",
)
class GpuSelector(Object):
    """Which GPUs. An engine is built on a GPU of one class and runs on no other; all but product may stand for several
    classes, each of which gets an engine, servers and a Service of its own."""

    product: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=63)] = None
    """As the node label nvidia.com/gpu.product says it, for example NVIDIA-H100-80GB-HBM3."""
    architecture: Architecture | None = None
    """Every class of GPUs of this architecture that a node has and no target names more exactly."""
    compute_capability: Annotated[str | None, Field(pattern=r"^[0-9]{1,2}\.[0-9]$", max_length=4)] = None
    """Every class of GPUs of this compute capability, for example "9.0", that a node has and no target names."""
    any: AnyGpu | None = None
    """Every class of GPUs that a node has and no other target names."""


class Target(Object):
    """One GPU generation to build for and serve on."""

    name: TargetName
    """Name of the target. Its Service is called `<LLMEngine>--<target>`."""
    gpu: GpuSelector
    """The GPUs."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Servers to run; each takes tensor x pipeline GPUs."""
    precision: PrecisionOverride | None = None
    """Number formats of this target, where they differ from spec.precision."""
    parallelism: ParallelismOverride | None = None
    """GPUs of one server of this target, where they differ from spec.parallelism."""
    budgets: BudgetsOverride | None = None
    """Limits of this target's engine, where they differ from spec.budgets."""
    serving: ServingOverride | None = None
    """How Triton runs on this target, where it differs from spec.serving."""
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """Share of the endpoint's requests for each server of this target, among servers with the same limits."""


class Serving(NodePlacement):
    """How Triton runs. A change never rebuilds an engine."""

    kv_cache_free_gpu_memory_percent: Percent = 90
    """Share of the GPU memory that is free once the engine is loaded that the KV cache takes."""
    resources: ResourceRequirements | None = None
    """Of the server; by default its GPUs alone. Its /dev/shm is added to limits.memory, as it is charged to it."""
    max_queue_size: QueueSize = 0
    """Requests that may wait before further ones are refused with 503; 0 is no limit."""


class Rollout(Object):
    """How a new revision takes the place of what serves. A change of this changes nothing that runs."""

    strategy: Literal["BlueGreen", "Recreate"] = "BlueGreen"
    """BlueGreen starts new servers beside the old ones, which serve until all new ones are ready: their GPUs have to be
    free. Recreate does so too as long as GPUs are free; where none is, for the build or for new servers, old servers
    are stopped, one at a time, and with the last of them the target stops answering until the new ones are ready."""


@Cel(
    "self.targets.all(t, !has(t.budgets) || "
    "(has(t.budgets.maxInputLen) ? t.budgets.maxInputLen : self.budgets.maxInputLen) < "
    "(has(t.budgets.maxSeqLen) ? t.budgets.maxSeqLen : self.budgets.maxSeqLen))",
    message="a target's maxInputLen must be less than its maxSeqLen, each its own or that of spec.budgets",
    field_path=".targets",
)
@Cel(
    "self.targets.all(t, !has(t.parallelism) || "
    "(has(t.parallelism.tensor) ? t.parallelism.tensor : "
    "has(self.parallelism) && has(self.parallelism.tensor) ? self.parallelism.tensor : 1) * "
    "(has(t.parallelism.pipeline) ? t.parallelism.pipeline : "
    "has(self.parallelism) && has(self.parallelism.pipeline) ? self.parallelism.pipeline : 1) <= 64)",
    message="a target's tensor x pipeline must be at most 64, each its own or that of spec.parallelism",
    field_path=".targets",
)
@Cel(
    "self.targets.all(t, has(t.gpu.product) || self.targets.all(o, !o.name.startsWith(t.name + '-')))",
    message="no target's name may begin with that of a target whose gpu is not a product, and '-': "
    "the targets made for each GPU are called so",
    field_path=".targets",
)
class LLMEngineSpec(Object):
    """What is wanted."""

    model: ModelSource
    """The model to serve."""
    release: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?([a-z0-9.]*)$")]
    """TensorRT-LLM release that builds and serves, as the operator's catalog names it, for example 1.2.1."""
    precision: Precision = Precision()
    """Number formats of weights, activations and KV cache."""
    parallelism: Parallelism = Parallelism()
    """How many GPUs of one node one server uses."""
    budgets: Budgets
    """Limits compiled into the engine; a change of any of them rebuilds it, beside what serves."""
    targets: Annotated[tuple[Target, ...], Field(min_length=1, max_length=16), ListMap("name")]
    """GPU generations to build for and serve on; one engine is built for each."""
    build: Build = Build()
    """How build Jobs run. A change never rebuilds an engine that is made."""
    storage: Storage
    """Where models, checkpoints and engines are kept."""
    serving: Serving = Serving()
    """How Triton runs. A change never rebuilds an engine."""
    rollout: Rollout = Rollout()
    """How a new revision takes the place of what serves."""
    front: Front = Front()
    """The OpenAI endpoint, a Service with the LLMEngine's name."""


Count = Annotated[int, Field(ge=0)]


class ResolvedModel(Status):
    """What the inspection Job found in the model; the planner's whole knowledge of it."""

    source_hash: ShortString
    """Of the spec.model that was inspected: another source is inspected anew."""
    revision: ShortString
    """The commit, or a digest of the files' identity for a claim."""
    architecture: ShortString
    """Class of the model, as config.json names it."""
    largest_file_bytes: Count | None = None
    """The largest of its files: what a node holds at a time while they pass into a bucket."""
    end_token_ids: Annotated[tuple[Count, ...] | None, Field(max_length=16)] = None
    """Tokens after which a text ends: of generation_config.json, else of config.json, else of the tokenizer."""
    facts: Annotated[
        dict[str, int | float | str | bool | None], Field(max_length=128), Extension("preserve-unknown-fields", True)
    ] = {}
    """Facts of config.json and the tensor headers, by the names of planning.model.ModelFacts."""


class InspectedTexts(Status):
    """What an inspection Job found in a directory of calibration texts."""

    claim_name: ShortString
    """Name of the PersistentVolumeClaim."""
    path: Annotated[str, Field(max_length=512)]
    """Directory relative to the root of the volume: another one is inspected anew."""
    digest: ShortString
    """Of the names, sizes and contents of the texts."""
    size_bytes: Count
    """Of all of them together."""
    inspected_time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    """When they were read; a build that found others later has them inspected again."""


class PlanStatus(Status):
    """Numbers computed before the build; `llmengine explain` shows where each comes from."""

    dtype: ShortString | None = None
    """Type of the weights that are not quantized and of the activations."""
    gpus_per_server: Count | None = None
    """tensor x pipeline."""
    gpu_memory_bytes: Count | None = None
    """Memory of a GPU, as its node or the catalog says it; absent when neither does."""
    weights_bytes: Count | None = None
    """Weights of a GPU."""
    activation_bytes: Count | None = None
    """Activations of a GPU (estimate)."""
    runtime_buffer_bytes: Count | None = None
    """Runtime and decoder buffers of a GPU (estimate)."""
    reserved_bytes: Count | None = None
    """Driver, CUDA context and communication buffers of a GPU (estimate)."""
    kv_cache_pool_bytes: Count | None = None
    """KV cache of a GPU (estimate)."""
    kv_cache_bytes_per_token: Count | None = None
    """KV cache of one token on one GPU."""
    kv_cache_tokens: Count | None = None
    """Tokens the KV cache of one server holds (estimate)."""
    full_length_sequences: Count | None = None
    """Sequences of maxSeqLen the KV cache of one server holds (estimate)."""
    concurrent_requests: Count | None = None
    """Requests of maxSeqLen that one server runs at once: the cache's and at most maxBatchSize (estimate)."""
    longest_prompt_tokens: Count | None = None
    """Longest prompt the server takes."""
    checkpoint_host_memory_bytes: Count | None = None
    """Host memory of the conversion (estimate)."""
    engine_host_memory_bytes: Count | None = None
    """Host memory of the build (estimate)."""
    engine_gpu_memory_bytes: Count | None = None
    """GPU memory of the build (estimate)."""
    model_bytes: Count | None = None
    """Weights of the model in the store."""
    checkpoint_bytes: Count | None = None
    """Checkpoint in the store, and scratch space of the conversion."""
    engine_bytes: Count | None = None
    """Engine in the store, and scratch space of the build."""
    warnings: Annotated[tuple[Annotated[str, Field(max_length=2048)], ...], Field(max_length=32)] = ()
    """What may disappoint although it works."""


class TargetStatus(Status):
    """What runs on one GPU generation."""

    name: ShortString
    """Name of the target; where one of the spec stands for several classes of GPUs, its name and the GPU's."""
    spec_target: ShortString | None = None
    """Target of the spec that this one was made for, where that stands for several classes of GPUs."""
    gpu: ShortString | None = None
    """Product and compute capability of the GPUs, once known."""
    artifact: ShortString | None = None
    """Engine artifact wanted for this generation."""
    wanted_revision: ShortString | None = None
    """Revision that the spec asks for."""
    served_revision: ShortString | None = None
    """Revision that serves, which the Service selects; absent until all servers of one have answered."""
    served_artifact: ShortString | None = None
    """Engine artifact of the served revision."""
    served_model: ShortString | None = None
    """Model artifact of the served revision, whose tokenizer the endpoint uses."""
    max_batch_size: Count | None = None
    """Requests that a server of the served revision runs at once."""
    max_input_len: Count | None = None
    """Longest prompt of the served revision, in tokens."""
    max_seq_len: Count | None = None
    """Longest prompt and answer of the served revision together, in tokens."""
    weight: Count | None = None
    """Share of the endpoint's requests, as the spec has it."""
    kv_cache_tokens: Count | None = None
    """Tokens that the KV cache of a server of the served revision holds, as its log says."""
    replicas: Count | None = None
    """Servers of the served revision that run, whether they answer or not."""
    ready_replicas: Count | None = None
    """Servers of the served revision that answer."""
    service: ShortString | None = None
    """Service of the target."""
    reason: Annotated[str | None, Field(max_length=1024)] = None
    """Why the wanted revision does not serve, in one word."""
    message: Annotated[str | None, Field(max_length=32768)] = None
    """Why the wanted revision does not serve."""
    plan: PlanStatus | None = None
    """What was computed of the wanted revision before anything was built."""


class LLMEngineStatus(Status):
    """What the operator sees and does."""

    observed_generation: Annotated[int, Field(ge=-1)] = -1
    """metadata.generation that the status speaks of; -1 is that nobody has looked yet."""
    conditions: Conditions = ()
    """Ready, Available, Validated, ArtifactsReady, NodesMatch, and Reconciling or Stalled while they hold."""
    reason: Annotated[str | None, Field(max_length=1024)] = None
    """Why the object is not Ready, in one word, for the table of kubectl get."""
    precision: ShortString | None = None
    """Format of the weights: the quantization, or the type where there is none."""
    tensor_parallel: Count | None = None
    """GPUs that share each layer of one server."""
    model: ResolvedModel | None = None
    """The model that was inspected."""
    calibration: Annotated[tuple[InspectedTexts, ...] | None, Field(max_length=16)] = None
    """The calibration texts on claims that were inspected, of those that the spec names."""
    targets: Annotated[tuple[TargetStatus, ...], Field(max_length=256), ListMap("name")] = ()
    """The targets, each with what it wants and serves."""
    endpoint: Annotated[str | None, Field(max_length=253)] = None
    """URL of the OpenAI endpoint within the cluster; clients add nothing to it."""
