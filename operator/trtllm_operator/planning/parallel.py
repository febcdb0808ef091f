"""Checks of tensor and pipeline parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from ..api.llmengine import LLMEngineSpec
from ..catalog import Family, Release
from .check import Check, failed, passed, warned
from .model import ModelFacts
from .precision import ResolvedPrecision
from .target_gpu import TargetGpu
from .terms import ceil_div, round_up

MOST_GPUS = 64
"""Largest tensor or pipeline size the API takes."""
MOST_TENSOR_ELEMENTS = 2**31 - 1
"""Of TensorRT (examples/models/contrib/bloom/README.md at 83ab45a5)."""


def parallelism_checks(
    spec: LLMEngineSpec, facts: ModelFacts, release: Release, precision: ResolvedPrecision, gpu: TargetGpu
) -> Iterator[Check]:
    tensor = spec.parallelism.tensor
    valid = valid_tensor_sizes(facts, release, precision, most=gpu.gpus_per_node or MOST_GPUS)
    hint = f"valid for this model on one node: {_list(valid)}"
    family = release.family_of(facts.architecture)
    if family is not None and family.undivided:
        yield _undivided(spec, family)
    yield _heads(facts, tensor, hint, valid)
    yield _kv_heads(facts, release, family, tensor, hint, valid)
    yield _mlp(facts, precision, tensor, hint, valid)
    yield _head_size(facts, release, family)
    yield _vocabulary(facts, family, tensor, hint, valid)
    yield _embedding_table(facts, family, tensor)
    yield _stages(spec, facts, release)
    yield _world(spec, gpu)
    if spec.parallelism.tensor * spec.parallelism.pipeline > 1 and gpu.peer_access is not True:
        yield _peer(gpu)


def valid_tensor_sizes(
    facts: ModelFacts, release: Release, precision: ResolvedPrecision, *, most: int
) -> tuple[int, ...]:
    """Tensor-parallel sizes up to `most` that the model's family, heads, KV heads, MLP, vocabulary and quantization
    groups allow."""
    family = release.family_of(facts.architecture)
    if family is not None and "tensor" in family.undivided:
        most = 1
    return tuple(
        size
        for size in range(1, min(most, facts.num_attention_heads) + 1)
        if facts.num_attention_heads % size == 0
        and _kv_heads_allow(facts, release, family, size)
        and not _mlp_problem(facts, precision, size)
        and _vocabulary_allows(facts, family, size)
    )


def _list(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values)) or "none"


def _undivided(spec: LLMEngineSpec, family: Family) -> Check:
    asked = {"tensor": spec.parallelism.tensor, "pipeline": spec.parallelism.pipeline}
    if refused := [axis for axis in family.undivided if asked[axis] > 1]:
        what = " and ".join(f"parallelism.{axis} {asked[axis]}" for axis in refused)
        why = "; ".join(dict.fromkeys(family.undivided[axis] for axis in refused))
        return failed(
            "parallelism",
            f"{what}: {family.name} models are not divided so ({why})",
            "set " + " and ".join(f"parallelism.{axis} 1" for axis in refused),
            (1,),
        )
    return passed("parallelism", f"{family.name} models have {' and '.join(family.undivided)} size 1")


def _heads(facts: ModelFacts, tensor: int, hint: str, valid: tuple[int, ...]) -> Check:
    heads = facts.num_attention_heads
    if heads % tensor == 0:
        return passed("tensor-parallel-heads", f"{heads} attention heads / TP {tensor} = {heads // tensor} a rank")
    return failed(
        "tensor-parallel-heads",
        f"parallelism.tensor {tensor}: {heads} attention heads do not divide by {tensor} (rest {heads % tensor})",
        hint,
        valid,
    )


def _kv_heads_allow(facts: ModelFacts, release: Release, family: Family | None, tensor: int) -> bool:
    kv = facts.num_key_value_heads
    if facts.kv_lora_rank is not None:
        return True
    return kv % tensor == 0 or (_kv_heads_copied(facts, release, family) and tensor % kv == 0)


def _kv_heads_copied(facts: ModelFacts, release: Release, family: Family | None) -> bool:
    only_one = family is not None and family.copied_kv_heads == "one"
    return release.kv_head_duplication and (facts.num_key_value_heads == 1 or not only_one)


def _kv_heads(
    facts: ModelFacts, release: Release, family: Family | None, tensor: int, hint: str, valid: tuple[int, ...]
) -> Check:
    kv = facts.num_key_value_heads
    if facts.kv_lora_rank is not None:
        return passed("tensor-parallel-kv-heads", "latent attention: every rank holds the whole latent cache")
    if kv % tensor == 0:
        return passed("tensor-parallel-kv-heads", f"{kv} KV heads / TP {tensor} = {kv // tensor} a rank")
    if _kv_heads_allow(facts, release, family, tensor):
        return passed("tensor-parallel-kv-heads", f"{kv} KV heads, TP {tensor}: each is copied {tensor // kv} times")
    if tensor % kv == 0:
        whose = f" of {family.name} models" if family is not None and release.kv_head_duplication else ""
        problem = (
            f"release {release.name} does not copy KV heads{whose}, and TP {tensor} needs {tensor // kv} copies of {kv}"
        )
    else:
        problem = (
            f"parallelism.tensor {tensor}: {kv} KV heads neither divide by {tensor} (rest {kv % tensor}) "
            f"nor can be copied evenly (rest {tensor % kv})"
        )
    return failed("tensor-parallel-kv-heads", problem, hint, valid)


def _mlp_problem(facts: ModelFacts, precision: ResolvedPrecision, tensor: int) -> str | None:
    """Why the rows of the MLP or of attention can't be split by `tensor`, with the numbers."""
    group = _group_size(facts, precision)
    attention = facts.num_attention_heads * facts.head_size
    widths = [("intermediate size", facts.intermediate_size)]
    if group is not None:
        widths.append(("attention width", attention))
        if precision.source is None and precision.format is not None and precision.format.tool == "quantize":
            # ModelOpt's export holds the inputs of column layers to it as well, divided by TP.
            widths.append(("hidden size", facts.hidden_size))
    for name, width in widths:
        if width % tensor:
            return f"{name} {width} does not divide by {tensor} (rest {width % tensor})"
        if group is not None and width // tensor % group:
            share = f"{width / tensor / group:.2f}".rstrip("0").rstrip(".")
            half = group // 2
            smaller = (
                "; precision.groupSize 64 divides it"
                if _may_halve(precision, group) and not width // tensor % half
                else ""
            )
            return (
                f"{name} {width} / TP {tensor} / group size {group} = {share} is not a whole number of groups{smaller}"
            )
    return None


