"""The verdict on one target: every check at once, and every number with its derivation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from .building import Building, building
from .check import Check, failed, passed, warned
from .commands import tokens_per_block
from .lengths import length_checks, prompt_limit
from .memory import Memory, memory
from .model import ModelFacts
from .parallel import parallelism_checks
from .precision import ResolvedPrecision, resolve
from .support import support_checks
from .target_gpu import TargetGpu
from .terms import Term, bytes_text
from .text_processing import text_checks


@dataclass(frozen=True)
class TargetPlan:
    """What one target comes down to."""

    gpu: TargetGpu
    precision: ResolvedPrecision
    memory: Memory
    building: Building
    longest_prompt: Term
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """No check refuses the spec."""
        return not self.errors

    @property
    def errors(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if not c.ok and c.severity == "error")

    @property
    def warnings(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if not c.ok and c.severity == "warning")

    @property
    def terms(self) -> tuple[Term, ...]:
        return (*self.memory.terms(), self.longest_prompt, *self.building.terms())


def judge(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, gpu: TargetGpu, median_tokens: int | None = None
) -> TargetPlan:
    """Judge a spec for one GPU. Never raises: what is wrong is a check.

    `spec` is the target's own (`effective_spec`); `median_tokens` are the prompt and answer of a typical request.
    """
    precision = resolve(spec, facts, release)
    numbers = memory(spec, facts, release, precision, gpu, median_tokens)
    needs = building(spec, facts, release, precision, numbers.weights, numbers.activations)
    checks = (
        *support_checks(spec, facts, release, precision, gpu),
        *text_checks(facts),
        *parallelism_checks(spec, facts, release, precision, gpu),
        *length_checks(spec, facts, release, precision),
        *_memory_checks(spec, release, numbers, needs, gpu),
    )
    return TargetPlan(gpu, precision, numbers, needs, prompt_limit(spec.budgets, precision), checks)


def _memory_checks(
    spec: LLMEngineSpec, release: Release, numbers: Memory, needs: Building, gpu: TargetGpu
) -> Iterator[Check]:
    if numbers.total is None or numbers.free is None or numbers.kv_tokens is None or numbers.kv_pool is None:
        yield warned(
            "memory",
            f"the memory of {gpu.product} is not known: no verdict on memory",
            "a node with its labels says it",
        )
        return
    taken = numbers.total.value - numbers.free.value
    parts = (
        f"weights {numbers.weights}, activations {numbers.activations}, buffers {numbers.buffers}, "
        f"driver and CUDA {numbers.reserved}"
    )
    if numbers.free.value <= 0:
        yield failed(
            "memory-weights",
            f"{bytes_text(taken)} a GPU ({parts}) do not fit the {numbers.total} of {gpu.product}: "
            f"short by {bytes_text(-numbers.free.value)}",
            "more tensor parallelism, fewer bits (precision.quantization), smaller budgets or a larger GPU",
        )
        return
    yield passed("memory-weights", f"{bytes_text(taken)} of {numbers.total} a GPU: {parts}")
    yield _build_memory(needs, numbers.total, gpu)
    yield from _kv_checks(spec, release, numbers)


def _build_memory(needs: Building, total: Term, gpu: TargetGpu) -> Check:
    worst = needs.build_gpu_worst
    if worst.value <= total.value:
        return passed("memory-build", f"the build needs about {needs.build_gpu} of {total}: {needs.build_gpu.formula}")
    return warned(
        "memory-build",
        f"the build needs about {needs.build_gpu} of the {total} of {gpu.product}, and builds have been seen to take "
        f"the weights twice (NVIDIA/TensorRT-LLM#346), {worst}",
        "should it run out of GPU memory: more tensor parallelism, or the GPU of this compute capability with more",
    )


def _kv_checks(spec: LLMEngineSpec, release: Release, numbers: Memory) -> Iterator[Check]:
    assert numbers.kv_tokens is not None
    assert numbers.kv_pool is not None
    assert numbers.full_sequences is not None
    tokens, needed, per_token = numbers.kv_tokens.value, numbers.tokens_per_sequence.value, numbers.kv_bytes_per_token
    pool = f"KV cache {numbers.kv_pool} / {per_token.value:,} B a token = {tokens:,} tokens"
    if tokens < needed:
        block = tokens_per_block(release)
        fits = tokens // spec.budgets.max_beam_width // block * block
        yield failed(
            "memory-kv-cache",
            f"{pool}, less than the {needed:,} of one full-length sequence "
            f"(short by {bytes_text((needed - tokens) * per_token.value)})",
            f"maxSeqLen at most {fits:,}, or an 8-bit KV cache, more tensor parallelism or a larger GPU"
            if fits
            else "an 8-bit KV cache, more tensor parallelism or a larger GPU",
            (fits,) if fits else (),
        )
        return
    full = numbers.full_sequences.value
    yield passed("memory-kv-cache", f"{pool}: {full:,} full-length sequences")
    if full < spec.budgets.max_batch_size:
        yield warned(
            "concurrency",
            f"the KV cache bounds full-length sequences in flight to {full:,} of maxBatchSize "
            f"{spec.budgets.max_batch_size:,}",
            "shorter ones still batch further; nothing fails",
        )
