"""Specs and models for the planner's tests."""

from __future__ import annotations

from typing import Any

from trtllm_operator.api.llmengine import LLMEngineSpec
from trtllm_operator.planning import ModelFacts, read_config

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


def llama(
    layers: int, heads: int, kv_heads: int, hidden: int, intermediate: int, vocab: int, **more: Any
) -> ModelFacts:
    """Facts of a Llama-like model of these dimensions."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    }
    return read_config(config | more, None)


def engine_spec(
    *,
    tp: int = 1,
    pp: int = 1,
    quantization: str = "none",
    kv_cache: str = "auto",
    dtype: str = "auto",
    batch: int = 8,
    input_len: int = 1024,
    seq_len: int = 2048,
    num_tokens: int = 2048,
    beams: int = 1,
    release: str = "1.2.1",
    gpu: str = "NVIDIA-H100-80GB-HBM3",
    kv_percent: int = 90,
    **more: Any,
) -> LLMEngineSpec:
    """A spec that is valid unless a test makes it otherwise."""
    return LLMEngineSpec.model_validate(
        {
            "model": {"huggingFace": {"repo": "org/model"}},
            "release": release,
            "precision": {"quantization": quantization, "kvCache": kv_cache, "dtype": dtype},
            "parallelism": {"tensor": tp, "pipeline": pp},
            "budgets": {
                "maxBatchSize": batch,
                "maxInputLen": input_len,
                "maxSeqLen": seq_len,
                "maxNumTokens": num_tokens,
                "maxBeamWidth": beams,
            },
            "targets": [{"name": "target", "gpu": {"product": gpu}}],
            "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
            "serving": {"kvCacheFreeGpuMemoryPercent": kv_percent},
        }
        | more
    )
