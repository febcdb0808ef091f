"""Requests of the OpenAI API, parsed strictly: what would change the answer and is not supported is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from .errors import RequestError

MAX_CHOICES = 8
"""Of `n`: each choice is a request of its own to a server."""
MAX_PROMPTS = 32
MAX_STOPS = 16
MAX_MESSAGES = 2048
MAX_DEPTH = 32
"""Of the JSON: nothing that the API takes is deeper."""
MAX_TOKEN_ID = 2**31 - 1

IGNORED_FIELDS = frozenset(
    {
        "user",
        "store",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
        "verbosity",
    }
)
"""Fields of the API that do not change the answer of a model that is served here."""
UNSUPPORTED_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "logit_bias": (None, {}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "web_search_options": (None,),
    "suffix": (None, ""),
    "best_of": (None, 1),
    "top_logprobs": (None, 0),
}
"""Fields of the API that are refused unless they hold one of these values, which ask for nothing."""


def _no_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("the text holds the character U+0000")
    return text


def _no_bool(value: Any) -> Any:
    """JSON's true is a number to Python."""
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not true or false")  # noqa: TRY004 - pydantic takes ValueError
    return value


Text = Annotated[str, BeforeValidator(lambda v: _no_nul(v) if isinstance(v, str) else v)]
Number = Annotated[float, BeforeValidator(_no_bool)]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TextPart(_Request):
    """One part of a message's content."""

    type: Literal["text"]
    text: Text


class Message(_Request):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[Text | list[TextPart] | None, Field()] = None
    name: Text | None = None
    refusal: None = None
    tool_call_id: Text | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(_Request):
    """What a stream carries beside the text."""

    include_usage: bool = False
    include_obfuscation: bool = False
    continuous_usage_stats: bool = False


class SamplingFields(_Request):
    """Fields that both endpoints share."""

    model: Annotated[Text, Field(min_length=1, max_length=512)]
    max_tokens: Annotated[int | None, Field(ge=1, le=MAX_TOKEN_ID)] = None
    temperature: Annotated[Number | None, Field(ge=0, le=2)] = None
    top_p: Annotated[Number | None, Field(ge=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=-1, le=MAX_TOKEN_ID)] = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    seed: Annotated[int | None, Field(ge=-(2**63), le=2**63 - 1)] = None
    stop: Annotated[Text | list[Text] | None, Field()] = None
    stop_token_ids: Annotated[list[TokenId] | None, Field(max_length=MAX_STOPS)] = None
    ignore_eos: bool = False
    min_tokens: Annotated[int | None, Field(ge=0, le=MAX_TOKEN_ID)] = None
    presence_penalty: Annotated[Number | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[Number | None, Field(ge=-2, le=2)] = None
    repetition_penalty: Annotated[Number | None, Field(gt=0, le=10)] = None
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _nulls_ask_for_nothing(cls, value: Any) -> Any:
        """Clients send null for what they leave out."""
        if isinstance(value, dict):
            return {name: given for name, given in value.items() if given is not None}
        return value

    @model_validator(mode="after")
    def _stops_are_few_and_not_empty(self) -> SamplingFields:
        if len(self.stops) > MAX_STOPS:
            raise ValueError(f"stop: at most {MAX_STOPS} texts, {len(self.stops)} are given")
        if "" in self.stops:
            raise ValueError("stop: an empty text ends every answer before it begins")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts at which the answer ends."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(SamplingFields):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int | None, Field(ge=1, le=MAX_TOKEN_ID)] = None
    logprobs: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @property
    def output_limit(self) -> int | None:
        """Tokens that the client wants at most."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def wants_logprobs(self) -> bool:
        """Whether the log-probability of each token is wanted."""
        return self.logprobs


class CompletionRequest(SamplingFields):
    """POST /v1/completions."""

    prompt: Annotated[Text | list[Text] | list[TokenId] | list[list[TokenId]], Field()]
    echo: bool = False
    logprobs: Annotated[int | None, Field(ge=0, le=0)] = None

    @property
    def output_limit(self) -> int | None:
        """Tokens that the client wants at most. OpenAI's default here is 16."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def wants_logprobs(self) -> bool:
        """Whether the log-probability of each token is wanted."""
        return self.logprobs is not None

    @property
    def prompts(self) -> tuple[str | list[int], ...]:
        """The prompts, each a text or tokens."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        if self.prompt and isinstance(self.prompt[0], int):
            return (self.prompt,)
        return tuple(self.prompt)  # type: ignore[arg-type]

    @model_validator(mode="after")
    def _prompts_are_few_and_not_empty(self) -> CompletionRequest:
        if not 1 <= len(self.prompts) <= MAX_PROMPTS:
            raise ValueError(f"prompt: 1 to {MAX_PROMPTS} prompts, {len(self.prompts)} are given")
        return self


class TokenizeRequest(_Request):
    """POST /tokenize: a text, or a conversation as the model's template renders it."""

    model: Annotated[Text, Field(min_length=1, max_length=512)] | None = None
    prompt: Text | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    add_special_tokens: bool = True

    @model_validator(mode="after")
    def _exactly_one(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give exactly one of prompt and messages")
        return self


R = TypeVar("R", bound=_Request)


def parse(body: bytes, kind: type[R]) -> R:
    """The request in a body. Raises RequestError 400 that names the field."""
    given = _object(body)
    for name, harmless in UNSUPPORTED_FIELDS.items():
        if name in given and given[name] not in harmless and name not in kind.model_fields:
            message = f"{name} is not supported by this server; leave it out"
            raise RequestError(400, "unsupported_parameter", message, param=name)
    left_out = (IGNORED_FIELDS | UNSUPPORTED_FIELDS.keys()) - kind.model_fields.keys()
    try:
        return kind.model_validate({name: value for name, value in given.items() if name not in left_out})
    except ValidationError as error:
        raise _named(error, kind) from None


def _object(body: bytes) -> dict[str, Any]:
    def refuse_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(400, "invalid_utf8", f"the body is not UTF-8 at byte {error.start}") from None
    _check_depth(text)
    try:
        given = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "invalid_json", f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise RequestError(400, "invalid_json", "the body is JSON, but not an object")
    return given


def _check_depth(text: str) -> None:
    """Before parsing: Python's parser recurses."""
    depth, in_text, escaped = 0, False, False
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    for character in text:
        if in_text:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_text = False
        elif character == '"':
            in_text = True
        elif character in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise RequestError(400, "invalid_json", f"the body nests deeper than {MAX_DEPTH} levels")
        elif character in "]}":
            depth -= 1


def _named(error: ValidationError, kind: type[_Request]) -> RequestError:
    """The first thing wrong, with the field as OpenAI names it."""
    first = next((e for e in error.errors() if e["type"] == "extra_forbidden"), error.errors()[0])
    path = [str(part) for part in first["loc"] if not str(part).startswith(("function-", "list[", "str", "int"))]
    param = ".".join(path) or None
    if first["type"] == "extra_forbidden":
        known = ", ".join(sorted(kind.model_fields))
        message = f"{param} is not a field of this request; it takes {known}"
        return RequestError(400, "unknown_parameter", message, param=param)
    if first["type"] == "missing":
        return RequestError(400, "missing_required_parameter", f"{param} is missing", param=param)
    message = str(first["msg"]).removeprefix("Value error, ")
    return RequestError(400, "invalid_value", f"{param}: {message}" if param else message, param=param)
