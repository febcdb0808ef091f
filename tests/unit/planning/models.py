"""Models and GPUs of the cases, with the dimensions of their published configs (docs/arithmetic.md says which)."""

from __future__ import annotations

from typing import Any

from tests.unit.planning.build import engine_spec, llama
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning import ModelFacts, TargetGpu, TargetPlan, judge

CATALOG = load_catalog()
RELEASE = CATALOG.release("1.2.1")

LLAMA_2_7B = llama(32, 32, 32, 4096, 11008, 32000)
LLAMA_2_13B = llama(40, 40, 40, 5120, 13824, 32000)
LLAMA_2_70B = llama(80, 64, 8, 8192, 28672, 32000)
LLAMA_33B = llama(60, 52, 52, 6656, 17920, 32000)
LLAMA_31_8B = llama(32, 32, 8, 4096, 14336, 128256, max_position_embeddings=131072, torch_dtype="bfloat16")
LLAMA_31_405B = llama(126, 128, 8, 16384, 53248, 128256, max_position_embeddings=131072, torch_dtype="bfloat16")
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 32768}
QWEN2_7B = llama(28, 28, 4, 3584, 18944, 152064, **QWEN2)
QWEN2_15B = llama(28, 12, 2, 1536, 8960, 151936, **QWEN2, tie_word_embeddings=True)
QWEN15_32B = llama(64, 40, 8, 5120, 27392, 152064, **QWEN2)


def gpu(name: str, **more: Any) -> TargetGpu:
    found = CATALOG.gpu(name)
    assert found is not None
    return TargetGpu.of(found, name, **more)


H100 = gpu("NVIDIA-H100-80GB-HBM3")
A100 = gpu("NVIDIA-A100-SXM4-80GB")
A100_40 = gpu("NVIDIA-A100-SXM4-40GB")


def plan(facts: ModelFacts, target: TargetGpu = H100, release: str = "1.2.1", **spec: Any) -> TargetPlan:
    return judge(engine_spec(release=release, **spec), facts, CATALOG.release(release), target)


def refused_for(verdict: TargetPlan) -> set[str]:
    return {check.id for check in verdict.errors}


def said(verdict: TargetPlan, check_id: str) -> str:
    return "\n".join(str(check) for check in verdict.checks if check.id == check_id)
