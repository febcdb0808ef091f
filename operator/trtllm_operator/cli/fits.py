"""`fits`: which GPUs, tensor-parallel sizes and precisions a model works with, and how much of it at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from ..planning.lengths import sequence_limit
from ..planning.model import ModelFacts
from ..planning.parallel import valid_tensor_sizes
from ..planning.precision import resolve
from ..planning.target_gpu import TargetGpu
from ..planning.terms import bytes_text
from ..planning.verdict import TargetPlan, judge
from .errors import REFUSED
from .render import Output, line, structured, table

BATCH, STEP_TOKENS = 64, 8192


@dataclass(frozen=True)
class Fit:
    """One combination that was judged."""

    gpu: TargetGpu
    tensor: int
    quantization: str
    kv_cache: str
    plan: TargetPlan
    tokens: int
    """Tokens of one request that concurrency is counted for."""

    @property
    def cache_tokens(self) -> int:
        return self.plan.memory.kv_tokens.value if self.plan.memory.kv_tokens else 0

    def longest(self, limit: int | None) -> int:
        """Longest sequence that the cache holds, of at most `limit` tokens."""
        return min(self.cache_tokens, limit or self.cache_tokens)

    def room(self, limit: int | None) -> tuple[str, str, str]:
        """Tokens of the cache, the longest sequence, requests at once; unknown where the GPU's memory is."""
        if self.plan.memory.kv_tokens is None:
            return "unknown", "unknown", "unknown"
        return f"{self.cache_tokens:,}", f"{self.longest(limit):,}", f"{self.cache_tokens // self.tokens:,}"


def fits(
    facts: ModelFacts, release: Release, gpus: Sequence[TargetGpu], tokens: int, output: Output, *, everything: bool
) -> int:
    """Print the matrix, and return 0 when anything works. `everything` shows what does not work as well, with why."""
    judged = [fit for gpu in gpus for fit in _combinations(facts, release, gpu, tokens)]
    working = [fit for fit in judged if fit.plan.ok]
    limit = sequence_limit(facts, release)
    if output != "table":
        structured([_object(fit, limit) for fit in (judged if everything else working)], output)
        return 0 if working else REFUSED
    if working:
        table(
            ("GPU", "TP", "PRECISION", "KV CACHE", "WEIGHTS A GPU", "CACHE TOKENS", "LONGEST", f"OF {tokens:,}"),
            [
                (
                    fit.gpu.product, str(fit.tensor), fit.quantization, fit.kv_cache, str(fit.plan.memory.weights),
                    *fit.room(limit),
                )
                for fit in working
            ],
        )  # fmt: skip
    else:
        line(f"{facts.architecture} works with none of these GPUs in release {release.name}", "red")
    if everything or not working:
        for text in _refusals([fit for fit in judged if not fit.plan.ok]):
            line(text, "yellow")
    return 0 if working else REFUSED


def _refusals(refused: Sequence[Fit]) -> Iterator[str]:
    """Why each does not work. What none of a GPU's combinations passes is said once, and they are not listed for it."""
    for product in dict.fromkeys(fit.gpu.product for fit in refused):
        of_gpu = [fit for fit in refused if fit.gpu.product == product]
        said = [[str(check) for check in fit.plan.errors] for fit in of_gpu]
        common = [why for why in said[0] if len(said) > 1 and all(why in other for other in said)]
        if common:
            yield f"{product}: {'; '.join(common)}"
            continue
        for fit, why in zip(of_gpu, said, strict=True):
            yield f"{product} TP {fit.tensor} {fit.quantization} KV {fit.kv_cache}: {'; '.join(why)}"


def _combinations(facts: ModelFacts, release: Release, gpu: TargetGpu, tokens: int) -> Iterator[Fit]:
    formats = ["none"] if facts.quantization else [f.name for f in release.formats.values()] or ["none"]
    for quantization in formats:
        probe = _spec(release, gpu, 1, quantization, "auto", tokens)
        most = gpu.gpus_per_node or 8
        sizes = valid_tensor_sizes(facts, release, resolve(probe, facts, release), most=most)
        for tensor in (size for size in sizes if size & (size - 1) == 0 or size == sizes[-1]):
            for kv_cache in ("auto", "fp8"):
                spec = _spec(release, gpu, tensor, quantization, kv_cache, tokens)
                yield Fit(gpu, tensor, quantization, kv_cache, judge(spec, facts, release, gpu), tokens)


def _spec(
    release: Release, gpu: TargetGpu, tensor: int, quantization: str, kv_cache: str, tokens: int
) -> LLMEngineSpec:
    return LLMEngineSpec.model_validate(
        {
            "model": {"huggingFace": {"repo": "any/model"}},
            "release": release.name,
            "precision": {"quantization": quantization, "kvCache": kv_cache},
            "parallelism": {"tensor": tensor},
            "budgets": {
                "maxBatchSize": BATCH,
                "maxInputLen": max(1, min(tokens - 1, STEP_TOKENS)),
                "maxSeqLen": tokens,
                "maxNumTokens": STEP_TOKENS,
            },
            "targets": [{"name": "gpu", "gpu": {"product": gpu.product}}],
            "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
        }
    )


def _object(fit: Fit, limit: int | None) -> dict[str, Any]:
    known = fit.plan.memory.kv_tokens is not None
    return {
        "gpu": fit.gpu.product,
        "tensorParallel": fit.tensor,
        "quantization": fit.quantization,
        "kvCache": fit.kv_cache,
        "ok": fit.plan.ok,
        "errors": [str(check) for check in fit.plan.errors],
        "weightsBytesPerGpu": fit.plan.memory.weights.value,
        "weights": bytes_text(fit.plan.memory.weights.value),
        "kvCacheTokens": fit.cache_tokens if known else None,
        "longestSequence": fit.longest(limit) if known else None,
        "concurrentRequests": fit.cache_tokens // fit.tokens if known else None,
        "tokensPerRequest": fit.tokens,
    }
