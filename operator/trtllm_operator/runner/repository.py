"""The Triton model repository, rendered from the image's own templates by the image's own fill_template.py."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .report import StepError

Value = str | int | bool
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_QUOTED = re.compile(r'"[^"\n]*"')
_SECONDS = 60


def render(templates: Path, fill_template: Path, models: Mapping[str, Mapping[str, Value]], repository: Path) -> None:
    """Copy each model's template directory and fill in its config.pbtxt, then read it back.

    Raises StepError TemplateMismatch when this release's template lacks a placeholder that has a value, when a
    mandatory one has none, or when a value did not arrive as given.
    """
    if repository.exists():
        shutil.rmtree(repository)
    for model, values in models.items():
        template = templates / model
        if not (template / "config.pbtxt").is_file():
            raise StepError("TemplateMismatch", f"this image has no template {template}/config.pbtxt")
        shutil.copytree(template, repository / model)
        (repository / model / "1").mkdir(exist_ok=True)
        _fill(model, repository / model / "config.pbtxt", values, fill_template)


def escaped(value: Value) -> str:
    r"""A value as fill_template.py reads it: it splits on commas, then each part on colons, and each time takes a
    backslash from what it protects."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"([\\,])", r"\\\1", re.sub(r"([\\:])", r"\\\1", text))


def mandatory(pbtxt: str) -> list[str]:
    """Placeholders outside quotes: left unfilled they make the file unreadable. Inside quotes they mean the default."""
    lines = (_QUOTED.sub("", line).partition("#")[0] for line in pbtxt.splitlines())
    return sorted({name for line in lines for name in _PLACEHOLDER.findall(line)})


def arrived(template: str, values: Mapping[str, Value], rendered: str) -> bool:
    """Whether `rendered` is `template` with the values in place and anything where no value was given."""
    expected, position = "", 0
    for match in _PLACEHOLDER.finditer(template):
        expected += re.escape(template[position : match.start()])
        value = values.get(match[1])
        text = str(value).lower() if isinstance(value, bool) else str(value)
        expected += ".*?" if value is None else re.escape(text)
        position = match.end()
    return re.fullmatch(expected + re.escape(template[position:]), rendered) is not None


def _fill(model: str, path: Path, values: Mapping[str, Value], fill_template: Path) -> None:
    template = path.read_text()
    placeholders = set(_PLACEHOLDER.findall(template))
    if unknown := sorted(set(values) - placeholders):
        raise StepError(
            "TemplateMismatch",
            f"the template of {model} in this image has no {', '.join(unknown)}; "
            f"it has {', '.join(sorted(placeholders))}",
        )
    for name, value in values.items():
        if isinstance(value, str) and re.search(r'["\n\\]', value):
            raise StepError("SpecInvalid", f"{model}: {name} is {value!r}, which config.pbtxt cannot hold")
    if values:
        substitutions = ",".join(f"{name}:{escaped(value)}" for name, value in values.items())
        answer = subprocess.run(
            [sys.executable, str(fill_template), "-i", str(path), substitutions],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if answer.returncode:
            said = (answer.stderr.strip().splitlines() or ["nothing"])[-1]
            raise StepError("TemplateMismatch", f"{fill_template.name} refused the values of {model}: {said}")
    rendered = path.read_text()
    if missing := mandatory(rendered):
        raise StepError("TemplateMismatch", f"the template of {model} in this image needs {', '.join(missing)}")
    if not arrived(template, values, rendered):
        raise StepError("TemplateMismatch", f"{fill_template.name} wrote other values into {model} than it was given")
