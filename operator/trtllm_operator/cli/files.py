"""Reads what the commands are given: manifests, catalog files, inputs of artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from ..api import API_VERSION
from ..api.llmengine import KIND, LLMEngineSpec
from ..catalog import Catalog, CatalogError, Release, UnknownRelease, load_catalog
from .errors import CliError

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_document(path: str) -> dict[str, Any]:
    """The one YAML or JSON object of a file, `-` for standard input. Raises CliError."""
    documents = read_documents(path)
    if len(documents) != 1:
        raise CliError(f"{path} holds {len(documents)} documents; give one")
    return documents[0]


def read_engine(path: str) -> tuple[str, LLMEngineSpec]:
    """Name and spec of the one LLMEngine in a file, which may hold other objects beside it.

    Raises CliError that lists every field that is wrong.
    """
    documents = read_documents(path)
    engines = [d for d in documents if d.get("kind") == KIND and d.get("apiVersion") == API_VERSION]
    if len(engines) != 1:
        held = ", ".join(_kind(d) for d in documents[:5]) or "nothing"
        raise CliError(f"{path} holds {held}; give one {API_VERSION} {KIND}")
    document = engines[0]
    try:
        spec = LLMEngineSpec.model_validate(document.get("spec"))
        # as strict as the API server: "8" is no integer. Second, for what the first has passed is small and no circle
        LLMEngineSpec.model_validate_json(json.dumps(document["spec"]), strict=True)
    except ValidationError as error:
        wrong = "; ".join(f"{_field(e['loc'])}: {said(e)}" for e in error.errors())
        raise CliError(f"{path} is no valid {KIND}: {wrong}") from None
    for field in ("model", "storage"):
        union = getattr(spec, field)
        if len(union.dump()) != 1:
            names = " and ".join(to_camel(name) for name in type(union).model_fields)
            raise CliError(f"{path}: spec.{field} takes exactly one of {names}")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(name or "unnamed"), spec


def read_catalog(extra: Iterable[str]) -> Catalog:
    """The package's catalog with files over it: catalog files, or ConfigMaps that hold such. Raises CliError."""
    texts: dict[str, str] = {}
    for path in extra:
        document = read_document(path)
        if document.get("kind") == "ConfigMap":
            data = document.get("data")
            texts |= {f"{path}:{k}": str(v) for k, v in data.items()} if isinstance(data, dict) else {}
        else:
            texts[path] = _read(path)
    try:
        return load_catalog(texts)
    except CatalogError as error:
        raise CliError(str(error)) from None


def find_release(catalog: Catalog, name: str) -> Release:
    """The release, or a CliError that lists those there are."""
    try:
        return catalog.release(name)
    except UnknownRelease as error:
        raise CliError(str(error)) from None


def _read(path: str) -> str:
    import sys

    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CliError(f"{path} is not UTF-8 text") from None


def read_documents(path: str) -> list[dict[str, Any]]:
    """The YAML or JSON objects of a file, `-` for standard input. Raises CliError."""
    text = _read(path)
    try:
        documents = [d for d in yaml.load_all(text, Loader=_SafeLoader) if d is not None]
    except yaml.YAMLError as error:
        raise CliError(f"{path} is not YAML: {error}") from None
    for document in documents:
        if not isinstance(document, dict):
            raise CliError(f"{path} holds {type(document).__name__}, not an object")
    return documents


def said(error: ErrorDetails) -> str:
    """What is wrong with a value, in YAML's words and not Python's."""
    kinds = {"tuple_type": "a list", "list_type": "a list", "dict_type": "an object", "model_type": "an object"}
    kind = kinds.get(error["type"])
    return f"Input should be {kind}" if kind else error["msg"]


def _kind(document: dict[str, Any]) -> str:
    kind = [str(document[key]) for key in ("apiVersion", "kind") if document.get(key)]
    return " ".join(kind) or "an object without apiVersion and kind"


def _field(location: tuple[int | str, ...]) -> str:
    return "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
