"""Command line of trtllm-build, release 1.2.1."""

import argparse

from . import HELP_EPILOG
from .log import SEVERITIES

KV_CACHE_TYPES = ("continuous", "paged", "disabled")
LORA_MODULES = (
    "attn_qkv",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_dense",
    "mlp_h_to_4h",
    "mlp_4h_to_h",
    "mlp_gate",
    "cross_attn_qkv",
    "cross_attn_q",
    "cross_attn_k",
    "cross_attn_v",
    "cross_attn_dense",
    "moe_h_to_4h",
    "moe_4h_to_h",
    "moe_gate",
    "moe_router",
    "mlp_router",
    "mlp_gate_up",
)
SPECULATIVE_MODES = ("draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle")

_TYPES = ("auto", "float16", "float32", "bfloat16", "int32", "disable")
# Plugin flag -> (default, choices). The value `disable` is null in config.json.
TYPE_PLUGINS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bert_attention_plugin": ("auto", _TYPES),
    "gpt_attention_plugin": ("auto", _TYPES),
    "gemm_plugin": ("disable", ("auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4", "disable")),
    "gemm_swiglu_plugin": ("disable", ("fp8", "disable")),
    "fp8_rowwise_gemm_plugin": ("disable", _TYPES),
    "nccl_plugin": ("auto", _TYPES),
    "lora_plugin": ("disable", _TYPES),
    "moe_plugin": ("auto", _TYPES),
    "mamba_conv1d_plugin": ("auto", _TYPES),
    "low_latency_gemm_plugin": ("disable", ("fp8", "disable")),
    "low_latency_gemm_swiglu_plugin": ("disable", ("fp8", "disable")),
    "gemm_allreduce_plugin": ("disable", ("float16", "bfloat16", "disable")),
}
# Feature flag -> default; values are the words enable and disable.
FEATURES: dict[str, bool] = {
    "dora_plugin": False,
    "context_fmha": True,
    "bert_context_fmha_fp32_acc": False,
    "remove_input_padding": True,
    "norm_quant_fusion": False,
    "reduce_fusion": False,
    "user_buffer": False,
    "use_paged_context_fmha": True,
    "use_fp8_context_fmha": True,
    "fuse_fp4_quant": False,
    "multiple_profiles": False,
    "paged_state": True,
    "streamingllm": False,
    "use_fused_mlp": True,
    "pp_reduce_scatter": False,
}
DEFAULT_TOKENS_PER_BLOCK = 32


def _kv_cache_type(value: str) -> str:
    if value.lower() not in KV_CACHE_TYPES:
        raise argparse.ArgumentTypeError(f"Invalid value '{value}'. Expected one of {list(KV_CACHE_TYPES)}")
    return value.upper()


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="trtllm-build", formatter_class=argparse.ArgumentDefaultsHelpFormatter, epilog=HELP_EPILOG
    )
    add = result.add_argument
    add("--checkpoint_dir", type=str, default=None, help="directory of a TensorRT-LLM checkpoint")
    add("--model_config", type=str, default=None, help="config.json of a checkpoint, without weights")
    add("--build_config", type=str, default=None, help="JSON file that replaces the size and limit flags")
    add("--model_cls_file", type=str, default=None, help="Python file that defines a customised model")
    add("--model_cls_name", type=str, default=None, help="class in --model_cls_file")
    add("--output_dir", type=str, default="engine_outputs", help="where the engines and config.json are written")
    add("--max_batch_size", type=int, default=2048, help="requests that can be scheduled at the same time")
    add("--max_input_len", type=int, default=1024, help="longest prompt in tokens")
    add(
        "--max_seq_len",
        "--max_decoder_seq_len",
        dest="max_seq_len",
        type=int,
        default=None,
        help="longest prompt and output in tokens; deduced from the model when not given",
    )
    add("--max_beam_width", type=int, default=1, help="beams for beam search")
    add("--max_num_tokens", type=int, default=8192, help="tokens in one batch after padding is removed")
    add("--opt_num_tokens", type=int, default=None, help="defaults to max_batch_size * max_beam_width")
    add("--max_encoder_input_len", type=int, default=1024, help="longest encoder input")
    add(
        "--max_prompt_embedding_table_size",
        "--max_multimodal_len",
        type=int,
        default=0,
        help="above 0 enables prompt tuning or multimodal input",
    )
    add("--kv_cache_type", default=argparse.SUPPRESS, type=_kv_cache_type, help="continuous, paged or disabled")
    add("--paged_kv_cache", type=str, default=argparse.SUPPRESS, help="deprecated, use --kv_cache_type")
    add("--input_timing_cache", type=str, default=None, help="timing cache to read; ignored when it does not exist")
    add("--output_timing_cache", type=str, default="model.cache", help="timing cache to write")
    add(
        "--profiling_verbosity",
        type=str,
        default="layer_names_only",
        choices=["layer_names_only", "detailed", "none"],
        help="detail kept in the engine for profiling",
    )
    add("--strip_plan", default=False, action="store_true", help="leave the weights out of the engine")
    add("--weight_sparsity", default=False, action="store_true", help="weight sparsity")
    add("--weight_streaming", default=False, action="store_true", help="weights stay on the host")
    add("--fast_build", default=False, action="store_true", help="weights in a file beside the engine")
    add("--workers", type=int, default=1, help="ranks built at the same time, one GPU each")
    add("--log_level", type=str, default="info", choices=list(SEVERITIES), help="least severe message shown")
    add("--enable_debug_output", default=False, action="store_true", help="debug output")
    add("--visualize_network", type=str, default=None, help="directory for the network as ONNX")
    add("--dry_run", default=False, action="store_true", help="everything except the build itself")
    add("--monitor_memory", default=False, action="store_true", help="log memory during the build")

    logits = result.add_argument_group("Logits arguments").add_argument
    logits("--logits_dtype", type=str, default=None, choices=["float16", "float32"], help="data type of logits")
    logits("--gather_context_logits", action="store_true", default=False, help="keep logits of the prompt")
    logits("--gather_generation_logits", action="store_true", default=False, help="keep logits of the output")
    logits("--gather_all_token_logits", action="store_true", default=False, help="both of the above")

    lora = result.add_argument_group("LoRA arguments").add_argument
    lora("--lora_dir", type=str, default=None, nargs="+", help="directories of LoRA weights")
    lora("--lora_ckpt_source", type=str, default="hf", choices=["hf", "nemo"], help="format of the LoRA weights")
    lora("--lora_target_modules", nargs="+", default=None, choices=LORA_MODULES, help="modules that LoRA changes")
    lora("--max_lora_rank", type=int, default=64, help="largest LoRA rank")

    speculative = result.add_argument_group("Speculative decoding arguments").add_argument
    speculative("--speculative_decoding_mode", default=None, choices=SPECULATIVE_MODES, help="mode")
    speculative("--max_draft_len", type=int, default=0, help="longest draft in tokens")

    plugin = result.add_argument_group("Plugin config arguments").add_argument
    for name, (default, choices) in TYPE_PLUGINS.items():
        plugin(f"--{name}", type=str, default=default, choices=choices, help="data type of the plugin")
    for name, enabled in FEATURES.items():
        word = "enable" if enabled else "disable"
        plugin(f"--{name}", type=str, default=word, choices=["enable", "disable"], help="on or off")
    plugin("--tokens_per_block", type=int, default=DEFAULT_TOKENS_PER_BLOCK, help="tokens in a block of the KV cache")
    return result
