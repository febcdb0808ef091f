"""convert_checkpoint.py: files, keys, shards, roundings and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from trtllm_standin import convert as command
from trtllm_standin.dtypes import Floats, widen
from trtllm_standin.quantization import dequantize_linear
from trtllm_standin.safetensors_io import SafetensorsFile

Convert = Callable[..., Path]
MakeModel = Callable[..., Path]
LAYER = "transformer.layers.0"
SOURCE = "model.layers.0"


def rank_tensors(checkpoint: Path, rank: int) -> dict[str, Floats]:
    file = SafetensorsFile(checkpoint / f"rank{rank}.safetensors")
    return {name: widen(file[name]) for name in file.names()}


def test_it_writes_one_file_per_rank_and_the_real_keys(make_model: MakeModel, convert: Convert) -> None:
    checkpoint = convert(make_model(), "--tp_size", "3")
    names = sorted(path.name for path in checkpoint.iterdir())
    assert names == ["config.json", "rank0.safetensors", "rank1.safetensors", "rank2.safetensors"]
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["architecture"] == "LlamaForCausalLM"
    assert (
        config["mapping"] | {"world_size": 3, "tp_size": 3, "pp_size": 1, "cp_size": 1, "gpus_per_node": 8}
        == (config["mapping"])
    )
    assert config["quantization"]["quant_algo"] is None
    assert (config["num_hidden_layers"], config["num_key_value_heads"], config["head_size"]) == (3, 3, 4)
    assert (config["dtype"], config["logits_dtype"]) == ("float32", "float32")


def test_shards_put_together_are_the_model(make_model: MakeModel, convert: Convert) -> None:
    model = make_model(tie_word_embeddings=False)
    source = load_file(model / "model.safetensors")
    ranks = [rank_tensors(convert(model, "--tp_size", "3"), rank) for rank in range(3)]
    assert np.array_equal(
        np.concatenate([rank[f"{LAYER}.mlp.fc.weight"] for rank in ranks]), source[f"{SOURCE}.mlp.gate_proj.weight"]
    )
    assert np.array_equal(
        np.concatenate([rank[f"{LAYER}.mlp.proj.weight"] for rank in ranks], axis=1),
        source[f"{SOURCE}.mlp.down_proj.weight"],
    )
    assert np.array_equal(
        np.concatenate([rank[f"{LAYER}.attention.dense.weight"] for rank in ranks], axis=1),
        source[f"{SOURCE}.self_attn.o_proj.weight"],
    )
    # Of each rank's qkv: two query heads, one key head and one value head of four rows each.
    for part, (rows, name) in {
        "q": (slice(0, 8), "q_proj"),
        "k": (slice(8, 12), "k_proj"),
        "v": (slice(12, 16), "v_proj"),
    }.items():
        whole = np.concatenate([rank[f"{LAYER}.attention.qkv.weight"][rows] for rank in ranks])
        assert np.array_equal(whole, source[f"{SOURCE}.self_attn.{name}.weight"]), part
    head = np.concatenate([rank["lm_head.weight"] for rank in ranks])
    assert head.shape == (51, 24), "50 vocabulary rows are padded to 51, a multiple of 3"
    assert np.array_equal(head[:50], source["lm_head.weight"])
    assert not head[50:].any()


def test_kv_heads_are_duplicated_when_there_are_more_ranks(make_model: MakeModel, convert: Convert) -> None:
    model = make_model(num_key_value_heads=1)
    key = load_file(model / "model.safetensors")[f"{SOURCE}.self_attn.k_proj.weight"]
    checkpoint = convert(model, "--tp_size", "3")
    for rank in range(3):
        assert np.array_equal(rank_tensors(checkpoint, rank)[f"{LAYER}.attention.qkv.weight"][8:12], key)


def test_pipeline_stages_number_their_layers_from_zero(make_model: MakeModel, convert: Convert) -> None:
    model = make_model()
    source = load_file(model / "model.safetensors")
    first, last = (rank_tensors(convert(model, "--pp_size", "2"), rank) for rank in range(2))
    assert "transformer.vocab_embedding.weight" in first
    assert "transformer.ln_f.weight" not in first
    assert "transformer.vocab_embedding.weight" not in last
    assert np.array_equal(last["lm_head.weight"], source["model.embed_tokens.weight"]), "tied, but on another rank"
    assert np.array_equal(last[f"{LAYER}.mlp.proj.weight"], source["model.layers.2.mlp.down_proj.weight"]), (
        "three layers: two on the first stage, one on the second"
    )


def test_a_tied_head_is_not_stored_twice(make_model: MakeModel, convert: Convert) -> None:
    assert "lm_head.weight" not in rank_tensors(convert(make_model()), 0)
    sharded = convert(make_model(), "--tp_size", "3", "--use_parallel_embedding")
    assert "lm_head.weight" not in rank_tensors(sharded, 1)
    assert "lm_head.weight" in rank_tensors(convert(make_model(), "--tp_size", "3"), 1)


def test_float32_sources_become_float16_by_default(make_model: MakeModel, tmp_path: Path) -> None:
    command.main(["--model_dir", str(make_model()), "--output_dir", str(tmp_path / "c")])
    assert json.loads((tmp_path / "c/config.json").read_text())["dtype"] == "float16"
    assert SafetensorsFile(tmp_path / "c/rank0.safetensors")[f"{LAYER}.mlp.fc.weight"].format == "F16"


def test_nine_heads_are_not_cut_in_two(make_model: MakeModel, convert: Convert) -> None:
    model = make_model(hidden_size=36, num_attention_heads=9)
    with pytest.raises(AssertionError, match=r"num_attention_heads must be divisible by tp_size \(9 % 2 != 0\)"):
        convert(model, "--tp_size", "2")


@pytest.mark.parametrize(
    ("flags", "algorithm", "stored", "tolerance"),
    [
        (["--use_weight_only"], "W8A16", "I8", 1 / 254),
        (["--use_weight_only", "--weight_only_precision", "int4"], "W4A16", "I8", 1 / 14),
        (["--use_fp8_rowwise"], "FP8_PER_CHANNEL_PER_TOKEN", "F8_E4M3", 1 / 28),
    ],
)
def test_quantized_weights_are_rounded_and_small(
    make_model: MakeModel, convert: Convert, flags: list[str], algorithm: str, stored: str, tolerance: float
) -> None:
    """The largest error of a row is half a step: of 127 or 7 steps, or of e4m3's 3 mantissa bits, up to its largest."""
    model = make_model()
    weight = load_file(model / "model.safetensors")[f"{SOURCE}.mlp.gate_proj.weight"]
    checkpoint = convert(model, *flags)
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["quantization"]["quant_algo"] == algorithm
    file = SafetensorsFile(checkpoint / "rank0.safetensors")
    tensors = {name: file[name] for name in file.names()}
    assert tensors[f"{LAYER}.mlp.fc.weight"].format == stored
    assert tensors[f"{LAYER}.mlp.fc.weight"].nbytes == weight.size // (2 if algorithm == "W4A16" else 1)
    error = np.abs(dequantize_linear(f"{LAYER}.mlp.fc", tensors, algorithm) - weight)
    assert error.max() > 0, "rounding to 8 or 4 bits changes random weights"
    assert (error.max(axis=1) <= np.abs(weight).max(axis=1) * tolerance * 1.01).all()
    assert tensors["transformer.vocab_embedding.weight"].format == "F32", "the embedding is not quantized"


