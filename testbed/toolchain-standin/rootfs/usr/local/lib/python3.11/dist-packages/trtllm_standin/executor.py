"""Loading an engine directory for serving, with the checks and messages of the C++ runtime."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import TENSORRT_LLM_VERSION, TENSORRT_VERSION
from .dtypes import Tensor
from .engine_file import Plan, PlanError
from .gpus import Gpu
from .kv_cache import BlockPool, kv_bytes_per_token, pool_blocks
from .llama import Llama
from .log import runtime_log
from .mapping import kv_heads_of_rank
from .safetensors_io import SafetensorsFile
from .scheduler import Limits

DEFAULT_FREE_MEMORY_FRACTION = 0.9
ASSERTION = "[TensorRT-LLM][ERROR] Assertion failed: "


class EngineError(Exception):
    """The engine cannot be served here; the text is the runtime's."""


@dataclass(frozen=True)
class EngineConfig:
    """config.json of an engine directory, checked for what the runtime reads."""

    pretrained: Mapping[str, Any]
    build: Mapping[str, Any]

    @property
    def world_size(self) -> int:
        size: int = self.pretrained["mapping"]["world_size"]
        return size


@dataclass(frozen=True)
class KvCacheParameters:
    """From the model's configuration; None for `max_tokens` leaves the pool to the fraction."""

    max_tokens: int | None = None
    free_memory_fraction: float = DEFAULT_FREE_MEMORY_FRACTION


def read_engine_config(engine_dir: Path) -> EngineConfig:
    path = engine_dir / "config.json"
    if not path.is_file():
        raise EngineError(f"{ASSERTION}File does not exist: {path}")
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise EngineError(
            f"[json.exception.parse_error.101] parse error at line {line}, column {column}: syntax error while parsing "
            f"value - unexpected end of input [STAND-IN: {path}]"
        ) from error
    version = document.get("version")
    if version is None:
        runtime_log("INFO", "No engine version found in the config file, assuming engine(s) built by old builder API.")
    else:
        runtime_log(
            "INFO", f"Engine version {version} found in the config file, assuming engine(s) built by new builder API."
        )
    for key in ("pretrained_config", "build_config"):
        if key not in document:
            raise EngineError(f"[json.exception.out_of_range.403] key '{key}' not found [STAND-IN: {path}]")
    return EngineConfig(document["pretrained_config"], document["build_config"])


def check_world(config: EngineConfig, mpi_size: int, gpus: Sequence[Gpu]) -> None:
    """Processes and GPUs against the engine's mapping."""
    section = config.pretrained["mapping"]
    if mpi_size != config.world_size:
        raise EngineError(
            f"{ASSERTION}MPI size {mpi_size} != TP size {section['tp_size']} * PP size {section['pp_size']} * "
            f"CP Size {section.get('cp_size', 1)}"
        )
    per_node = section.get("gpus_per_node", 8)
    if mpi_size >= per_node and 1 < len(gpus) < per_node:
        raise EngineError(
            f"{ASSERTION}Detect {len(gpus)} GPUs, the GPU number is incompatible with {per_node} gpusPerNode when MPI "
            f"size is {mpi_size}"
        )


def _serialization_tag(version: str) -> int:
    """The STAND-IN's number for a TensorRT version; NVIDIA's own numbers are not published."""
    major, minor = version.split(".")[:2]
    return int(major) * 100 + int(minor)


def load_plan(engine_dir: Path, rank: int, gpu: Gpu) -> tuple[Plan, dict[str, Tensor]]:
    """One rank's plan and tensors, refused for another GPU generation or another version."""
    path = engine_dir / f"rank{rank}.engine"
    if not path.is_file():
        raise EngineError(f"{ASSERTION}Error opening engine file: {path}")
    deserialize_failed = f"{ASSERTION}Failed to deserialize cuda engine."
    try:
        plan = Plan(path)
    except PlanError as error:
        runtime_log(
            "ERROR",
            "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion failed.) "
            f"[STAND-IN: {error}]",
        )
        raise EngineError(f"{deserialize_failed} [STAND-IN: {error}]") from error
    stamp = plan.stamp
    if stamp.tensorrt_version != TENSORRT_VERSION:
        reason = (
            "Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed. Version tag does not match. "
            f"Note: Current Version: {_serialization_tag(TENSORRT_VERSION)}, "
            f"Serialized Engine Version: {_serialization_tag(stamp.tensorrt_version)}"
        )
        runtime_log("ERROR", f"IRuntime::deserializeCudaEngine: Error Code 1: Serialization ({reason})")
        raise EngineError(f"{deserialize_failed} {reason}")
    if stamp.compute_cap != gpu.compute_cap:
        # The device comes first: the plan is the one that was "got".
        reason = (
            "The engine plan file is generated on an incompatible device, expecting compute "
            f"{gpu.compute_cap} got compute {stamp.compute_cap}, please rebuild."
        )
        runtime_log("ERROR", f"IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error ({reason})")
        raise EngineError(f"{deserialize_failed} {reason}")
    if stamp.tensorrt_llm_version != TENSORRT_LLM_VERSION:
        reason = f"STAND-IN: built by TensorRT-LLM {stamp.tensorrt_llm_version}, this is {TENSORRT_LLM_VERSION}"
        runtime_log("ERROR", f"IRuntime::deserializeCudaEngine: Error Code 1: Internal Error ({reason})")
        raise EngineError(f"{deserialize_failed} {reason}")
    if stamp.gpu_name != gpu.name:
        runtime_log(
            "WARNING",
            "Using an engine plan file across different models of devices is not supported and is likely to affect "
            f"performance, cause errors or deadlock. [STAND-IN: built on {stamp.gpu_name}, this is {gpu.name}]",
        )
    tensors = plan.tensors()
    managed = engine_dir / f"rank{rank}_managed_weights.safetensors"
    if managed.is_file():
        file = SafetensorsFile(managed)
        tensors |= {name: file[name] for name in file.names()}
    runtime_log("INFO", f"Rank {rank} is using GPU {gpu.index} ({gpu.name})")
    runtime_log("INFO", f"Loaded engine size: {plan.size_bytes // 2**20} MiB")
    return plan, tensors


