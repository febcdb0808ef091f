"""The `build_config` section of an engine's config.json: flags, and what the builder makes of them."""

import argparse
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .build_flags import FEATURES, TYPE_PLUGINS, parser
from .log import command_log

SPECULATIVE_NONE = 1  # SpeculativeDecodingMode.NONE

_PLUGIN_SECTION_TAIL: Mapping[str, Any] = {
    "_explicitly_disable_gemm_plugin": False,
    "qserve_gemm_plugin": None,
    "identity_plugin": None,
    "weight_only_groupwise_quant_matmul_plugin": None,
    "weight_only_quant_matmul_plugin": None,
    "smooth_quant_plugins": True,
    "smooth_quant_gemm_plugin": None,
    "layernorm_quantization_plugin": None,
    "rmsnorm_quantization_plugin": None,
    "quantize_per_token_plugin": False,
    "quantize_tensor_plugin": False,
    "manage_weights": False,
}


def plugin_config_from(args: argparse.Namespace) -> dict[str, Any]:
    """The plugin flags as config.json holds them, each logged as the real command does."""
    config: dict[str, Any] = {"dtype": "float16"}
    for name in TYPE_PLUGINS:
        value = getattr(args, name)
        config[name] = None if value == "disable" else value
    for name in FEATURES:
        config[name] = getattr(args, name) == "enable"
    config["tokens_per_block"] = args.tokens_per_block
    config["paged_kv_cache"] = None
    for name, value in config.items():
        command_log.info(f"Set {name} to {value}.")
    config |= _PLUGIN_SECTION_TAIL
    config["_explicitly_disable_gemm_plugin"] = args.gemm_plugin == "disable"
    config["manage_weights"] = args.fast_build
    return config


def build_config_from(args: argparse.Namespace) -> dict[str, Any]:
    """Raises RuntimeError for flags that exclude each other."""
    plugin_config = plugin_config_from(args)
    if args.build_config is not None:
        return _from_file(Path(args.build_config), plugin_config)
    if args.multiple_profiles == "enable" and args.opt_num_tokens is not None:
        raise RuntimeError(
            "multiple_profiles is enabled, while opt_num_tokens is set. "
            "They are not supposed to be working in the same time for now."
        )
    return {
        "max_input_len": args.max_input_len,
        "max_seq_len": args.max_seq_len,
        "opt_batch_size": 8,
        "max_batch_size": args.max_batch_size,
        "max_beam_width": args.max_beam_width,
        "max_num_tokens": args.max_num_tokens,
        "opt_num_tokens": args.opt_num_tokens,
        "max_prompt_embedding_table_size": args.max_prompt_embedding_table_size,
        "kv_cache_type": getattr(args, "kv_cache_type", None),
        "gather_context_logits": args.gather_context_logits,
        "gather_generation_logits": args.gather_generation_logits,
        "strongly_typed": True,
        "force_num_profiles": os.environ.get("BUILDER_FORCE_NUM_PROFILES"),
        "profiling_verbosity": args.profiling_verbosity,
        "enable_debug_output": args.enable_debug_output,
        "max_draft_len": args.max_draft_len,
        "speculative_decoding_mode": SPECULATIVE_NONE,
        "use_refit": False,
        "input_timing_cache": args.input_timing_cache,
        "output_timing_cache": args.output_timing_cache,
        "lora_config": {
            "lora_dir": [],
            "lora_ckpt_source": args.lora_ckpt_source,
            "max_lora_rank": args.max_lora_rank,
            "lora_target_modules": [],
            "trtllm_modules_to_hf_modules": {},
        },
        "weight_sparsity": args.weight_sparsity,
        "weight_streaming": args.weight_streaming,
        "plugin_config": plugin_config,
        "use_strip_plan": args.strip_plan,
        "max_encoder_input_len": args.max_encoder_input_len,
        "monitor_memory": args.monitor_memory,
        "use_mrope": False,
    }


