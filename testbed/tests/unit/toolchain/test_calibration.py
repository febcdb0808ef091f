"""quantize.py: what it needs, and that calibration counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from trtllm_standin import quantize_command as command
from trtllm_standin.calibration import LayerInputs, awq_prequant_scale
from trtllm_standin.dtypes import Floats, widen
from trtllm_standin.quantization import dequantize_linear, quantize_linear
from trtllm_standin.safetensors_io import SafetensorsFile

Make = Callable[..., Path]


@pytest.fixture
def model(make_model: Make) -> Path:
    directory = make_model(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2)
    tokenizer = Tokenizer(WordLevel({f"w{number}": number for number in range(50)}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    directory = tmp_path / "dataset"
    directory.mkdir()
    rows = [{"article": " ".join(f"w{(start + step) % 50}" for step in range(12))} for start in range(5)]
    (directory / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return directory


def quantize(model: Path, output: Path, *flags: str) -> dict[str, Floats]:
    command.main(["--model_dir", str(model), "--output_dir", str(output), "--dtype", "float32", *flags])
    file = SafetensorsFile(output / "rank0.safetensors")
    return {name: widen(file[name]) for name in file.names()}


def test_without_a_gpu_it_fails_as_the_real_one_does(model: Path, tmp_path: Path, no_gpu: None) -> None:
    with pytest.raises(OSError, match=r"^GPU is required for inference\.$"):
        quantize(model, tmp_path / "c")


def test_a_dataset_of_the_hub_cannot_be_reached(model: Path, tmp_path: Path, h100: None) -> None:
    with pytest.raises(ConnectionError, match="Couldn't reach 'cnn_dailymail' on the Hub"):
        quantize(model, tmp_path / "c", "--qformat", "fp8")


def test_fp8_has_scales_that_calibration_found(model: Path, dataset: Path, tmp_path: Path, h100: None) -> None:
    flags = ["--qformat", "fp8", "--kv_cache_dtype", "fp8", "--calib_dataset", str(dataset)]
    tensors = quantize(model, tmp_path / "c", *flags)
    config = json.loads((tmp_path / "c/config.json").read_text())
    assert (config["quantization"]["quant_algo"], config["quantization"]["kv_cache_quant_algo"]) == ("FP8", "FP8")
    assert config["producer"]["name"] == "modelopt"
    scales = {float(array[0]) for name, array in tensors.items() if name.endswith("activation_scaling_factor")}
    assert len(scales) > 3, "each layer's inputs have a range of their own"
    assert max(scales) < 1
    kv_scales = [float(array[0]) for name, array in tensors.items() if name.endswith("kv_cache_scaling_factor")]
    assert len(kv_scales) == 3
    assert all(0 < scale < 1 for scale in kv_scales)


@pytest.mark.parametrize(("qformat", "algorithm"), [("full_prec", None), ("int8_wo", "W8A16"), ("int4_wo", "W4A16")])
def test_what_needs_no_calibration_reads_no_dataset(
    model: Path, tmp_path: Path, h100: None, qformat: str, algorithm: str | None
) -> None:
    quantize(model, tmp_path / "c", "--qformat", qformat)
    assert json.loads((tmp_path / "c/config.json").read_text())["quantization"]["quant_algo"] == algorithm


def test_awq_blocks_must_divide_the_columns(model: Path, dataset: Path, tmp_path: Path, h100: None) -> None:
    flags = ["--qformat", "int4_awq", "--calib_dataset", str(dataset)]
    with pytest.raises(ValueError, match=r"has 64 input columns per rank, block size 128"):
        quantize(model, tmp_path / "c", *flags)
    tensors = quantize(model, tmp_path / "d", *flags, "--awq_block_size", "64")
    assert "transformer.layers.0.mlp.proj.prequant_scaling_factor" in tensors
    assert json.loads((tmp_path / "d/config.json").read_text())["quantization"]["group_size"] == 64


def test_awq_keeps_outputs_closer_than_plain_rounding() -> None:
    """A few input columns are a hundred times larger than the rest: their weights must keep their precision."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((32, 64)).astype(np.float32)
    rows = random.standard_normal((48, 64)).astype(np.float32)
    rows[:, :4] *= 100
    inputs = LayerInputs(float(np.abs(rows).max()), np.abs(rows).mean(axis=0), [rows], len(rows))

    def output_error(scale: Floats | None) -> float:
        stored = quantize_linear("x", weight, "W4A16_AWQ", dtype_format="F16", group_size=64, prequant_scale=scale)
        return float(((rows @ (dequantize_linear("x", stored, "W4A16_AWQ") - weight).T) ** 2).sum())

    assert output_error(awq_prequant_scale(weight, inputs, 64)) < 0.25 * output_error(None)


@pytest.mark.parametrize("flags", [["--qformat", "nvfp4"], ["--quantize_lm_head"]])
def test_what_is_not_computed_is_refused(model: Path, tmp_path: Path, h100: None, flags: list[str]) -> None:
    with pytest.raises(NotImplementedError, match="STAND-IN"):
        quantize(model, tmp_path / "c", *flags)


def test_a_flag_that_the_release_lacks_is_refused(model: Path, tmp_path: Path, h100: None) -> None:
    with pytest.raises(SystemExit) as refused:
        quantize(model, tmp_path / "c", "--qformat", "fp8", "--export_format", "tensorrt_llm")
    assert refused.value.code == 2
