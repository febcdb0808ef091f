"""How a model's text is made and where it ends, read from the files beside its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from .chat_template import ChatTemplate

MAX_FILE_BYTES = 256 << 20
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ModelFilesError(Exception):
    """The model's files cannot be used; the message names the file."""


@dataclass(frozen=True)
class ModelText:
    """How a model's text is made and where it ends."""

    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    end_token_ids: tuple[int, ...]
    """Tokens that end an answer, the first of them the model's own end token."""
    context_length: int | None
    """Positions that the model was trained for."""

    def encode(self, text: str, *, special_tokens: bool) -> list[int]:
        """Token ids; `special_tokens` adds those that the tokenizer puts around a text, such as a beginning token."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=special_tokens).ids
        return ids


def read_model(directory: Path) -> ModelText:
    """From tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json and config.json.

    Raises ModelFilesError.
    """
    path = directory / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_str(_read(path).decode("utf-8"))
    except ModelFilesError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise ModelFilesError(f"{path.name} is not a tokenizer that can be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    settings = _json(directory / "tokenizer_config.json")
    generation, config = _json(directory / "generation_config.json"), _json(directory / "config.json")
    special = {name: _token_text(settings.get(name)) for name in _SPECIAL}
    ends = _end_token_ids(generation, config)
    if not ends and special["eos_token"] and (known := tokenizer.token_to_id(special["eos_token"])) is not None:
        ends = (known,)
    positions = config.get("max_position_embeddings")
    return ModelText(
        tokenizer=tokenizer,
        chat_template=_chat_template(directory, settings, {k: v for k, v in special.items() if v}),
        end_token_ids=ends,
        context_length=positions if isinstance(positions, int) and not isinstance(positions, bool) else None,
    )


def _chat_template(directory: Path, settings: dict[str, Any], special: dict[str, str]) -> ChatTemplate | None:
    """chat_template.jinja stands above the field of tokenizer_config.json, as in transformers."""
    path = directory / "chat_template.jinja"
    given: Any = settings.get("chat_template")
    if path.is_file():
        given = _read(path).decode("utf-8", errors="replace")
    if isinstance(given, list):  # several by name
        named = {t.get("name"): t.get("template") for t in given if isinstance(t, dict)}
        given = named.get("default")
    if not isinstance(given, str) or not given:
        return None
    try:
        return ChatTemplate(given, special)
    except ValueError as error:
        raise ModelFilesError(str(error)) from None


def _end_token_ids(generation: dict[str, Any], config: dict[str, Any]) -> tuple[int, ...]:
    for source in (generation, config):
        given = source.get("eos_token_id")
        ids = given if isinstance(given, list) else [given]
        if found := tuple(i for i in ids if isinstance(i, int) and not isinstance(i, bool) and i >= 0):
            return found
    return ()


def _token_text(given: Any) -> str | None:
    """A special token is a text, or an object with its text under `content`."""
    if isinstance(given, dict):
        given = given.get("content")
    return given if isinstance(given, str) else None


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise ModelFilesError(f"{path.name} is not JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ModelFilesError(f"{path.name} is larger than {MAX_FILE_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ModelFilesError(f"{path.name} cannot be read: {error.strerror}") from None
