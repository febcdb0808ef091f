"""A Hugging Face Llama checkpoint on disk: its config.json and its safetensors files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .dtypes import FLOAT_FORMATS, Floats, widen
from .safetensors_io import SafetensorsFile

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")


@dataclass(frozen=True)
class LlamaShape:
    """What the network's arithmetic depends on."""

    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    norm_epsilon: float
    rotary_base: float
    rotary_scaling: Mapping[str, Any] | None
    tie_word_embeddings: bool


def read_config(model_dir: Path) -> dict[str, Any]:
    """config.json of a model directory.

    Raises:
        OSError: there is none, in transformers' words.
    """
    path = model_dir / "config.json"
    if not path.is_file():
        raise OSError(f"{model_dir} does not appear to have a file named config.json.")
    config: dict[str, Any] = json.loads(path.read_text())
    return config


def shape_of(config: Mapping[str, Any]) -> LlamaShape:
    """Raises AssertionError for a network that the stand-in does not compute."""
    architecture = (config.get("architectures") or ["none"])[0]
    assert architecture in ARCHITECTURES, (
        f"Unsupported model architecture: {architecture} (the STAND-IN computes {', '.join(ARCHITECTURES)})"
    )
    assert config.get("hidden_act", "silu") == "silu", f"STAND-IN: hidden_act {config['hidden_act']} is not computed"
    for bias in ("attention_bias", "mlp_bias"):
        assert not config.get(bias), f"STAND-IN: {bias} is not computed"
    heads = config["num_attention_heads"]
    return LlamaShape(
        num_hidden_layers=config["num_hidden_layers"],
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or config["hidden_size"] // heads,
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        max_position_embeddings=config.get("max_position_embeddings", 2048),
        norm_epsilon=config.get("rms_norm_eps", 1e-6),
        rotary_base=config.get("rope_theta", 10000.0),
        rotary_scaling=config.get("rope_scaling"),
        tie_word_embeddings=config.get("tie_word_embeddings", False),
    )


def infer_dtype(requested: str, config: Mapping[str, Any]) -> str:
    """`auto` is the source's dtype, and float16 where that is float32 or unknown."""
    if requested != "auto":
        return requested
    source = config.get("torch_dtype") or config.get("dtype")
    return source if source in FLOAT_FORMATS and source != "float32" else "float16"


class HuggingFaceWeights:
    """Tensors of a model directory under their Hugging Face names, from one file or several."""

    def __init__(self, model_dir: Path) -> None:
        index = model_dir / "model.safetensors.index.json"
        if index.is_file():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            paths = [model_dir / name for name in names]
        else:
            paths = sorted(model_dir.glob("*.safetensors"))
        if not paths:
            raise OSError(f"Error no file named model.safetensors found in directory {model_dir}.")
        self._files = [SafetensorsFile(path) for path in paths]

    def __contains__(self, name: str) -> bool:
        return any(name in file for file in self._files)

    def get(self, name: str, default: Floats) -> Floats:
        try:
            return self[name]
        except KeyError:
            return default

    def __getitem__(self, name: str) -> Floats:
        """Float32 values of one tensor; raises KeyError."""
        for file in self._files:
            if name in file:
                return widen(file[name])
        raise KeyError(name)
