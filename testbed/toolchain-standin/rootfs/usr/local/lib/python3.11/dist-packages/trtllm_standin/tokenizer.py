"""The tokenizer of a Hugging Face model directory, as preprocessing and postprocessing need it."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer


class ModelTokenizer:
    """tokenizer.json, and the end and padding tokens that the directory's other files name.

    Raises:
        ValueError: no file says which token ends a text.
        OSError: there is no tokenizer.json.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise OSError(f"Can't load tokenizer for '{directory}': it has no file named tokenizer.json.")
        self._tokenizer: Any = Tokenizer.from_file(str(path))
        self.vocab_size: int = self._tokenizer.get_vocab_size(with_added_tokens=False)
        config = _read(directory / "tokenizer_config.json")
        special = _read(directory / "special_tokens_map.json")
        end_id = self._token_id(config.get("eos_token") or special.get("eos_token"))
        if end_id is None:
            generation = _read(directory / "generation_config.json")
            end_id = generation.get("eos_token_id", _read(directory / "config.json").get("eos_token_id"))
        if isinstance(end_id, list):
            end_id = end_id[0]
        if end_id is None:
            raise ValueError(f"{directory}: neither tokenizer_config.json nor config.json names an end token")
        self.end_id = int(end_id)
        pad_id = self._token_id(config.get("pad_token") or special.get("pad_token"))
        self.pad_id = self.end_id if pad_id is None else pad_id

    def _token_id(self, token: Any) -> int | None:
        text = token.get("content") if isinstance(token, dict) else token
        identifier: int | None = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
        return identifier

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)
        return text


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return content