def _from_file(path: Path, plugin_config: dict[str, Any]) -> dict[str, Any]:
    """`--build_config`: the file's values, defaults for what it lacks; the size and limit flags do not count."""
    given: dict[str, Any] = json.loads(path.read_text())
    for key in ("max_input_len", "max_seq_len", "max_batch_size", "max_beam_width", "max_num_tokens", "opt_num_tokens"):
        _ = given[key]  # the real reader fails with this KeyError
    result = build_config_from(parser().parse_args([]))
    result |= {key: value for key, value in given.items() if key in result}
    result["plugin_config"] = plugin_config | given.get("plugin_config", {})
    return result


def resolve(build: dict[str, Any], pretrained: Mapping[str, Any], sm: int) -> None:
    """Fill in and correct the limits and features for one network and GPU, in place, with the builder's warnings.

    Raises:
        RuntimeError: a quantization that the builder refuses for this compute capability.
    """
    plugin = build["plugin_config"]
    plugin["dtype"] = pretrained["dtype"]
    paged = build["kv_cache_type"] in (None, "PAGED")
    build["kv_cache_type"] = build["kv_cache_type"] or "PAGED"
    plugin["paged_kv_cache"] = paged
    if plugin["paged_state"]:
        command_log.warning("Overriding paged_state to False")
        plugin["paged_state"] = False

    _resolve_lengths(build, pretrained)
    if plugin["streamingllm"]:
        raise AssertionError("StreamingLLM is not supported in this release.")
    if plugin["reduce_fusion"] and pretrained["mapping"]["tp_size"] == 1:
        command_log.warning("Overriding reduce_fusion to False")
        plugin["reduce_fusion"] = False
    if plugin["user_buffer"] and not plugin["reduce_fusion"]:
        command_log.warning("Overriding user_buffer to False")
        plugin["user_buffer"] = False
    if plugin["norm_quant_fusion"]:
        command_log.warning("Overriding norm_quant_fusion to False")
        plugin["norm_quant_fusion"] = False
    _resolve_context_attention(plugin, pretrained["quantization"], sm)

    algorithm = pretrained["quantization"]["quant_algo"]
    if algorithm in ("W8A16", "W4A16"):
        plugin["weight_only_quant_matmul_plugin"] = pretrained["dtype"]
    elif algorithm == "W4A16_AWQ":
        plugin["weight_only_groupwise_quant_matmul_plugin"] = pretrained["dtype"]
    elif algorithm == "FP8_PER_CHANNEL_PER_TOKEN":
        plugin["fp8_rowwise_gemm_plugin"] = pretrained["dtype"]
        plugin["rmsnorm_quantization_plugin"] = pretrained["dtype"]
        plugin["quantize_per_token_plugin"] = plugin["quantize_tensor_plugin"] = True
    if algorithm not in (None, "FP8", "MIXED_PRECISION"):
        plugin["use_fused_mlp"] = False
    plugin["nccl_plugin"] = pretrained["dtype"] if pretrained["mapping"]["world_size"] > 1 else None

    if 100 <= sm < 120:
        if algorithm in ("W8A16", "W4A16") or pretrained["quantization"]["kv_cache_quant_algo"] == "INT8":
            raise RuntimeError("INT8/INT4 quantization is not supported on SM>=100.")
        if algorithm == "FP8_PER_CHANNEL_PER_TOKEN":
            raise RuntimeError("Per-channel or per-token scaling is not supported on SM>=100.")


