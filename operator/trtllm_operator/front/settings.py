"""How one front is set up: what the operator writes into its Pod."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .admission import AdmissionLimits

ENVIRONMENT = "LLMENGINE_FRONT"


class SettingsError(Exception):
    """The settings cannot be used; the message names the field."""


class GuardSettings(BaseModel):
    """A webhook that may refuse or rewrite a prompt."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    url: str
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 2.0
    fail_open: bool = False


class Settings(BaseModel):
    """Everything but the routes, which the cluster tells. Unknown fields are of a later operator and left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    namespace: str
    name: str
    """Of the LLMEngine."""
    model_names: Annotated[tuple[str, ...], Field(min_length=1)]
    """What clients call the model; the first is its main name."""
    models_directory: Path
    """Holds a directory for each Model artifact with the files beside its weights."""
    api_keys_directory: Path | None = None
    """A mounted Secret: each entry's name is the caller, its value the key."""
    caller_header: str | None = None
    """Header that names the caller, where there are no keys."""
    strict_max_tokens: bool = False
    """Refuse what asks for more tokens than there is room for, instead of giving what fits."""
    max_body_bytes: Annotated[int, Field(gt=0)] = 16 << 20
    limits: AdmissionLimits = AdmissionLimits()
    guard: GuardSettings | None = None
    request_log: bool = False
    """Write a JSON line of lengths and times for each request."""


def read_settings(text: str | None) -> Settings:
    """From the environment's JSON. Raises SettingsError."""
    if not text:
        raise SettingsError(f"{ENVIRONMENT} is not set")
    try:
        return Settings.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{ENVIRONMENT}: {where or 'it'}: {first['msg']}") from None
