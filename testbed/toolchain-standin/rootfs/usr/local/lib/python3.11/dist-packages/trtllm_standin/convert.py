"""convert_checkpoint.py of the Llama family: a Hugging Face checkpoint becomes one file of weights per rank."""

import argparse
import json
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from . import NOTICE, TENSORRT_LLM_VERSION
from .convert_flags import parser
from .dtypes import FLOAT_FORMATS, Floats, Tensor
from .hf_model import HuggingFaceWeights, infer_dtype, read_config, shape_of
from .log import command_log, elapsed
from .mapping import Mapping, check_divisible
from .pretrained_config import QuantConfig, mapping_section, pretrained_config
from .quantization import SUPPORTED, quantize_linear
from .safetensors_io import write_safetensors
from .sharding import shard_llama

CHECKPOINT_METADATA = {"producer": f"{NOTICE}, as TensorRT-LLM {TENSORRT_LLM_VERSION}"}
# With `--use_fp8_rowwise` the real default, unless the source's own quantization_config has another bound.
FP8_ROWWISE_CLAMP = (-1200.0, 1200.0)


def quant_config_of(args: argparse.Namespace) -> QuantConfig:
    """What the flags ask for, in the real command's order of precedence."""
    result = QuantConfig(use_meta_recipe=args.use_meta_fp8_rowwise_recipe)
    if args.use_weight_only:
        gptq = args.weight_only_precision.endswith("_gptq")
        awq = args.weight_only_precision.endswith("_awq")
        algorithm = {
            "int8": "W8A16",
            "int4": "W4A16",
            "int8_gptq": "W8A16_GPTQ",
            "int4_gptq": "W4A16_GPTQ",
            "int4_awq": "W4A16_AWQ",
        }[args.weight_only_precision]
        group_size = args.group_size if gptq or awq else 128
        result = replace(result, quant_algo=algorithm, group_size=group_size, has_zero_point=gptq, pre_quant_scale=awq)
    elif args.use_fp8:
        result = replace(result, quant_algo="FP8")
    elif args.use_nvfp4:
        result = replace(result, quant_algo="NVFP4")
    elif args.smoothquant:
        channels = "PER_CHANNEL" if args.per_channel else "PER_TENSOR"
        tokens = "PER_TOKEN_PLUGIN" if args.per_token else "PER_TENSOR_PLUGIN"
        name = (
            "PER_TENSOR_PLUGIN" if (channels, tokens) == ("PER_TENSOR", "PER_TENSOR_PLUGIN") else f"{channels}_{tokens}"
        )
        result = replace(result, quant_algo=f"W8A8_SQ_{name}")
    elif args.use_fp8_rowwise:
        result = replace(result, quant_algo="FP8_PER_CHANNEL_PER_TOKEN", clamp_val=FP8_ROWWISE_CLAMP)
    elif args.use_qserve:
        result = replace(result, quant_algo="W4A8_QSERVE_PER_GROUP" if args.per_group else "W4A8_QSERVE_PER_CHANNEL")
    if args.int8_kv_cache:
        result = replace(result, kv_cache_quant_algo="INT8")
    if args.fp8_kv_cache:
        result = replace(result, kv_cache_quant_algo="FP8")
    return result


def check_supported(args: argparse.Namespace, quant: QuantConfig, config: dict[str, Any]) -> None:
    """Refuse what is a legal command line and the stand-in does not compute; it never pretends."""
    refused = None
    if args.cp_size != 1:
        refused = f"--cp_size {args.cp_size}"
    elif config.get("quantization_config"):
        refused = f"a source checkpoint quantized by {config['quantization_config'].get('quant_method')}"
    elif quant.kv_cache_quant_algo == "INT8" or args.smoothquant:
        refused = "calibration in convert_checkpoint.py (--int8_kv_cache, --smoothquant)"
    elif quant.quant_algo in ("FP8", "W4A16_AWQ"):
        refused = f"{quant.quant_algo} of a checkpoint that is not quantized already (use quantize.py)"
    elif quant.quant_algo not in SUPPORTED:
        refused = f"quantization {quant.quant_algo}"
    elif quant.use_meta_recipe:
        refused = "--use_meta_fp8_rowwise_recipe"
    if refused:
        raise NotImplementedError(f"STAND-IN: {refused} is not implemented")


def made_up_config(args: argparse.Namespace) -> dict[str, Any]:
    """What the real command writes, with success, when it is given no checkpoint at all."""
    return {
        "architecture": "LlamaForCausalLM",
        "dtype": "float16" if args.dtype == "auto" else args.dtype,
        "logits_dtype": "float32",
        "num_hidden_layers": args.n_layer,
        "num_attention_heads": args.n_head,
        "hidden_size": args.n_embd,
        "intermediate_size": args.inter_size,
        "ffn_dim_multiplier": args.ffn_dim_multiplier,
        "multiple_of": args.multiple_of,
        "num_key_value_heads": args.n_kv_head if args.n_kv_head is not None else args.n_head,
        "vocab_size": args.vocab_size,
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": args.n_positions,
        "hidden_act": args.hidden_act,
        "rotary_base": args.rotary_base,
        "norm_epsilon": args.rms_norm_eps,
        "moe": {
            "num_experts": args.moe_num_experts,
            "top_k": args.moe_top_k,
            "normalization_mode": args.moe_renorm_mode,
        },
        "mapping": {
            "world_size": args.tp_size * args.pp_size * args.cp_size,
            "tp_size": args.tp_size,
            "pp_size": args.pp_size,
            "moe_tp_size": args.moe_tp_size,
            "moe_ep_size": args.moe_ep_size,
            "cp_size": args.cp_size,
        },
        "quantization": quant_config_of(args).to_dict(),
        **build_options(args),
        "use_parallel_embedding": args.use_parallel_embedding,
        "embedding_sharding_dim": args.embedding_sharding_dim,
    }