@dataclass(frozen=True)
class LoadedEngine:
    """A network ready to run, the pool of its cache and the limits that its requests must keep."""

    model: Llama
    pool: BlockPool
    limits: Limits
    free_memory_fraction: float


def load_engine(
    engine_dir: Path,
    gpus: Sequence[Gpu],
    *,
    mpi_size: int,
    kv_cache: KvCacheParameters,
    max_queue_size: int,
    enable_chunked_context: bool,
    enable_kv_cache_reuse: bool,
) -> LoadedEngine:
    """Load every rank of an engine.

    Raises:
        EngineError: with the runtime's message.
    """
    config = read_engine_config(engine_dir)
    check_world(config, mpi_size, gpus)
    loaded = [load_plan(engine_dir, rank, gpus[rank % len(gpus)]) for rank in range(config.world_size)]
    pretrained, build = config.pretrained, config.build
    plugin = build["plugin_config"]
    paged_context = plugin["use_paged_context_fmha"]
    if enable_kv_cache_reuse and not paged_context:
        runtime_log(
            "WARNING",
            "Fix optionalParams : KV cache reuse disabled because model was not built with paged context FMHA support",
        )
    if enable_chunked_context and not paged_context:
        runtime_log(
            "WARNING",
            "Fix optionalParams : Chunked context disabled because model was not built with paged context FMHA support",
        )
        enable_chunked_context = False
    if build["kv_cache_type"].upper() != "PAGED":
        raise EngineError(
            f"{ASSERTION}In-flight batching requires a paged KV cache, the engine has {build['kv_cache_type']}"
        )

    max_seq_len = build["max_seq_len"]
    try:
        model = Llama(pretrained, [tensors for _, tensors in loaded], max_seq_len)
    except (KeyError, ValueError, IndexError) as error:
        raise EngineError(f"{ASSERTION}Failed to deserialize cuda engine. [STAND-IN: {error!r}]") from error

    section = pretrained["mapping"]
    stage_layers = -(-pretrained["num_hidden_layers"] // section["pp_size"])
    bytes_per_token = kv_bytes_per_token(
        layers=stage_layers,
        kv_heads=len(kv_heads_of_rank(pretrained["num_key_value_heads"], section["tp_size"], 0)),
        head_size=pretrained["head_size"],
        cache_dtype=model.cache_dtype,
    )
    free_bytes = min(
        gpus[rank % len(gpus)].memory_free_bytes - plan.size_bytes for rank, (plan, _) in enumerate(loaded)
    )
    if free_bytes <= 0:
        raise EngineError(f"{ASSERTION}[TensorRT-LLM][ERROR] CUDA runtime error in cudaMalloc: out of memory")
    tokens_per_block = plugin["tokens_per_block"]
    blocks = pool_blocks(
        free_bytes=free_bytes,
        fraction=kv_cache.free_memory_fraction,
        bytes_per_token=bytes_per_token,
        tokens_per_block=tokens_per_block,
        max_tokens=kv_cache.max_tokens,
    )
    pool_tokens = blocks * tokens_per_block
    runtime_log(
        "INFO",
        f"[MemUsageChange] Allocated {pool_tokens * bytes_per_token / 2**30:.2f} GiB for max tokens in paged KV cache "
        f"({pool_tokens}). [STAND-IN: counted, of {free_bytes / 2**30:.2f} GiB]",
    )
    if pool_tokens < max_seq_len:
        runtime_log(
            "WARNING",
            "maxAttentionWindow and maxSequenceLen are too large for at least one sequence to fit in kvCache. They are "
            f"reduced to {pool_tokens}",
        )
        max_seq_len = pool_tokens
    limits = Limits(
        max_batch_size=build["max_batch_size"],
        max_num_tokens=build["max_num_tokens"],
        max_seq_len=max_seq_len,
        max_input_len=build["max_input_len"],
        max_queue_size=max_queue_size,
        packed_context=plugin["remove_input_padding"] and plugin["context_fmha"],
        chunked_context=enable_chunked_context,
    )
    runtime_log("INFO", f"TRTGptModel maxNumSequences: {limits.max_batch_size}")
    runtime_log("INFO", f"TRTGptModel maxBatchSize: {limits.max_batch_size}")
    runtime_log("INFO", f"TRTGptModel maxSequenceLen: {limits.max_seq_len}")
    runtime_log("INFO", f"TRTGptModel maxNumTokens: {limits.max_num_tokens}")
    runtime_log("INFO", f"TRTGptModel maxInputLen: {limits.longest_prompt}")
    return LoadedEngine(model, BlockPool(blocks, tokens_per_block), limits, kv_cache.free_memory_fraction)
