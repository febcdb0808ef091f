"""Building one rank's engine: checks what a GPU generation can run, packs the rank's weights, stamps the GPU."""

import copy
import json
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import TENSORRT_LLM_VERSION, TENSORRT_VERSION
from .build_config import resolve
from .dtypes import Tensor
from .engine_file import PlanStamp, serialize_plan
from .gpus import Gpu
from .log import command_log, elapsed
from .mapping import Mapping as RankMapping
from .quantization import MIN_SM, SUPPORTED
from .safetensors_io import SafetensorsFile, write_safetensors

NETWORK = "Unnamed Network 0"
BUILD_FAILED = "Engine building failed, please check the error log."
BF16_MIN_SM = 80
LINEAR_LAYERS = ("attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj")


@dataclass(frozen=True)
class BuildRequest:
    """What every rank's build has in common; it is sent to worker processes."""

    checkpoint_dir: Path
    output_dir: Path
    pretrained: dict[str, Any]
    build: dict[str, Any]
    log_level: str
    dry_run: bool


def required_names(pretrained: Mapping[str, Any], mapping: RankMapping) -> set[str]:
    """Tensors that a rank's network cannot do without."""
    names = set()
    if mapping.is_first_stage:
        names.add("transformer.vocab_embedding.weight")
    for local, _ in enumerate(mapping.layers(pretrained["num_hidden_layers"])):
        layer = f"transformer.layers.{local}"
        names |= {f"{layer}.{linear}.weight" for linear in LINEAR_LAYERS}
        names |= {f"{layer}.input_layernorm.weight", f"{layer}.post_layernorm.weight"}
    if mapping.is_last_stage:
        names.add("transformer.ln_f.weight")
        if not mapping.is_first_stage:
            names.add("lm_head.weight")
    return names


def build_and_save(request: BuildRequest, rank: int, gpu: Gpu) -> None:
    """Build rank<rank>.engine on `gpu`; rank 0 writes config.json too.

    Raises:
        AssertionError, RuntimeError: the build cannot be done; TensorRT's own error is in the log above.
    """
    command_log.set_level(request.log_level)
    started = time.monotonic()
    pretrained, build = request.pretrained, copy.deepcopy(request.build)
    section = pretrained["mapping"]
    mapping = RankMapping(section["tp_size"], section["pp_size"], rank)
    architecture = pretrained["architecture"]
    assert architecture == "LlamaForCausalLM", f"Unsupported model architecture: {architecture}"
    algorithm = pretrained["quantization"]["quant_algo"]
    assert algorithm in SUPPORTED, f"STAND-IN: engines with quantization {algorithm} are not implemented"

    path = request.checkpoint_dir / f"rank{rank}.safetensors"
    assert path.is_file(), f"{path} does not exist"
    checkpoint = SafetensorsFile(path)
    missing = required_names(pretrained, mapping) - set(checkpoint.names())
    if missing:
        raise RuntimeError(f"Required but not provided tensors:{missing}")
    # Owned copies: a build holds its rank's weights in host memory, as the real one does.
    tensors = {name: Tensor(checkpoint[name].format, np.array(checkpoint[name].array)) for name in checkpoint.names()}
    resolve(build, pretrained, gpu.sm)
    command_log.info(f"Total time of constructing network from module object {time.monotonic() - started} seconds")
    if not request.dry_run:
        plan, managed = _build_engine(tensors, build, pretrained, rank, gpu)
    if build["output_timing_cache"] and rank == 0:
        _save_timing_cache(Path(build["output_timing_cache"]), gpu)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    command_log.info(
        f"Build phase peak memory: {usage.ru_maxrss / 1024:.2f} MB, children: {children.ru_maxrss / 1024:.2f} MB"
    )

    if rank == 0:
        document = {"version": TENSORRT_LLM_VERSION, "pretrained_config": pretrained, "build_config": build}
        (request.output_dir / "config.json").write_text(json.dumps(document, indent=4))
    if request.dry_run:
        return
    started = time.monotonic()
    engine_path = request.output_dir / f"rank{rank}.engine"
    command_log.info(f"Serializing engine to {engine_path}...")
    engine_path.write_bytes(plan)
    if managed:
        path = request.output_dir / f"rank{rank}_managed_weights.safetensors"
        command_log.info(f"Serializing {len(managed)} managed weights to {path}...")
        write_safetensors(path, managed, {})
    command_log.info(f"Engine serialized. Total time: {elapsed(time.monotonic() - started)}")


