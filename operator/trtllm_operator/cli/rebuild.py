"""`why-rebuild`: the inputs in which two artefacts differ."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from ..api.engineartifact import Inputs
from ..planning.keys import artifact_name, differences
from .errors import CliError
from .files import read_document
from .render import Output, line, structured, table


def why_rebuild(before: str, after: str, output: Output) -> int:
    """Print what differs between the artefacts in two files: EngineArtifacts, or manifest.json of the store."""
    old_type, old = _inputs(before)
    new_type, new = _inputs(after)
    if old_type != new_type:
        raise CliError(f"{before} is a {old_type} and {after} a {new_type}: compare two of one type")
    found = differences(old, new)
    names = artifact_name(old_type, old), artifact_name(new_type, new)
    if output != "table":
        changes = [{"input": d.input, "before": d.before, "after": d.after} for d in found]
        structured({"before": names[0], "after": names[1], "rebuild": bool(found), "differences": changes}, output)
    elif not found:
        line(f"the same artefact: {names[0]}")
    else:
        line(f"{names[0]} -> {names[1]}")
        table(("INPUT", "BEFORE", "AFTER"), [(d.input, d.before, d.after) for d in found])
    return 0


def _inputs(path: str) -> tuple[Any, Inputs]:
    document = read_document(path)
    holder = document.get("spec") if isinstance(document.get("spec"), dict) else document
    assert isinstance(holder, dict)
    type_ = holder.get("type")
    if type_ not in ("Model", "Checkpoint", "Engine") or "inputs" not in holder:
        raise CliError(f"{path} is no EngineArtifact and no manifest.json: it has no type and inputs")
    try:
        return type_, Inputs.model_validate(holder["inputs"])
    except ValidationError as error:
        first = error.errors()[0]
        raise CliError(f"{path}: inputs.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
