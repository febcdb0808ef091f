"""Reading what the API server holds, whichever version of the operator wrote it.

A later version adds fields. One that this version does not know is ignored, never refused; in a status it is kept, so
that rolling the operator back and forward again loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .markers import Status

ModelT = TypeVar("ModelT", bound=BaseModel)
StatusT = TypeVar("StatusT", bound=Status)


def read_stored(model: type[ModelT], stored: Mapping[str, Any]) -> ModelT:
    """An object without the fields that `model` does not know, at any depth. Raises ValidationError for values of known
    fields that this version cannot read."""
    return model.model_validate(stored, extra="ignore")


def read_status(model: type[StatusT], stored: Mapping[str, Any] | None) -> StatusT:
    """A status without the top-level fields whose values this version cannot read: they are observed anew."""
    left = dict(stored or {})
    while True:
        try:
            return read_stored(model, left)
        except ValidationError as error:
            unreadable = {name for e in error.errors() for name in _names(model, str(e["loc"][0]))} & left.keys()
            if not unreadable:
                raise
            left = {name: value for name, value in left.items() if name not in unreadable}


def written_status(status: Status, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """`status` as it is written over `stored`, with the top-level fields of a later version as they are there."""
    known = {name for field in type(status).model_fields for name in _names(type(status), field)}
    return {**{name: value for name, value in (stored or {}).items() if name not in known}, **status.dump()}


def _names(model: type[BaseModel], name: str) -> set[str]:
    """The names of a field, in Python and on the wire."""
    found = (f for f, info in model.model_fields.items() if name in (f, info.alias))
    return {n for f in found for n in (f, model.model_fields[f].alias or f)}
