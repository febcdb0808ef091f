"""examples/quantization/quantize.py: calibrate on a GPU node, round the weights, write a TensorRT-LLM checkpoint."""

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from . import HELP_EPILOG
from .calibration import (
    LayerInputs,
    activation_scale,
    awq_prequant_scale,
    kv_cache_scale,
    observe_inputs,
    read_texts,
)
from .convert import CHECKPOINT_METADATA
from .dtypes import FLOAT_FORMATS, Floats, Tensor
from .gpus import device_count
from .hf_model import HuggingFaceWeights, LlamaShape, infer_dtype, read_config, shape_of
from .llama import Llama
from .mapping import Mapping as RankMapping
from .mapping import check_divisible
from .pretrained_config import QuantConfig, mapping_section, pretrained_config
from .quantization import quantize_linear
from .safetensors_io import write_safetensors
from .sharding import shard_llama
from .tokenizer import ModelTokenizer

ALGORITHMS = {"full_prec": None, "fp8": "FP8", "int8_wo": "W8A16", "int4_wo": "W4A16", "int4_awq": "W4A16_AWQ"}
CALIBRATED = ("FP8", "W4A16_AWQ")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="quantize.py", epilog=HELP_EPILOG)
    add = result.add_argument
    add("--model_dir", default=None, help="Hugging Face model")
    add("--nemo_ckpt_path", default=None, help="NeMo checkpoint")
    add("--decoder_type", type=str, default="gptnext", choices=["gptnext", "llama"], help="of a NeMo checkpoint")
    add("--device", default="cuda", choices=["cuda", "cpu"], help="where calibration runs")
    add("--device_map", default="auto", choices=["auto", "sequential", "cpu", "gpu"], help="model on the devices")
    add("--calib_dataset", type=str, default="cnn_dailymail", help="dataset name or local directory")
    add("--calib_tp_size", type=int, default=1, help="of a NeMo checkpoint")
    add("--calib_pp_size", type=int, default=1, help="of a NeMo checkpoint")
    add("--dtype", type=str, default="auto", choices=["auto", "float16", "bfloat16", "float32"])
    formats = ["nvfp4", "fp8", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo", "full_prec"]
    add("--qformat", default="full_prec", choices=formats, help="quantization format")
    add("--seed", type=int, default=1234)
    add("--tokenizer_max_seq_length", type=int, default=2048)
    add("--batch_size", type=int, default=1, help="samples calibrated together")
    add("--calib_size", type=int, default=512, help="samples")
    add("--calib_max_seq_length", type=int, default=512, help="tokens of a sample")
    add("--output_dir", default="exported_model")
    add("--tp_size", type=int, default=1)
    add("--pp_size", type=int, default=1)
    add("--cp_size", type=int, default=1)
    add("--awq_block_size", type=int, default=128)
    add("--kv_cache_dtype", default=None, choices=["int8", "fp8", None])
    add("--quantize_lm_head", action="store_true", default=False)
    add("--num_medusa_heads", type=int, default=4)
    add("--num_medusa_layers", type=int, default=1)
    add("--max_draft_len", type=int, default=63)
    add("--medusa_hidden_act", type=str, default="silu")
    add("--medusa_model_dir", type=str, default=None)
    add("--quant_medusa_head", default=False, action="store_true")
    add("--autoq_format", default=None, type=str, help="formats of automatic quantization")
    add("--auto_quantize_bits", type=float, default=None, help="effective bits of automatic quantization")
    return result


def _refuse_unimplemented(args: argparse.Namespace) -> None:
    refused = None
    if args.qformat not in ALGORITHMS:
        refused = f"--qformat {args.qformat}"
    elif args.quantize_lm_head or args.medusa_model_dir or args.autoq_format or args.auto_quantize_bits:
        refused = "--quantize_lm_head, Medusa and automatic quantization"
    elif args.cp_size != 1:
        refused = "--cp_size above 1"
    if refused:
        raise NotImplementedError(f"STAND-IN: {refused} is not implemented")


def _calibrate(
    args: argparse.Namespace, weights: HuggingFaceWeights, shape: LlamaShape, model_dir: Path
) -> Mapping[str, LayerInputs]:
    """Run the unquantized network over the dataset."""
    tokenizer = ModelTokenizer(model_dir)
    texts = read_texts(args.calib_dataset, args.calib_size)
    samples = [tokenizer.encode(text, add_special_tokens=True)[: args.calib_max_seq_length] for text in texts]
    network = pretrained_config(
        shape,
        dtype="float32",
        mapping=mapping_section(1, 1, 1, 1),
        quant_config=QuantConfig(),
        use_parallel_embedding=False,
        embedding_sharding_dim=0,
    )
    tensors = shard_llama(
        weights,
        shape,
        RankMapping(),
        dtype_format="F32",
        quantize=lambda name, weight: quantize_linear(name, weight, None, dtype_format="F32"),
        use_parallel_embedding=False,
        embedding_sharding_dim=0,
    )
    model = Llama(network, [tensors], max(len(sample) for sample in samples))
    print(f"Calibrating batches of {len(samples)} samples on the CPU (STAND-IN)", flush=True)
    return observe_inputs(model, [sample for sample in samples if sample])


def quantize_and_export(args: argparse.Namespace) -> None:
    """Write config.json and rank<i>.safetensors.

    Raises:
        OSError: no GPU, in the real command's words, or no model.
        AssertionError, ValueError, NotImplementedError, ConnectionError: with the reason.
    """
    if device_count() == 0:
        raise OSError("GPU is required for inference.")
    _refuse_unimplemented(args)
    started = time.monotonic()
    model_dir, output_dir = Path(args.model_dir), Path(args.output_dir)
    print(f"Initializing model from {model_dir}", flush=True)
    config = read_config(model_dir)
    shape, dtype = shape_of(config), infer_dtype(args.dtype, config)
    check_divisible(
        tp_size=args.tp_size,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads,
        intermediate_size=shape.intermediate_size,
    )
    weights = HuggingFaceWeights(model_dir)
    algorithm = ALGORITHMS[args.qformat]
    seen: Mapping[str, LayerInputs] = {}
    if algorithm in CALIBRATED or args.kv_cache_dtype:
        seen = _calibrate(args, weights, shape, model_dir)
    print(f"Quantization done. Total time used: {time.monotonic() - started:.2f} s.", flush=True)

    started = time.monotonic()
    quant = QuantConfig(
        quant_algo=algorithm,
        kv_cache_quant_algo=args.kv_cache_dtype.upper() if args.kv_cache_dtype else None,
        group_size=args.awq_block_size if algorithm == "W4A16_AWQ" else 128,
        pre_quant_scale=algorithm == "W4A16_AWQ",
        exclude_modules=("lm_head",) if algorithm else None,
    )
    document = pretrained_config(
        shape,
        dtype=dtype,
        mapping=mapping_section(args.tp_size, args.pp_size, args.tp_size, 1),
        quant_config=quant,
        use_parallel_embedding=False,
        embedding_sharding_dim=0,
        producer={"name": "modelopt", "version": "STAND-IN"},
    )
    output_dir.mkdir(parents=True, exist_ok=True)
    (output_dir / "config.json").write_text(json.dumps(document, indent=4))
    for rank in range(args.tp_size * args.pp_size):
        mapping = RankMapping(args.tp_size, args.pp_size, rank)
        tensors = shard_llama(
            weights,
            shape,
            mapping,
            dtype_format=FLOAT_FORMATS[dtype],
            quantize=_Quantizer(args, quant, mapping, shape, FLOAT_FORMATS[dtype], seen),
            use_parallel_embedding=False,
            embedding_sharding_dim=0,
        )
        write_safetensors(output_dir / f"rank{rank}.safetensors", tensors, CHECKPOINT_METADATA)
    print(f"Quantized model exported to {output_dir} \nTotal time used {time.monotonic() - started:.2f} s.", flush=True)


class _Quantizer:
    """Rounds one rank's linear layers with what calibration saw of the whole layer's inputs."""

    def __init__(
        self,
        args: argparse.Namespace,
        quant: QuantConfig,
        mapping: RankMapping,
        shape: LlamaShape,
        dtype_format: str,
        seen: Mapping[str, LayerInputs],
    ) -> None:
        self._quant, self._mapping, self._shape, self._seen = quant, mapping, shape, seen
        self._dtype_format = dtype_format
        self._cache_dtype = args.kv_cache_dtype

    def __call__(self, name: str, weight: Floats) -> dict[str, Tensor]:
        match = re.fullmatch(r"transformer\.layers\.(\d+)\.(.+)", name)
        assert match, name
        layer = self._mapping.layers(self._shape.num_hidden_layers)[int(match[1])]
        inputs = self._seen.get(f"{layer}.{match[2]}")
        prequant = None
        if self._quant.quant_algo == "W4A16_AWQ" and inputs is not None:
            prequant = awq_prequant_scale(weight, self._of_rank(inputs, weight.shape[1]), self._quant.group_size)
        stored = quantize_linear(
            name,
            weight,
            self._quant.quant_algo,
            dtype_format=self._dtype_format,
            group_size=self._quant.group_size,
            activation_scale=activation_scale(inputs) if inputs is not None else 1.0,
            prequant_scale=prequant,
        )
        if match[2] == "attention.qkv" and self._cache_dtype:
            scale = kv_cache_scale(self._seen[f"{layer}.attention.kv"], self._cache_dtype)
            prefix = name.removesuffix(".qkv")
            stored[f"{prefix}.kv_cache_scaling_factor"] = Tensor("F32", np.array([scale], np.float32))
        return stored

    def _of_rank(self, inputs: LayerInputs, columns: int) -> LayerInputs:
        """The columns that a row-parallel layer's shard multiplies; all of them for a column-parallel layer."""
        assert inputs.mean_magnitude is not None
        if len(inputs.mean_magnitude) == columns:
            return inputs
        part = slice(self._mapping.tp_rank * columns, (self._mapping.tp_rank + 1) * columns)
        return LayerInputs(inputs.largest, inputs.mean_magnitude[part], [rows[:, part] for rows in inputs.rows])


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    if args.model_dir is not None:
        quantize_and_export(args)
    elif args.nemo_ckpt_path is not None:
        raise NotImplementedError("STAND-IN: NeMo checkpoints are not implemented")
    else:
        raise ValueError("One of source checkpoint (model_dir, nemo_ckpt_path) must be specified")
