"""The converted SmolLM2, against what is published of the model, and as a language model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from testbed.hub import repository
from testbed.images.build import ensure_model
from testbed.images.cache import Cache, cache_directory
from testbed.images.definitions import MODEL
from testbed.progress import PROGRESS

Floats = npt.NDArray[np.float32]
QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def model() -> Path:
    return ensure_model(Cache(cache_directory()), PROGRESS)


def test_the_checkpoint_has_the_published_shape(model: Path) -> None:
    """Numbers of HuggingFaceTB/SmolLM2-135M-Instruct: 134,515,008 parameters in 272 tensors."""
    with safe_open(model / "model.safetensors", framework="numpy") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (no mapping)
        assert {file.get_slice(name).get_dtype() for name in shapes} == {"F16"}
    assert len(shapes) == 272
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 134_515_008
    config = json.loads((model / "config.json").read_text())
    published = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-05,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "vocab_size": 49152,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    assert {name: config[name] for name in published} == published


def test_the_commit_is_the_one_that_manifests_pin(model: Path) -> None:
    """It follows from the content alone, so it is the same on every machine."""
    assert repository.load(MODEL, model).commit == "82f5f50dfd03f8b957a8959a4edd1caffee2ca5c"


def test_text_survives_the_tokenizer(model: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    text = "In 2024, naïve café owners paid 1,234 € (≈ £1,050).\n\tif x == 10:  # 日本"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode("2024").tokens == ["2", "0", "2", "4"]
    assert tokenizer.encode(QUESTION).ids[0] == 1


def test_the_model_answers(model: Path) -> None:
    """Greedy decoding in float32. Heads put back in a wrong order, or a wrong tokenizer, give no sentence at all."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = tokenizer.encode(QUESTION).ids
    config = json.loads((model / "config.json").read_text())
    weights = {name: tensor.astype(np.float32) for name, tensor in load_file(model / "model.safetensors").items()}
    answer: list[int] = []
    while len(answer) < 12:
        token = int(last_logits(config, weights, [*ids, *answer]).argmax())
        if token == config["eos_token_id"]:
            break
        answer.append(token)
    assert tokenizer.decode(answer) == "The capital of France is Paris."


def last_logits(config: dict[str, float], weights: dict[str, Floats], ids: list[int]) -> Floats:
    """Llama as its paper writes it, over the whole text at once; the logits after the last token."""
    heads, kv_heads = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    size = int(config["hidden_size"]) // heads
    tokens = len(ids)
    angles = np.outer(np.arange(tokens), config["rope_theta"] ** (-np.arange(0, size, 2) / size))
    cosine, sine = (np.tile(function(angles), 2)[:, None, :].astype(np.float32) for function in (np.cos, np.sin))
    future = np.triu(np.full((tokens, tokens), -np.inf, dtype=np.float32), 1)

    def norm(x: Floats, name: str) -> Floats:
        scaled: Floats = x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * weights[name]
        return scaled

    def rotate(x: Floats) -> Floats:
        first, second = np.split(x, 2, axis=-1)
        turned: Floats = x * cosine + np.concatenate([-second, first], axis=-1) * sine
        return turned

    x = weights["model.embed_tokens.weight"][ids]
    for layer in range(int(config["num_hidden_layers"])):
        prefix = f"model.layers.{layer}."
        h = norm(x, f"{prefix}input_layernorm.weight")
        q, k, v = ((h @ weights[f"{prefix}self_attn.{part}_proj.weight"].T).reshape(tokens, -1, size) for part in "qkv")
        q, k = rotate(q), rotate(k)
        k, v = (np.repeat(part, heads // kv_heads, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size) + future
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        attended = np.einsum("hqk,khd->qhd", scores, v).reshape(tokens, -1)
        x = x + attended @ weights[f"{prefix}self_attn.o_proj.weight"].T
        h = norm(x, f"{prefix}post_attention_layernorm.weight")
        gate, up = (h @ weights[f"{prefix}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"{prefix}mlp.down_proj.weight"].T
    logits: Floats = norm(x[-1], "model.norm.weight") @ weights["model.embed_tokens.weight"].T
    return logits
