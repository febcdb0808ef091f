"""Small random Llama models, stand-in GPUs, and the stand-in's package on the path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from testbed.tests.unit.toolchain.standin import gpu

MakeModel = Callable[..., Path]


@pytest.fixture
def h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process sees one stand-in H100."""
    monkeypatch.setenv("LLMENGINE_STANDIN_GPUS", json.dumps([gpu()]))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMENGINE_STANDIN_GPUS", raising=False)


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Writes a random Hugging Face Llama checkpoint; keyword arguments override config.json."""

    def make(seed: int = 0, **overrides: Any) -> Path:
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 24,
            "intermediate_size": 36,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "num_hidden_layers": 3,
            "vocab_size": 50,
            "max_position_embeddings": 128,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "hidden_act": "silu",
            "eos_token_id": 2,
            **overrides,
        }
        random = np.random.default_rng(seed)
        hidden, heads, kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
        size = hidden // heads

        def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
            values: npt.NDArray[np.float32] = (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(
                np.float32
            )
            return values

        weights = {
            "model.embed_tokens.weight": matrix(config["vocab_size"], hidden) * 4,
            "model.norm.weight": 1 + matrix(1, hidden)[0],
        }
        if not config["tie_word_embeddings"]:
            weights["lm_head.weight"] = matrix(config["vocab_size"], hidden)
        for layer in range(config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            weights |= {
                f"{name}.self_attn.q_proj.weight": matrix(heads * size, hidden),
                f"{name}.self_attn.k_proj.weight": matrix(kv_heads * size, hidden),
                f"{name}.self_attn.v_proj.weight": matrix(kv_heads * size, hidden),
                f"{name}.self_attn.o_proj.weight": matrix(hidden, heads * size),
                f"{name}.mlp.gate_proj.weight": matrix(config["intermediate_size"], hidden),
                f"{name}.mlp.up_proj.weight": matrix(config["intermediate_size"], hidden),
                f"{name}.mlp.down_proj.weight": matrix(hidden, config["intermediate_size"]),
                f"{name}.input_layernorm.weight": 1 + matrix(1, hidden)[0],
                f"{name}.post_attention_layernorm.weight": 1 + matrix(1, hidden)[0],
            }
        directory = tmp_path / f"model-{len(list(tmp_path.glob('model-*')))}"
        directory.mkdir()
        save_file(weights, directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps(config))
        return directory

    return make


@pytest.fixture
def convert(tmp_path: Path) -> Callable[..., Path]:
    """Runs convert_checkpoint.py's main on a model and returns the checkpoint's directory."""
    from trtllm_standin import convert as command

    def run(model: Path, *flags: str) -> Path:
        output = tmp_path / f"checkpoint-{len(list(tmp_path.glob('checkpoint-*')))}"
        command.main(["--model_dir", str(model), "--output_dir", str(output), "--dtype", "float32", *flags])
        return output

    return run


@pytest.fixture
def build(tmp_path: Path, h100: None) -> Callable[..., Path]:
    """Runs trtllm-build's main on a checkpoint, on a stand-in H100, and returns the engine's directory."""
    from tensorrt_llm.commands import build as command

    def run(checkpoint: Path, *flags: str) -> Path:
        output = tmp_path / f"engine-{len(list(tmp_path.glob('engine-*')))}"
        limits = ["--max_batch_size", "4", "--max_seq_len", "96", "--max_input_len", "64", "--max_num_tokens", "64"]
        cache = ["--output_timing_cache", str(tmp_path / "model.cache")]
        command.main(["--checkpoint_dir", str(checkpoint), "--output_dir", str(output), *limits, *cache, *flags])
        return output

    return run


@pytest.fixture
def engine(make_model: MakeModel, convert: Callable[..., Path], build: Callable[..., Path]) -> Callable[..., Path]:
    """An engine of a random model, cut as the flags of convert_checkpoint.py say."""

    def make(*flags: str, **overrides: Any) -> Path:
        return build(convert(make_model(**overrides), *flags))

    return make


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """trtllm-build writes its timing cache to the working directory, as the real one does."""
    monkeypatch.chdir(tmp_path)
