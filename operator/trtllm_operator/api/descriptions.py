"""The docstrings under the fields of a model, as the fields' descriptions.

pydantic can take them itself as it makes a class, by parsing its source: an eighth of the time in which a command line
is to answer. Only the generated files need them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel


def describe(model: type[BaseModel]) -> None:
    """Give the fields of a model, and of those inside it, their docstrings as descriptions, and build it anew."""
    _describe(model, set())


def _describe(model: type[BaseModel], done: set[type[BaseModel]]) -> None:
    if model in done:
        return
    done.add(model)
    for field in model.model_fields.values():
        for inner in _models(field.annotation):
            _describe(inner, done)
    for name, field in model.model_fields.items():
        if field.description is None:
            field.description = next((doc for cls in model.__mro__ if (doc := _docstrings(cls).get(name))), None)
    model.model_rebuild(force=True)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


@cache
def _docstrings(cls: type) -> dict[str, str]:
    """Docstrings that follow an annotated name in the class's own body."""
    if not issubclass(cls, BaseModel) or cls is BaseModel:
        return {}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):  # made by create_model
        return {}
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = inspect.cleandoc(value.value)
    return found
