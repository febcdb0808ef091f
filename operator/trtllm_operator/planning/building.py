"""Memory and disk of what leads to an engine: conversion and build. Sources of the constants: docs/arithmetic.md."""

from __future__ import annotations

from dataclasses import dataclass

from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from .commands import source_memory_percent
from .model import ModelFacts
from .model_config import DTYPE_BYTES
from .precision import ResolvedPrecision
from .terms import MIB, Term, bytes_text

BUILD_WORKSPACE_BYTES = 512 * MIB
HOST_FLOOR_BYTES = 7_000_000_000
HOST_BASE_BYTES = 2_900_000_000
CONVERT_BASE_BYTES = 4_000_000_000
SHM_BYTES = 1024 * MIB
"""Of /dev/shm with several ranks: NCCL fails with less (troubleshooting.md)."""


@dataclass(frozen=True)
class Building:
    """What the Jobs of one target need."""

    build_gpu: Term
    build_gpu_worst: Term
    build_host: Term
    convert_host: Term
    shm: Term
    model_disk: Term
    checkpoint_disk: Term
    engine_disk: Term

    def terms(self) -> tuple[Term, ...]:
        return tuple(vars(self).values())


def building(
    spec: LLMEngineSpec,
    facts: ModelFacts,
    release: Release,
    precision: ResolvedPrecision,
    weights: Term,
    activations: Term,
) -> Building:
    world = spec.parallelism.tensor * spec.parallelism.pipeline
    ranks = Term("", weights.value * world, "B", f"{world} x {weights}, one file a rank")
    at_least = _build_gpu(weights, activations)
    return Building(
        build_gpu=at_least,
        build_gpu_worst=_build_gpu_worst(weights, at_least),
        build_host=_build_host(weights, spec, facts, precision),
        convert_host=_convert_host(facts, source_memory_percent(spec, facts, release)),
        shm=Term("shm_bytes", SHM_BYTES if world > 1 else 64 * MIB, "B", "1 GiB with several ranks, else 64 MiB"),
        model_disk=Term("model_disk_bytes", facts.weight_bytes, "B", "the source's tensors as they are"),
        checkpoint_disk=Term("checkpoint_disk_bytes", ranks.value, "B", ranks.formula),
        engine_disk=Term("engine_disk_bytes", ranks.value, "B", ranks.formula),
    )


def _build_gpu(weights: Term, activations: Term) -> Term:
    value = weights.value + activations.value + BUILD_WORKSPACE_BYTES
    formula = f"{weights} weights + {activations} activations + {bytes_text(BUILD_WORKSPACE_BYTES)} workspace"
    return Term("build_gpu_bytes", value, "B", formula, estimate=True)


def _build_gpu_worst(weights: Term, at_least: Term) -> Term:
    """A 13-billion-parameter build asked for one more allocation of the size of its weights (report 346)."""
    value, formula = max(2 * weights.value, at_least.value), f"max(2 x {weights} weights, {at_least})"
    return Term("build_gpu_worst_bytes", value, "B", formula, estimate=True)


def _build_host(weights: Term, spec: LLMEngineSpec, facts: ModelFacts, precision: ResolvedPrecision) -> Term:
    """Host memory of trtllm-build, which builds one rank at a time; fitted to published peaks (docs/arithmetic.md)."""
    width = DTYPE_BYTES[precision.dtype]
    tables = (facts.vocab_size + facts.vocab_size // spec.parallelism.tensor) * facts.hidden_size * width
    value = max(HOST_FLOOR_BYTES, 3 * weights.value + 2 * tables + HOST_BASE_BYTES)
    formula = (
        f"max(7 GB, 3 x {weights} weights of a rank + 2 x {bytes_text(tables)} tables + 2.9 GB), one rank at a time"
    )
    return Term("build_host_bytes", value, "B", formula, estimate=True)


def _convert_host(facts: ModelFacts, percent: int) -> Term:
    """Host memory of a conversion with one worker: what its script holds of the source model, and the slices being
    written."""
    value = facts.weight_bytes * percent // 100 + CONVERT_BASE_BYTES
    formula = f"{percent / 100:g} x {bytes_text(facts.weight_bytes)} source weights + 4 GB, one worker"
    return Term("convert_host_bytes", value, "B", formula, estimate=True)