def build_options(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "disable_weight_only_quant_plugin": args.disable_weight_only_quant_plugin,
        "remove_duplicated_kv_heads": args.remove_duplicated_kv_heads,
        "quant_ckpt_path": args.quant_ckpt_path,
        "load_model_on_cpu": args.load_model_on_cpu,
    }


def convert_hugging_face(args: argparse.Namespace, output_dir: Path) -> None:
    """Write config.json and rank<i>.safetensors of every rank.

    Raises:
        OSError, AssertionError, NotImplementedError: with the reason; the real command ends with a trace of it too.
    """
    model_dir = Path(args.model_dir)
    try:
        config = read_config(model_dir)
    except (OSError, ValueError):
        command_log.warning("AutoConfig cannot load the huggingface config.")
        raise
    quant = quant_config_of(args)
    check_supported(args, quant, config)
    shape = shape_of(config)
    dtype = infer_dtype(args.dtype, config)
    check_divisible(
        tp_size=args.tp_size,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads,
        intermediate_size=shape.intermediate_size,
    )
    document = pretrained_config(
        shape,
        dtype=dtype,
        mapping=mapping_section(args.tp_size, args.pp_size, args.moe_tp_size, args.moe_ep_size),
        quant_config=quant,
        use_parallel_embedding=args.use_parallel_embedding,
        embedding_sharding_dim=args.embedding_sharding_dim,
        **build_options(args),
    )
    weights = None if args.save_config_only else HuggingFaceWeights(model_dir)

    def quantize(name: str, weight: Floats) -> dict[str, Tensor]:
        stored = quantize_linear(name, weight, quant.quant_algo, dtype_format=FLOAT_FORMATS[dtype])
        if name.endswith(".qkv") and quant.kv_cache_quant_algo == "FP8":
            scale = Tensor("F32", np.ones(1, np.float32))
            stored[f"{name.removesuffix('.qkv')}.kv_cache_scaling_factor"] = scale
        return stored

    def convert_rank(rank: int) -> None:
        started = time.monotonic()
        if rank == 0:
            (output_dir / "config.json").write_text(json.dumps(document, indent=4))
        if weights is None:
            return
        tensors = shard_llama(
            weights,
            shape,
            Mapping(args.tp_size, args.pp_size, rank),
            dtype_format=FLOAT_FORMATS[dtype],
            quantize=quantize,
            use_parallel_embedding=args.use_parallel_embedding,
            embedding_sharding_dim=args.embedding_sharding_dim,
        )
        print(f"Total time of reading and converting: {time.monotonic() - started:.3f} s", flush=True)
        started = time.monotonic()
        write_safetensors(output_dir / f"rank{rank}.safetensors", tensors, CHECKPOINT_METADATA)
        print(f"Total time of saving checkpoint: {time.monotonic() - started:.3f} s", flush=True)

    ranks = range(args.tp_size * args.pp_size)
    if args.workers == 1:
        for rank in ranks:
            convert_rank(rank)
        return
    with ThreadPoolExecutor(max_workers=args.workers) as pool:
        failures = [future.exception() for future in [pool.submit(convert_rank, rank) for rank in ranks]]
    for failure in filter(None, failures):
        traceback.print_exception(failure)
    assert not any(failures), "Checkpoint conversion failed, please check error log."


def main(arguments: Sequence[str] | None = None) -> None:
    print(TENSORRT_LLM_VERSION)
    args = parser().parse_args(arguments)
    started = time.monotonic()
    if args.moe_num_experts and args.moe_top_k == 0:
        args.moe_top_k = 1
    if args.moe_tp_size == -1 and args.moe_ep_size == -1:
        args.moe_tp_size, args.moe_ep_size = args.tp_size, 1
    elif args.moe_tp_size == -1:
        args.moe_tp_size = args.tp_size // args.moe_ep_size
    elif args.moe_ep_size == -1:
        args.moe_ep_size = args.tp_size // args.moe_tp_size
    assert args.moe_tp_size * args.moe_ep_size == args.tp_size, "moe_tp_size * moe_ep_size must equal to tp_size"

    output_dir = Path(args.output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    if args.model_dir is None and args.meta_ckpt_dir is None:
        (output_dir / "config.json").write_text(json.dumps(made_up_config(args), indent=4))
    elif args.meta_ckpt_dir is not None:
        assert args.model_dir is None, "Shall not specify both meta checkpoint dir and hugging face dir"
        raise NotImplementedError("STAND-IN: checkpoints in Meta's format are not implemented")
    else:
        assert args.quant_ckpt_path is None or (
            args.weight_only_precision in ("int4_gptq", "int8_gptq") or args.use_qserve
        ), "only gptq weights or qserve need this option"
        convert_hugging_face(args, output_dir)
    print(f"Total time of converting checkpoints: {elapsed(time.monotonic() - started)}", flush=True)