def _may_halve(precision: ResolvedPrecision, group: int) -> bool:
    if group != 128 or precision.source is not None or precision.format is None:
        return False
    return not precision.format.group_sizes or group // 2 in precision.format.group_sizes


def _group_size(facts: ModelFacts, precision: ResolvedPrecision) -> int | None:
    if precision.source is not None:
        group = facts.quantization_group_size
        return group if group is not None and group > 0 else None
    return precision.format.group_size if precision.format else None


def _mlp(facts: ModelFacts, precision: ResolvedPrecision, tensor: int, hint: str, valid: tuple[int, ...]) -> Check:
    if problem := _mlp_problem(facts, precision, tensor):
        return failed("tensor-parallel-mlp", f"parallelism.tensor {tensor}: {problem}", hint, valid)
    group = _group_size(facts, precision)
    groups = f", {facts.intermediate_size // tensor // group} groups of {group}" if group else ""
    share = facts.intermediate_size // tensor
    return passed("tensor-parallel-mlp", f"intermediate size {facts.intermediate_size} / TP {tensor} = {share}{groups}")


def _head_size(facts: ModelFacts, release: Release, family: Family | None) -> Check:
    heads, width = facts.num_attention_heads, facts.hidden_size
    if family is not None and not family.free_head_size and heads * facts.head_size != width:
        return failed(
            "head-size",
            f"head size {facts.head_size} is not hidden size {width} / {heads} heads, as the converter of "
            f"{family.name} models takes it to be",
        )
    if facts.kv_lora_rank is not None or facts.head_size in release.head_sizes:
        return passed("head-size", f"head size {facts.head_size} has attention kernels")
    return failed(
        "head-size",
        f"head size {facts.head_size} has no attention kernels in release {release.name}",
        f"supported: {', '.join(map(str, release.head_sizes))}",
    )


def _vocabulary_allows(facts: ModelFacts, family: Family | None, tensor: int) -> bool:
    return facts.vocab_size % tensor == 0 or family is None or family.padded_vocabulary


