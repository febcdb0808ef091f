"""Values for the placeholders of the image's own Triton templates (inflight_batcher_llm)."""

from __future__ import annotations

from collections.abc import Mapping

from ..api.llmengine import Budgets, Serving

TEMPLATES = "/app/all_models/inflight_batcher_llm"
FILL_TEMPLATE = "/app/tools/fill_template.py"
"""Where NVIDIA's images hold them, in every release that serves engines."""
MODEL_NAME = "ensemble"
"""The model that clients call."""
PREPROCESSING_INSTANCES = 2
"""Processes that tokenize: quick next to the engine, about 50 MB of memory apiece."""
POSTPROCESSING_INSTANCES = 1
"""Processes that detokenize. With two, successive pieces of one stream go to either and overtake each other
(triton-inference-server/tensorrtllm_backend#614)."""


def template_values(
    *, directory: str, engine: str, model: str, budgets: Budgets, serving: Serving, paged_context: bool
) -> Mapping[str, Mapping[str, str]]:
    """Placeholder -> value for each template. `engine` and `model` are artifacts in `directory`.

    Placeholders left out keep the backend's default on purpose (they sit inside string_value and are ignored then);
    those used as bare protobuf values are all given, or the file would not parse.
    """
    batch = str(budgets.max_batch_size)
    tokenizer = f"{directory}/{model}"
    queue = {"max_queue_delay_microseconds": "0", "max_queue_size": str(serving.max_queue_size)}
    return {
        "preprocessing": {
            "tokenizer_dir": tokenizer,
            "triton_max_batch_size": batch,
            "preprocessing_instance_count": str(PREPROCESSING_INSTANCES),
            "add_special_tokens": "false",
            **queue,
        },
        "postprocessing": {
            "tokenizer_dir": tokenizer,
            "triton_max_batch_size": batch,
            "postprocessing_instance_count": str(POSTPROCESSING_INSTANCES),
            "skip_special_tokens": "true",
        },
        "tensorrt_llm": {
            "triton_backend": "tensorrtllm",
            "triton_max_batch_size": batch,
            "decoupled_mode": "true",
            "engine_dir": f"{directory}/{engine}",
            "batching_strategy": "inflight_fused_batching",
            "kv_cache_free_gpu_mem_fraction": f"{serving.kv_cache_free_gpu_memory_percent / 100:g}",
            "enable_kv_cache_reuse": str(paged_context).lower(),
            "enable_chunked_context": str(paged_context).lower(),
            "max_beam_width": str(budgets.max_beam_width),
            "exclude_input_in_output": "true",
            "encoder_input_features_data_type": "TYPE_FP16",
            "prompt_embedding_table_data_type": "TYPE_FP16",
            "logits_datatype": "TYPE_FP32",
            **queue,
        },
        MODEL_NAME: {"triton_max_batch_size": batch, "logits_datatype": "TYPE_FP32"},
    }
