"""A conversation as the model was trained on it: the model's own chat template, which is a stranger's program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.sandbox
from jinja2.ext import loopcontrols

from .errors import RequestError

MAX_TEMPLATE_BYTES = 1 << 20
MAX_RENDERED_CHARACTERS = 16 << 20


class _TemplateRefusalError(Exception):
    """The template's own `raise_exception`."""


class ChatTemplate:
    """One template, compiled. It can neither change what it is given nor reach anything else.

    The environment is that of Hugging Face transformers (`render_jinja_template`): trimmed blocks, loop controls, and
    the functions `raise_exception`, `strftime_now` and the filter `tojson` without HTML escapes.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises ValueError for a template that cannot be compiled."""
        if len(source) > MAX_TEMPLATE_BYTES:
            raise ValueError(f"the chat template has {len(source):,} characters, {MAX_TEMPLATE_BYTES:,} at most")
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], autoescape=False
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template cannot be compiled: {error}") from None
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The prompt. Raises RequestError 400 where the template refuses the conversation."""
        try:
            text = self._template.render(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        except _TemplateRefusalError as refusal:
            message = f"the model's chat template refuses the conversation: {refusal}"
            raise RequestError(400, "invalid_messages", message, param="messages") from None
        except Exception as error:  # a stranger's program ends in whatever it likes
            message = f"the model's chat template fails on this conversation ({type(error).__name__}: {error})"
            raise RequestError(400, "invalid_messages", message[:1000], param="messages") from None
        if len(text) > MAX_RENDERED_CHARACTERS:
            raise RequestError(413, "request_too_large", "the rendered conversation is too long", param="messages")
        return text


def _raise_exception(message: str) -> None:
    raise _TemplateRefusalError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
