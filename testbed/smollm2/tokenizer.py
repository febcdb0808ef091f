"""The tokenizer of a GGUF file with GPT-2's byte-level BPE, in Hugging Face's files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gguf import TokenType

_SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def tokenizer(fields: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer.json.

    GGUF's pre-tokenizer "smollm" splits digits one by one before GPT-2's own pattern, as SmolLM2's tokenizer does.
    """
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": tokens.index(token), "content": token, **_SPECIAL} for token in _control(fields)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "add_prefix_space": False},
            ],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }


def tokenizer_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json, with the chat template."""
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(tokens.index(token)): {"content": token, **_SPECIAL} for token in _control(fields)
        },
        **special_tokens(fields),
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        "tokenizer_class": "GPT2Tokenizer",
    }


def special_tokens(fields: Mapping[str, Any]) -> dict[str, Any]:
    """special_tokens_map.json."""
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    return {f"{name}_token": tokens[fields[f"tokenizer.ggml.{key}_token_id"]] for name, key in names.items()}


def _control(fields: Mapping[str, Any]) -> list[str]:
    """The tokens that are never text, in the order of their numbers."""
    kinds = fields["tokenizer.ggml.token_type"]
    return [
        token for token, kind in zip(fields["tokenizer.ggml.tokens"], kinds, strict=True) if kind == TokenType.CONTROL
    ]