def _build_engine(
    tensors: Mapping[str, Tensor], build: Mapping[str, Any], pretrained: Mapping[str, Any], rank: int, gpu: Gpu
) -> tuple[bytearray, Mapping[str, Tensor]]:
    """The serialized plan, and the weights that `--fast_build` keeps out of it."""
    command_log.info("Total optimization profiles added: 1")
    command_log.info(f"Total time to initialize the weights in network {NETWORK}: 00:00:00")
    command_log.info(f"Build TensorRT engine {NETWORK}")
    command_log.info(f"STAND-IN: packing weights for {gpu.name}, compute {gpu.compute_cap}; no kernel is timed", "TRT")
    started = time.monotonic()
    refusal = _refusal(tensors, pretrained, gpu)
    if refusal:
        command_log.error(refusal, "TRT")
        raise AssertionError(BUILD_FAILED)
    stamp = PlanStamp(TENSORRT_VERSION, TENSORRT_LLM_VERSION, gpu.name, gpu.compute_cap)
    managed = tensors if build["plugin_config"]["manage_weights"] else {}
    plan = serialize_plan(stamp, rank, {} if managed else tensors)
    weights_bytes = sum(tensor.nbytes for tensor in tensors.values())
    seconds = time.monotonic() - started
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    command_log.info(f"Total Weights Memory: {weights_bytes} bytes", "TRT")
    command_log.info(f"Engine generation completed in {seconds:.4f} seconds.", "TRT")
    command_log.info(
        f"[MemUsageStats] Peak memory usage during Engine building and serialization: CPU: {peak_mib} MiB", "TRT"
    )
    command_log.info(f"Total time of building {NETWORK}: {elapsed(seconds)}")
    return plan, managed


def _refusal(tensors: Mapping[str, Tensor], pretrained: Mapping[str, Any], gpu: Gpu) -> str | None:
    """Why TensorRT would not build this network on this GPU, in its words."""
    if gpu.sm < MIN_SM.get(pretrained["quantization"]["quant_algo"], 0):
        return (
            "IBuilder::buildSerializedNetwork: Error Code 9: Internal Error (Networks with FP8 precision require "
            f"hardware with FP8 support.) [STAND-IN: {gpu.name} has compute {gpu.compute_cap}, FP8 needs 8.9]"
        )
    if pretrained["dtype"] == "bfloat16" and gpu.sm < BF16_MIN_SM:
        return (
            "Error Code 4: Internal Error (pre SM 80 GPUs do not support bfloat16) "
            f"[STAND-IN: {gpu.name} has compute {gpu.compute_cap}]"
        )
    weights_bytes = sum(tensor.nbytes for tensor in tensors.values())
    if weights_bytes > gpu.memory_free_bytes:
        return (
            f"Requested amount of GPU memory ({weights_bytes} bytes) could not be allocated. There may not be enough "
            "free memory for allocation to succeed. [virtualMemoryBuffer.cpp::resizePhysical] Error Code 2: "
            f"OutOfMemory [STAND-IN: {gpu.name} has {gpu.memory_free_bytes} bytes free]"
        )
    return None


def _save_timing_cache(path: Path, gpu: Gpu) -> None:
    path.write_text(json.dumps({"notice": "STAND-IN timing cache, empty", "gpu": gpu.name}) + "\n")
    command_log.info(f"Timing cache serialized to {path}")