def _vocabulary(facts: ModelFacts, family: Family | None, tensor: int, hint: str, valid: tuple[int, ...]) -> Check:
    padded = round_up(facts.vocab_size, tensor)
    if padded == facts.vocab_size:
        return passed("vocabulary", f"vocabulary {facts.vocab_size} / TP {tensor} = {padded // tensor}")
    if family is None or _vocabulary_allows(facts, family, tensor):
        return passed("vocabulary", f"vocabulary {facts.vocab_size} is padded to {padded} for TP {tensor}")
    return failed(
        "vocabulary",
        f"parallelism.tensor {tensor}: vocabulary {facts.vocab_size} does not divide by {tensor} "
        f"(rest {facts.vocab_size % tensor}), and the converter of {family.name} models does not pad it",
        hint,
        valid,
    )


def _embedding_table(facts: ModelFacts, family: Family | None, tensor: int) -> Check:
    divided = family is not None and family.divided_embedding
    whole = facts.vocab_size * facts.hidden_size
    elements = ceil_div(whole, tensor) if divided else whole
    if elements <= MOST_TENSOR_ELEMENTS:
        return passed("embedding-table", f"a rank's embedding table has {elements:,} elements")
    return failed(
        "embedding-table",
        f"a rank's embedding table has {elements:,} elements, and TensorRT takes tensors of at most "
        f"{MOST_TENSOR_ELEMENTS:,}",
        f"parallelism.tensor at least {ceil_div(whole, MOST_TENSOR_ELEMENTS)}"
        if divided
        else "a model with a smaller vocabulary or width",
    )


def _stages(spec: LLMEngineSpec, facts: ModelFacts, release: Release) -> Check:
    pipeline, layers = spec.parallelism.pipeline, facts.num_layers
    if layers % pipeline == 0:
        return passed("pipeline-stages", f"{layers} layers / PP {pipeline} = {layers // pipeline} a stage")
    valid = tuple(size for size in range(1, min(layers, MOST_GPUS) + 1) if layers % size == 0)
    if release.uneven_pipeline_stages and pipeline <= layers:
        largest = -(-layers // pipeline)
        return passed("pipeline-stages", f"{layers} layers over {pipeline} stages, the largest has {largest}")
    return failed(
        "pipeline-stages",
        f"parallelism.pipeline {pipeline}: {layers} layers do not divide by {pipeline} (rest {layers % pipeline}), "
        f"and release {release.name} needs equal stages",
        f"valid: {_list(valid)}",
        valid,
    )


def _world(spec: LLMEngineSpec, gpu: TargetGpu) -> Check:
    tensor, pipeline = spec.parallelism.tensor, spec.parallelism.pipeline
    world = tensor * pipeline
    if gpu.mig_profile is not None and world > 1:
        return failed(
            "world-size",
            f"TP {tensor} x PP {pipeline} = {world} GPUs, and MIG slices ({gpu.mig_profile}) can't reach each other",
            "use tensor 1 and pipeline 1 on a slice, or whole GPUs",
        )
    if gpu.shared and world > 1:
        return failed(
            "world-size",
            f"TP {tensor} x PP {pipeline} = {world} GPUs, and two shares of {gpu.product} may be one and the same GPU",
            "use tensor 1 and pipeline 1 on shared GPUs, or nodes whose GPUs are whole",
        )
    if gpu.gpus_per_node is None:
        return passed("world-size", f"TP {tensor} x PP {pipeline} = {world} GPUs of one node")
    if world <= gpu.gpus_per_node:
        return passed(
            "world-size", f"TP {tensor} x PP {pipeline} = {world} GPUs of the {gpu.gpus_per_node} that one node offers"
        )
    return failed(
        "world-size",
        f"TP {tensor} x PP {pipeline} = {world} GPUs, and one node offers {gpu.gpus_per_node} {gpu.product}",
        f"a server runs on one node: at most {gpu.gpus_per_node} for tensor x pipeline, or a smaller precision",
    )


def _peer(gpu: TargetGpu) -> Check:
    return warned(
        "peer-access",
        f"{gpu.product} has no NVLink that is sure to be there: ranks may not reach each other's memory",
        "check nvidia-smi topo -p2p r on the node, or use parallelism 1",
    )
