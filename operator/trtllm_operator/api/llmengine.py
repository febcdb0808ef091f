"""LLMEngine: the model, the precision and the limits a team wants served, and on which GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .common import NodePlacement, ResourceRequirements, SecretKeyReference, Storage, TargetName
from .conditions import Condition
from .markers import Cel, ListMap, Name, Object, Status

KIND = "LLMEngine"
PLURAL = "llmengines"

Dtype = Literal["auto", "float16", "bfloat16", "float32"]
Quantization = Literal["none", "fp8", "fp8_rowwise", "int8_wo", "int4_wo", "int4_awq", "int8_sq", "w4a8_awq", "nvfp4"]
KvCacheDtype = Literal["auto", "fp8", "int8"]
TokenCount = Annotated[int, Field(ge=1, le=16_777_216)]


class HuggingFaceModel(Object):
    """A model repository on the Hugging Face hub or a server with its routes."""

    repo: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$", max_length=192)]
    revision: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=128)] = "main"
    """Commit, tag or branch. A branch is resolved once, to the commit it then names; pin the commit to be exact."""
    token_secret_ref: SecretKeyReference | None = None


class PersistentVolumeClaimModel(Object):
    """A model directory on a claim in the same namespace: config.json, tokenizer files, safetensors."""

    claim_name: Name
    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._/-]*$", max_length=512), Cel("!self.contains('..')", message="path must not contain '..'")]
    """Directory of the model, relative to the root of the volume."""


@Cel(
    "(has(self.huggingFace) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0) == 1",
    message="give exactly one of huggingFace and persistentVolumeClaim",
)
class ModelSource(Object):
    hugging_face: HuggingFaceModel | None = None
    persistent_volume_claim: PersistentVolumeClaimModel | None = None


class Precision(Object):
    dtype: Dtype = "auto"
    """Type of the weights that are not quantised and of the activations; auto takes the checkpoint's own."""
    quantization: Quantization = "none"
    """TensorRT-LLM's own name of the format."""
    kv_cache: KvCacheDtype = "auto"
    """Type of the KV cache; auto is the type of the activations."""


class Parallelism(Object):
    """How many GPUs of one node one server uses."""

    tensor: Annotated[int, Field(ge=1, le=64)] = 1
    pipeline: Annotated[int, Field(ge=1, le=64)] = 1


@Cel(
    "self.maxInputLen < self.maxSeqLen",
    message="maxInputLen must be less than maxSeqLen: a sequence is the prompt and at least one generated token",
    field_path=".maxInputLen",
)
class Budgets(Object):
    """Limits compiled into the engine; a change of any of them rebuilds it."""

    max_batch_size: Annotated[int, Field(ge=1, le=65_536)]
    """Sequences in flight at once."""
    max_input_len: TokenCount
    """Longest prompt, in tokens."""
    max_seq_len: TokenCount
    """Longest prompt and answer together, in tokens."""
    max_num_tokens: TokenCount
    """Tokens processed in one step over all sequences; without chunked context also a limit of the prompt."""
    max_beam_width: Annotated[int, Field(ge=1, le=256)] = 1


class GpuSelector(Object):
    """Which GPUs. The engine is built on such a GPU and runs on no other."""

    product: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=63)]
    """As the node label nvidia.com/gpu.product says it, for example NVIDIA-H100-80GB-HBM3."""


class Target(Object):
    """One GPU generation to build for and serve on."""

    name: TargetName
    gpu: GpuSelector
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1


class Build(NodePlacement):
    """How build Jobs run. Nothing here is part of an artefact's key."""

    resources: ResourceRequirements | None = None
    """Of the convert and build containers; by default computed from the model."""
    timeout_seconds: Annotated[int, Field(ge=60, le=604_800)] | None = None
    """Longest run of one attempt; by default computed from the model's size."""
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3


class Serving(NodePlacement):
    """How Triton runs. A change never rebuilds an engine."""

    kv_cache_free_gpu_memory_percent: Annotated[int, Field(ge=1, le=99)] = 90
    """Share of the GPU memory that is free once the engine is loaded that the KV cache takes."""
    resources: ResourceRequirements | None = None
    max_queue_size: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Requests that may wait before further ones are refused with 503; 0 is no limit."""


class LLMEngineSpec(Object):
    model: ModelSource
    release: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?([a-z0-9.]*)$", max_length=32)]
    """TensorRT-LLM release that builds and serves, as the operator's catalogue names it."""
    precision: Precision = Precision()
    parallelism: Parallelism = Parallelism()
    budgets: Budgets
    targets: Annotated[tuple[Target, ...], Field(min_length=1, max_length=16), ListMap("name")]
    build: Build = Build()
    storage: Storage
    serving: Serving = Serving()


class ResolvedModel(Status):
    """What the inspection Job found in the model; the planner's whole knowledge of it."""

    source_hash: str
    """Of the spec.model that was inspected: another source is inspected anew."""
    revision: str
    """The commit, or a digest of the files' identity for a claim."""
    architecture: str
    facts: dict[str, int | float | str | bool | None] = {}
    """Facts of config.json and the tensor headers, by the names of planning.model.ModelFacts."""


class TargetStatus(Status):
    name: str
    gpu: str | None = None
    """Product and compute capability of the GPUs, once known."""
    artifact: str | None = None
    """Engine artefact wanted for this generation."""
    wanted_revision: str | None = None
    served_revision: str | None = None
    """Revision the Service selects."""
    served_artifact: str | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    service: str | None = None
    reason: str | None = None
    message: str | None = None
    weights_bytes: int | None = None
    """Weights per GPU, computed before the build."""
    kv_cache_bytes_per_token: int | None = None
    """Per GPU."""
    kv_cache_tokens: int | None = None
    """Tokens the KV cache of one server is computed to hold."""


class LLMEngineStatus(Status):
    observed_generation: int = -1
    conditions: Annotated[tuple[Condition, ...], ListMap("type")] = ()
    reason: str | None = None
    """Why the object is not Ready, in one word, for the table of kubectl get."""
    model: ResolvedModel | None = None
    targets: Annotated[tuple[TargetStatus, ...], ListMap("name")] = ()
