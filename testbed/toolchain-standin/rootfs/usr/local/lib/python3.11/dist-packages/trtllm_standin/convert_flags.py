"""Command line of the Llama family's convert_checkpoint.py, release 1.2.1."""

import argparse

from . import HELP_EPILOG


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="convert_checkpoint.py", epilog=HELP_EPILOG)
    add = result.add_argument
    add("--model_dir", type=str, default=None, help="directory of a Hugging Face checkpoint")
    add("--meta_ckpt_dir", type=str, default=None, help="directory of a checkpoint in Meta's format")
    add("--tp_size", type=int, default=1, help="tensor parallelism size")
    add("--pp_size", type=int, default=1, help="pipeline parallelism size")
    add("--moe_tp_size", type=int, default=-1, help="tensor parallelism size of experts, default tp_size")
    add("--cp_size", type=int, default=1, help="context parallelism size")
    add("--moe_ep_size", type=int, default=-1, help="expert parallelism size, default 1")
    add(
        "--dtype",
        type=str,
        default="auto",
        choices=["auto", "float16", "bfloat16", "float32"],
        help="data type of what is not quantized; auto is the source's, and float16 for a float32 source",
    )
    # Shape of the made-up config.json that is written when no checkpoint is named.
    add("--vocab_size", type=int, default=32000)
    add("--n_positions", type=int, default=2048)
    add("--n_layer", type=int, default=32)
    add("--n_head", type=int, default=32)
    add("--n_kv_head", type=int, default=None)
    add("--n_embd", type=int, default=4096)
    add("--inter_size", type=int, default=11008)
    add("--multiple_of", type=int, default=None)
    add("--ffn_dim_multiplier", type=float, default=None)
    add("--rms_norm_eps", type=float, default=1e-06)
    add("--use_weight_only", default=False, action="store_true", help="quantize weights, see --weight_only_precision")
    add("--disable_weight_only_quant_plugin", default=False, action="store_true")
    add(
        "--weight_only_precision",
        const="int8",
        type=str,
        nargs="?",
        default="int8",
        choices=["int8", "int4", "int8_gptq", "int4_gptq", "int4_awq"],
        help="precision of the weights with --use_weight_only",
    )
    add("--calib_dataset", type=str, default="ccdv/cnn_dailymail", help="dataset name or local directory")
    add("--calib_size", type=int, default=512, help="samples for calibration, -1 for all")
    add("--calib_max_seq_length", type=int, default=512, help="longest sample for calibration")
    add("--smoothquant", "-sq", type=float, default=None, help="SmoothQuant's alpha, in [0, 1]")
    add("--use_qserve", default=False, action="store_true", help="QServe W4A8 quantization")
    add("--per_channel", action="store_true", default=False, help="one scale per output channel")
    add("--per_token", action="store_true", default=False, help="one activation scale per token, found at run time")
    add("--int8_kv_cache", default=False, action="store_true", help="INT8 key/value cache")
    add("--fp8_kv_cache", default=False, action="store_true", help="FP8 key/value cache")
    add("--quant_ckpt_path", type=str, default=None, help="quantized checkpoint in .safetensors format")
    add("--use_fp8", action="store_true", default=False, help="FP8 per-tensor quantization")
    add("--use_nvfp4", action="store_true", default=False, help="NVFP4 quantization")
    add("--use_fp8_rowwise", action="store_true", default=False, help="FP8 quantization per token and channel")
    add("--use_meta_fp8_rowwise_recipe", action="store_true", default=False, help="with --use_fp8_rowwise")
    add("--per_group", default=False, action="store_true", help="one scale per group (GPTQ, AWQ, QServe)")
    add("--load_by_shard", action="store_true", help="load the source shard by shard")
    add("--hidden_act", type=str, default="silu")
    add("--rotary_base", type=float, default=10000.0)
    add("--group_size", type=int, default=128, help="group size of GPTQ")
    add("--load_model_on_cpu", action="store_true")
    add("--use_parallel_embedding", action="store_true", default=False, help="shard the embedding table")
    add("--embedding_sharding_dim", type=int, default=0, choices=[0, 1], help="0: vocabulary, 1: hidden dimension")
    add("--output_dir", type=str, default="tllm_checkpoint", help="where the checkpoint is written")
    add("--workers", type=int, default=1, help="ranks converted at the same time")
    add("--moe_num_experts", default=0, type=int)
    add("--moe_top_k", default=0, type=int)
    add("--moe_renorm_mode", default=1, type=int)
    add("--save_config_only", action="store_true", default=False, help="write config.json and no weights")
    add("--remove_duplicated_kv_heads", action="store_true", default=False, help="for Llama 3.1 405B")
    add("--log_level", type=str, default="info")
    return result
