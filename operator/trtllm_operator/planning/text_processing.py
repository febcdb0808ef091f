"""How a model's text is made and where it ends: facts of an inspection report, and what is to be said of them.

What the release does with them is in its own Triton models (inflight_batcher_llm/{pre,post}processing/1/model.py of
NVIDIA/TensorRT-LLM): they load the tokenizer with trust_remote_code, which no parameter turns off or on, and end a text
at the tokenizer's own end token unless the request says `end_id`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .check import Check, failed, passed, warned
from .model_config import ModelUnreadable
from .report import END_TOKEN_FILES

if TYPE_CHECKING:
    from .model import ModelFacts


def read_text_facts(text: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ModelFacts that an inspection report's `text` holds. Raises ModelUnreadable."""
    try:
        by_file = {name: [int(i) for i in text.get("endTokens", {}).get(name, ())] for name in END_TOKEN_FILES}
        token, token_id = text.get("endToken") or ("", None)
        own = [] if token_id is None else [int(token_id)]
        chosen = next((ids for ids in (*by_file.values(), own) if ids), [])
        code = text.get("code")
        return {
            "end_token_ids": _joined(chosen),
            "config_end_token_ids": _joined(by_file["config.json"]) or None,
            "tokenizer_end_token": str(token),
            "tokenizer_end_token_id": own[0] if own else None,
            "remote_code": "{}: {}".format(*code) if code else None,
            "sentencepiece": True if text.get("sentencePiece") else None,
        }
    except (AttributeError, IndexError, TypeError, ValueError):
        raise ModelUnreadable("the inspection report's text is not as planning.report defines it") from None


def end_token_ids(facts: ModelFacts) -> tuple[int, ...]:
    """Ids after which a text ends, as the model's files say."""
    return tuple(int(i) for i in (facts.end_token_ids or "").split())


def text_checks(facts: ModelFacts) -> Iterator[Check]:
    """Of a model whose text nobody has looked at, nothing is said."""
    if facts.end_token_ids is None:
        return
    yield _remote_code(facts)
    yield _end_tokens(facts)
    if facts.sentencepiece:
        yield warned(
            "streaming",
            "the tokenizer is SentencePiece, and the release's ensemble decodes a streamed answer token by token: "
            "words may come without the spaces between them (tensorrtllm_backend#332)",
            "ask without streaming, or stream the token ids of the model tensorrt_llm and decode them together",
        )


def _remote_code(facts: ModelFacts) -> Check:
    if facts.remote_code is None:
        return passed("remote-code", "no code of the repository is needed")
    file, _, name = facts.remote_code.partition(": ")
    return failed(
        "remote-code",
        f"the model needs Python code of its repository: auto_map of {file} names {name}. No code is ever fetched, and "
        "the release's Triton models have no parameter for it (they load whatever auto_map names)",
        "use a copy of the model whose config.json and tokenizer_config.json have no auto_map and whose classes "
        "Transformers itself has, with a tokenizer.json",
    )


def _end_tokens(facts: ModelFacts) -> Check:
    chosen, token, token_id = end_token_ids(facts), facts.tokenizer_end_token, facts.tokenizer_end_token_id
    if not chosen and not token:
        return warned(
            "end-tokens",
            "no file of the model names an end token (eos_token_id of generation_config.json or config.json, eos_token "
            "of tokenizer_config.json): the release's preprocessing takes it from the tokenizer and may not load, and "
            "an answer goes on to its max_tokens",
            "put eos_token into tokenizer_config.json",
        )
    if not token:
        return warned(
            "end-tokens",
            f"a text ends at {_listed(chosen)}, but the tokenizer names no end token, and the release's preprocessing "
            "takes it from there: it may not load",
            "put eos_token into tokenizer_config.json",
        )
    in_config = tuple(int(i) for i in (facts.config_end_token_ids or "").split())
    own = token if token_id is None else f"{token} ({token_id})"
    contradicted = bool(in_config) and set(in_config) != set(chosen)
    if not contradicted and len(chosen) <= 1 and token_id in (None, *chosen):
        return passed("end-tokens", f"a text ends at {_listed(chosen) if chosen else own}, and servers end it at {own}")
    config = f", where config.json says {_listed(in_config)}" if contradicted else ""
    others = tuple(i for i in chosen if i != token_id)
    missed = f", and not at {_listed(others)}" if others and token_id is not None else ""
    return warned(
        "end-tokens",
        f"a text ends at {_listed(chosen)}{config}; servers end it at the tokenizer's {own} alone{missed}",
        "where an answer does not stop, send end_id with the request, or the token's text in stop_words",
    )


def _joined(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def _listed(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))
