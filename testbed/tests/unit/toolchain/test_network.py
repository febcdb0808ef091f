"""The network on the CPU: right against a plain implementation, and the same however it is cut and batched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from trtllm_standin.dtypes import Floats
from trtllm_standin.engine_file import Plan
from trtllm_standin.llama import Llama, Segment, rotary_tables

Engine = Callable[..., Path]
PROMPT = np.array([3, 17, 42, 8, 8, 30, 1])


def load(engine: Path) -> Llama:
    config = json.loads((engine / "config.json").read_text())["pretrained_config"]
    ranks = [Plan(engine / f"rank{rank}.engine").tensors() for rank in range(config["mapping"]["world_size"])]
    return Llama(config, ranks, 96)


def last_logits(model: Llama, tokens: Any) -> Floats:
    logits: Floats = model.forward([Segment(np.array(tokens), model.new_cache())])[0]
    return logits


def plain_logits(model_dir: Path, tokens: Any) -> Floats:
    """The textbook Llama, one position after the other, in float64, from the Hugging Face files."""
    config = json.loads((model_dir / "config.json").read_text())
    w = {name: array.astype(np.float64) for name, array in load_file(model_dir / "model.safetensors").items()}
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config["hidden_size"] // heads

    def norm(x: Any, weight: Any) -> Any:
        return x / np.sqrt((x * x).mean() + config["rms_norm_eps"]) * weight

    def rotate(vector: Any, position: int) -> Any:
        turned = vector.copy()
        for i in range(size // 2):
            angle = position / config["rope_theta"] ** (2 * i / size)
            a, b = vector[i], vector[i + size // 2]
            turned[i] = a * np.cos(angle) - b * np.sin(angle)
            turned[i + size // 2] = b * np.cos(angle) + a * np.sin(angle)
        return turned

    keys: dict[tuple[int, int], list[Any]] = {}
    values: dict[tuple[int, int], list[Any]] = {}
    for position, token in enumerate(tokens):
        x = w["model.embed_tokens.weight"][token]
        for layer in range(config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            h = norm(x, w[f"{name}.input_layernorm.weight"])
            q, k, v = (w[f"{name}.self_attn.{part}_proj.weight"] @ h for part in "qkv")
            for head in range(kv_heads):
                part = slice(head * size, (head + 1) * size)
                keys.setdefault((layer, head), []).append(rotate(k[part], position))
                values.setdefault((layer, head), []).append(v[part])
            outputs = []
            for head in range(heads):
                shared = head // (heads // kv_heads)
                query = rotate(q[head * size : (head + 1) * size], position)
                scores = np.array([query @ key for key in keys[layer, shared]]) / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                outputs.append(weights / weights.sum() @ np.array(values[layer, shared]))
            x = x + w[f"{name}.self_attn.o_proj.weight"] @ np.concatenate(outputs)
            h = norm(x, w[f"{name}.post_attention_layernorm.weight"])
            gate, up = (w[f"{name}.mlp.{part}_proj.weight"] @ h for part in ("gate", "up"))
            x = x + w[f"{name}.mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
    head_weight = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    result: Floats = head_weight @ norm(x, w["model.norm.weight"])
    return result


@pytest.mark.parametrize("tied", [True, False])
def test_it_computes_llama(
    make_model: Callable[..., Path], convert: Callable[..., Path], build: Callable[..., Path], tied: bool
) -> None:
    model = make_model(tie_word_embeddings=tied)
    logits = last_logits(load(build(convert(model))), PROMPT)
    assert np.allclose(logits, plain_logits(model, PROMPT), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "flags",
    [
        ["--tp_size", "3"],
        ["--pp_size", "2"],
        ["--tp_size", "3", "--pp_size", "3"],
        ["--tp_size", "3", "--use_parallel_embedding"],
        ["--tp_size", "3", "--use_parallel_embedding", "--embedding_sharding_dim", "1"],
        ["--tp_size", "6"],
    ],
)
def test_a_cut_network_answers_as_the_whole_one(engine: Engine, flags: list[str]) -> None:
    """TP 6 of 3 key/value heads duplicates them."""
    whole, cut = last_logits(load(engine()), PROMPT), last_logits(load(engine(*flags)), PROMPT)
    assert np.allclose(whole, cut, rtol=1e-4, atol=1e-4)


def test_a_rank_in_the_wrong_place_gives_another_answer(engine: Engine) -> None:
    directory = engine("--tp_size", "3")
    right = last_logits(load(directory), PROMPT)
    shutil.copy(directory / "rank1.engine", directory / "rank0.engine")
    wrong = last_logits(load(directory), PROMPT)
    assert np.abs(right - wrong).max() > 0.1


def test_one_token_at_a_time_is_the_same_as_all_at_once(engine: Engine) -> None:
    model = load(engine("--tp_size", "3"))
    cache = model.new_cache()
    for token in PROMPT:
        logits = model.forward([Segment(np.array([token]), cache)])
    assert np.allclose(logits[0], last_logits(model, PROMPT), rtol=1e-4, atol=1e-4)


def test_a_mixed_batch_gives_each_sequence_its_own_answer(engine: Engine) -> None:
    """A running sequence, a whole prompt and a part of a prompt share one step."""
    model = load(engine())
    running, chunked = model.new_cache(), model.new_cache()
    model.forward([Segment(PROMPT[:-1], running), Segment(PROMPT[:2], chunked)])
    other = np.array([9, 9, 4])
    together = model.forward(
        [Segment(PROMPT[-1:], running), Segment(other, model.new_cache()), Segment(PROMPT[2:5], chunked)]
    )
    alone = [last_logits(model, PROMPT), last_logits(model, other), last_logits(model, PROMPT[:5])]
    assert np.allclose(together, alone, rtol=1e-4, atol=1e-4)


def test_an_fp8_cache_rounds_what_it_holds(engine: Engine) -> None:
    exact, rounded = last_logits(load(engine()), PROMPT), last_logits(load(engine("--fp8_kv_cache")), PROMPT)
    difference = np.abs(exact - rounded).max()
    assert 1e-4 < difference < 0.25 * np.abs(exact).max()


@pytest.mark.parametrize(
    "flags", [["--use_weight_only"], ["--use_weight_only", "--weight_only_precision", "int4"], ["--use_fp8_rowwise"]]
)
def test_quantized_engines_answer_nearly_the_same(engine: Engine, flags: list[str]) -> None:
    exact, rounded = last_logits(load(engine()), PROMPT), last_logits(load(engine(*flags)), PROMPT)
    assert np.abs(exact - rounded).max() > 0
    assert np.corrcoef(exact, rounded)[0, 1] > 0.9


def test_llama3_scaling_slows_only_the_slow_frequencies() -> None:
    """Published parameters of Llama 3.1: wavelengths below 8192 / 4 stay, those above 8192 are stretched by 8."""
    base = {"head_size": 128, "rotary_base": 500000.0}
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    plain, scaled = (
        np.arctan2(*reversed([table[1].astype(np.float64) for table in rotary_tables(base | extra, 2)]))
        for extra in ({}, {"rotary_scaling": scaling})
    )
    wavelength = 2 * np.pi / plain
    assert np.allclose(scaled[wavelength < 2048], plain[wavelength < 2048], rtol=1e-5)
    assert np.allclose(scaled[wavelength > 8192], plain[wavelength > 8192] / 8, rtol=1e-3)
