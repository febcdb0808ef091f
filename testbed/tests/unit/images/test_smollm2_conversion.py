"""The GGUF conversion on a model of a few numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGUFWriter, TokenType
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from testbed.images.content import sha256_of
from testbed.images.errors import BuildError
from testbed.smollm2.checkpoint import convert, tensor_name, unpermute

HEADS, KV_HEADS, HEAD_SIZE, HIDDEN, INNER = 4, 2, 8, 32, 48
BYTE_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab", "1", "2"]


def permute_as_llama_cpp_does(weights: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """`LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def weights_of() -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(7)
    shapes = {
        "token_embd": (len(BYTE_TOKENS), HIDDEN),
        "output_norm": (HIDDEN,),
        "blk.0.attn_norm": (HIDDEN,),
        "blk.0.attn_q": (HEADS * HEAD_SIZE, HIDDEN),
        "blk.0.attn_k": (KV_HEADS * HEAD_SIZE, HIDDEN),
        "blk.0.attn_v": (KV_HEADS * HEAD_SIZE, HIDDEN),
        "blk.0.attn_output": (HIDDEN, HEADS * HEAD_SIZE),
        "blk.0.ffn_norm": (HIDDEN,),
        "blk.0.ffn_gate": (INNER, HIDDEN),
        "blk.0.ffn_up": (INNER, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, INNER),
    }
    return {f"{name}.weight": random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def write_gguf(path: Path, tensors: dict[str, npt.NDArray[np.float32]], architecture: str = "llama") -> None:
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(BYTE_TOKENS)
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * 5)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{{ messages }}")
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("heads", [1, 3, 9])
def test_unpermute_undoes_llama_cpps_permutation(heads: int) -> None:
    original = np.arange(heads * 8 * 5, dtype=np.float32).reshape(heads * 8, 5)
    np.testing.assert_array_equal(unpermute(permute_as_llama_cpp_does(original, heads), heads), original)


def test_the_checkpoint_holds_the_weights_that_the_gguf_was_made_from(tmp_path: Path) -> None:
    original = weights_of()
    stored = dict(original)
    for name, heads in (("blk.0.attn_q.weight", HEADS), ("blk.0.attn_k.weight", KV_HEADS)):
        stored[name] = permute_as_llama_cpp_does(original[name], heads)
    write_gguf(tmp_path / "model.gguf", stored)
    convert(tmp_path / "model.gguf", tmp_path / "hf")

    got = load_file(tmp_path / "hf" / "model.safetensors")
    assert set(got) == {tensor_name(name) for name in original}
    for name, weights in original.items():
        np.testing.assert_array_equal(got[tensor_name(name)], weights.astype(np.float16), err_msg=name)

    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]) == (32, 4, 2)
    assert (config["rms_norm_eps"], config["rope_theta"], config["tie_word_embeddings"]) == (1e-05, 100000.0, True)
    settings = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert (settings["bos_token"], settings["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert settings["chat_template"] == "{{ messages }}"


def test_the_tokenizer_merges_letters_keeps_digits_apart_and_knows_control_tokens(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", weights_of())
    convert(tmp_path / "model.gguf", tmp_path / "hf")
    tokenizer = Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|>ab12<|im_end|>").tokens == ["<|im_start|>", "ab", "1", "2", "<|im_end|>"]


def test_converting_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", weights_of())
    digests = []
    for name in ("first", "second"):
        convert(tmp_path / "model.gguf", tmp_path / name)
        digests.append({file.name: sha256_of(file) for file in (tmp_path / name).iterdir()})
    assert digests[0] == digests[1]


def test_what_cannot_be_converted_is_refused_by_name(tmp_path: Path) -> None:
    write_gguf(tmp_path / "other.gguf", weights_of(), architecture="mamba")
    with pytest.raises(BuildError, match=r"other\.gguf: architecture mamba; only llama"):
        convert(tmp_path / "other.gguf", tmp_path / "hf")
    huge = weights_of() | {"output_norm.weight": np.full(HIDDEN, 1e6, dtype=np.float32)}
    write_gguf(tmp_path / "huge.gguf", huge)
    with pytest.raises(BuildError, match=r"output_norm\.weight has values beyond float16's range"):
        convert(tmp_path / "huge.gguf", tmp_path / "hf")
    with pytest.raises(BuildError, match=r"unknown tensor blk\.0\.ssm_in\.weight"):
        tensor_name("blk.0.ssm_in.weight")