def _resolve_lengths(build: dict[str, Any], pretrained: Mapping[str, Any]) -> None:
    scaling = pretrained.get("rotary_scaling") or {}
    kind = scaling.get("type", scaling.get("rope_type"))
    factor = 1 if kind in ("su", "longrope", "llama3") else scaling.get("factor", 1.0) if scaling else 1
    positions = pretrained["max_position_embeddings"]
    if build["max_seq_len"] is None:
        deduced = positions if positions is not None else 2048
        if factor != 1:
            deduced = math.ceil(deduced * factor)
            command_log.warning(f"max_seq_len is scaled to {deduced} by rotary scaling {factor}")
        build["max_seq_len"] = int(deduced)
        command_log.info(f"max_seq_len is not specified, using deduced value {deduced}")
    elif positions is not None and build["max_seq_len"] > positions * factor:
        command_log.warning(
            f"max_seq_len {build['max_seq_len']} is larger than max_position_embeddings {positions} * rotary scaling "
            f"{factor}, the model accuracy might be affected"
        )
    if build["max_input_len"] > build["max_seq_len"]:
        command_log.warning(
            f"max_input_len is {build['max_input_len']} is larger than max_seq_len {build['max_seq_len']}, "
            "clipping it to max_seq_len"
        )
        build["max_input_len"] = build["max_seq_len"]

    plugin = build["plugin_config"]
    most_tokens = build["max_seq_len"] * build["max_batch_size"]
    if build["max_num_tokens"] > most_tokens:
        command_log.warning(
            f"max_num_tokens ({build['max_num_tokens']}) shouldn't be greater than max_seq_len * max_batch_size "
            f"({most_tokens}), specifying to max_seq_len * max_batch_size ({most_tokens})."
        )
        build["max_num_tokens"] = most_tokens
    if build["opt_num_tokens"] is None:
        build["opt_num_tokens"] = min(build["max_num_tokens"], build["max_batch_size"] * build["max_beam_width"])
        command_log.warning(
            "remove_input_padding is enabled, while opt_num_tokens is not set, setting to "
            "max_batch_size*max_beam_width. "
        )
    elif build["opt_num_tokens"] > build["max_num_tokens"]:
        command_log.warning(
            f"opt_num_tokens ({build['opt_num_tokens']}) shouldn't be greater than max_num_tokens "
            f"({build['max_num_tokens']}), specifying to max_num_tokens ({build['max_num_tokens']})."
        )
        build["opt_num_tokens"] = build["max_num_tokens"]
    if plugin["remove_input_padding"] and plugin["context_fmha"]:
        command_log.warning(
            "padding removal and fMHA are both enabled, max_input_len is not required and will be ignored"
        )


def _resolve_context_attention(plugin: dict[str, Any], quantization: Mapping[str, Any], sm: int) -> None:
    fp8_weights = quantization["quant_algo"] in ("FP8", "W4A8_AWQ", "NVFP4")
    fp8_cache = quantization["kv_cache_quant_algo"] == "FP8"

    def disable_paged_if_fp8_cache() -> None:
        if plugin["use_paged_context_fmha"] and fp8_cache:
            plugin["use_paged_context_fmha"] = False
            command_log.warning("FP8 Paged Context FMHA is disabled because FP8 context FMHA is disabled.")

    if not plugin["context_fmha"]:
        plugin["use_fp8_context_fmha"] = plugin["use_paged_context_fmha"] = False
        command_log.warning("Context FMHA is disabled, FP8 Context FMHA and Paged Context FMHA are disabled.")
    elif not fp8_weights:
        if plugin["use_fp8_context_fmha"]:
            plugin["use_fp8_context_fmha"] = False
            command_log.warning(
                "FP8 Context FMHA is disabled because it must be used together with the fp8 quantization workflow."
            )
        disable_paged_if_fp8_cache()
    elif sm < 89:
        plugin["use_fp8_context_fmha"] = False
        command_log.warning("FP8 context FMHA is disabled because it is only supported on Ada and Hopper Arch.")
        disable_paged_if_fp8_cache()
    elif plugin["use_paged_context_fmha"]:
        if not fp8_cache and plugin["use_fp8_context_fmha"]:
            plugin["use_fp8_context_fmha"] = False
            command_log.warning(
                "FP8 Paged Context FMHA is disabled because it must be used together with fp8 KV Cache."
            )
        elif fp8_cache and not plugin["use_fp8_context_fmha"]:
            plugin["use_fp8_context_fmha"] = True
            command_log.warning("FP8 Context FMHA is enabled to support FP8 Paged Context FMHA.")
    if plugin["use_paged_context_fmha"] and quantization["kv_cache_quant_algo"] == "INT8":
        plugin["use_paged_context_fmha"] = False
        command_log.warning("Paged Context FMHA is disabled because it doesn't work with int8 kv cache currently.")