def test_an_unknown_flag_is_refused_as_argparse_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--model_dir", "x", "--use_embedding_sharing"])
    assert ended.value.code == 2
    assert "error: unrecognized arguments: --use_embedding_sharing" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        command.main(["--dtype", "float8"])
    assert ended.value.code == 2


def test_without_a_model_it_succeeds_with_a_made_up_config(tmp_path: Path) -> None:
    command.main(["--output_dir", str(tmp_path / "c"), "--tp_size", "2"])
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["config.json"]
    assert json.loads((tmp_path / "c/config.json").read_text())["num_hidden_layers"] == 32


@pytest.mark.parametrize(
    ("overrides", "flags", "message"),
    [
        ({"architectures": ["FalconForCausalLM"]}, [], "Unsupported model architecture: FalconForCausalLM"),
        ({"attention_bias": True}, [], "STAND-IN: attention_bias"),
        ({"quantization_config": {"quant_method": "awq"}}, [], "STAND-IN: a source checkpoint quantized by awq"),
        ({}, ["--use_nvfp4"], "STAND-IN: quantization NVFP4"),
        ({}, ["--smoothquant", "0.5"], "STAND-IN: calibration"),
        ({}, ["--cp_size", "2"], "STAND-IN: --cp_size 2"),
        ({}, ["--moe_tp_size", "3"], "moe_tp_size"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(
    make_model: MakeModel, convert: Convert, overrides: dict[str, Any], flags: list[str], message: str
) -> None:
    with pytest.raises((AssertionError, NotImplementedError), match=message):
        convert(make_model(**overrides), *flags)


def test_workers_give_the_same_files_and_report_their_failures(
    make_model: MakeModel, convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    one, three = convert(model, "--tp_size", "3"), convert(model, "--tp_size", "3", "--workers", "3")
    for rank in range(3):
        name = f"rank{rank}.safetensors"
        assert (one / name).read_bytes() == (three / name).read_bytes()

    def full_disk(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(command, "write_safetensors", full_disk)
    with pytest.raises(AssertionError, match="Checkpoint conversion failed, please check error log"):
        convert(model, "--tp_size", "3", "--workers", "3")
