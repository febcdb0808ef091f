"""What would pass: the nearest change of one field, or where none does of two, that leaves no check failing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ..api.llmengine import LLMEngineSpec
from ..catalog import Release
from .model import ModelFacts
from .parallel import valid_tensor_sizes
from .precision import resolve
from .target_gpu import TargetGpu
from .verdict import TargetPlan, judge

HOPELESS = frozenset({"release", "architecture", "gpu", "head-size", "source-checkpoint", "remote-code"})
"""Checks that no change of the fields below can turn."""
MOST_TENSOR = 64
MANY_PRECISIONS = 3
"""Precisions named as alternatives of each other."""


@dataclass(frozen=True)
class Change:
    """One field of the spec and a value for it."""

    field: str
    value: str | int

    def __str__(self) -> str:
        return f"{self.field} {self.value:,}" if isinstance(self.value, int) else f"{self.field} {self.value}"


Suggestion = tuple[Change, ...]
Judge = Callable[[LLMEngineSpec], TargetPlan]

_FIELDS = {
    "parallelism.tensor": ("parallelism", "tensor"),
    "parallelism.pipeline": ("parallelism", "pipeline"),
    "precision.quantization": ("precision", "quantization"),
    "precision.kvCache": ("precision", "kv_cache"),
    "precision.dtype": ("precision", "dtype"),
    "budgets.maxSeqLen": ("budgets", "max_seq_len"),
    "budgets.maxInputLen": ("budgets", "max_input_len"),
    "budgets.maxNumTokens": ("budgets", "max_num_tokens"),
    "budgets.maxBatchSize": ("budgets", "max_batch_size"),
}
_MEMORY_BUDGETS = ("budgets.maxSeqLen", "budgets.maxNumTokens", "budgets.maxBatchSize")


def nearest(spec: LLMEngineSpec, facts: ModelFacts, release: Release, gpu: TargetGpu) -> tuple[Suggestion, ...]:
    """Changes of the target's own spec with each of which it passes; empty when it does already, or nothing helps."""

    def verdict(changed: LLMEngineSpec) -> TargetPlan:
        return judge(changed, facts, release, gpu)

    failing = {check.id for check in verdict(spec).errors}
    if not failing or failing & HOPELESS:
        return ()
    repaired, repairs = _with_lengths_repaired(spec, verdict)
    if not verdict(repaired).errors:
        return (repairs,)
    choices = _choices(repaired, facts, release, gpu)
    found = [(*repairs, change) for change in _single(repaired, choices, verdict)]
    if not found:
        found = [(*repairs, *pair) for pair in islice(_pairs(repaired, choices, verdict), MANY_PRECISIONS)]
    return tuple(found)


def changed(spec: LLMEngineSpec, suggestion: Iterable[Change]) -> LLMEngineSpec:
    """`spec` with the values of a suggestion."""
    for change in suggestion:
        part, name = _FIELDS[change.field]
        inner = getattr(spec, part).model_copy(update={name: change.value})
        spec = spec.model_copy(update={part: inner})
    return spec


def _with_lengths_repaired(spec: LLMEngineSpec, verdict: Judge) -> tuple[LLMEngineSpec, Suggestion]:
    """Lengths that contradict each other, put right first: whatever else is wrong, they are wrong as well."""
    repairs: Suggestion = ()
    ids = {check.id for check in verdict(spec).errors}
    budgets = spec.budgets
    if "sequence-length" in ids:
        repairs += (Change("budgets.maxSeqLen", budgets.max_input_len + 1),)
    if "prompt-limit" in ids and verdict(changed(spec, repairs)).longest_prompt.value < budgets.max_input_len:
        repairs += (Change("budgets.maxNumTokens", budgets.max_input_len),)
    return changed(spec, repairs), repairs


def _choices(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, gpu: TargetGpu
) -> dict[str, tuple[str | int, ...]]:
    """Values worth a try for each field that takes one of a few, the nearest to what is asked first."""
    most = gpu.gpus_per_node or MOST_TENSOR
    asked = spec.parallelism
    sizes = valid_tensor_sizes(facts, release, resolve(spec, facts, release), most=most)
    stages = (n for n in range(1, min(most, facts.num_layers) + 1) if facts.num_layers % n == 0)
    formats = sorted(release.formats.values(), key=lambda f: -(f.weight_bits or 16))
    return {
        "parallelism.tensor": _by_distance(sizes, asked.tensor),
        "parallelism.pipeline": _by_distance(stages, asked.pipeline),
        "precision.kvCache": ("auto", *release.kv_cache_formats),
        "precision.dtype": ("float16", "bfloat16"),
        "precision.quantization": tuple(f.name for f in formats) if facts.quantization is None else ("none",),
    }


def _by_distance(values: Iterable[int], asked: int) -> tuple[int, ...]:
    return tuple(sorted(values, key=lambda value: (abs(value - asked), value)))


def _single(spec: LLMEngineSpec, choices: dict[str, tuple[str | int, ...]], verdict: Judge) -> Iterator[Change]:
    for field, values in choices.items():
        passing = (
            Change(field, value) for value in values if not verdict(changed(spec, [Change(field, value)])).errors
        )
        yield from islice(passing, MANY_PRECISIONS if field == "precision.quantization" else 1)
    for field in _MEMORY_BUDGETS:
        if (largest := _largest(spec, field, verdict)) is not None:
            yield Change(field, largest)


def _pairs(spec: LLMEngineSpec, choices: dict[str, tuple[str | int, ...]], verdict: Judge) -> Iterator[Suggestion]:
    """Precision and ranks together, the two that memory depends on most: the nearest ranks for each precision."""
    for quantization in choices["precision.quantization"]:
        for tensor in choices["parallelism.tensor"]:
            pair = Change("precision.quantization", quantization), Change("parallelism.tensor", tensor)
            if not verdict(changed(spec, pair)).errors:
                yield pair
                break


def _largest(spec: LLMEngineSpec, field: str, verdict: Judge) -> int | None:
    """The largest value below what is asked that passes. Memory grows with each of these, so halving finds it."""
    part, name = _FIELDS[field]
    asked = getattr(getattr(spec, part), name)
    low = spec.budgets.max_input_len + 1 if name == "max_seq_len" else 1
    if low >= asked or verdict(changed(spec, [Change(field, low)])).errors:
        return None
    high = asked  # fails; low passes
    while high - low > 1:
        middle = (low + high) // 2
        if verdict(changed(spec, [Change(field, middle)])).errors:
            high = middle
        else:
            low = middle
    return low


def suggestions_text(suggestions: tuple[Suggestion, ...]) -> str:
    """`passes with parallelism.tensor 2, or with precision.quantization int8_wo`; empty when there are none."""
    if not suggestions:
        return ""
    return "passes with " + ", or with ".join(" and ".join(map(str, suggestion)) for suggestion in suggestions)
