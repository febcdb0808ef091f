"""A user's own calibration texts: checked and digested before a GPU is asked for, and brought to the build as they are.

The digest is the SHA-256 of the JSON list [[name, size, SHA-256], ...] of the files, sorted by name. Only .jsonl and
.txt files below the directory are texts: no other file is part of the digest, and none is brought to a build.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..runner.report import StepError, is_disk_full
from ..runner.volume import ENLARGE_NODE, disk_full

MAX_BYTES = 512 << 20
"""Of all texts together: 512 texts of 131,072 tokens, the API's longest, take half of it at four bytes a token."""
MAX_FILES = 100_000
"""The API's largest number of samples, each in a file of its own."""
MAX_LINE_BYTES = 16 << 20
"""Of one line, which is held in memory."""
_MOST_PROBLEMS = 3
"""After so many, the rest is not read."""
_CHUNK_BYTES = 1 << 20
_LISTED = 5
Entry = tuple[str, int, str]
"""Name below the directory, size in bytes, SHA-256 of the content."""


def digest(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Read every text in a directory of a claim: is it what a calibration can use, and which one is it?

    `spec`: {"claimName", "path": directory in it, "root": where it is mounted}. Returns "digest", "files" and
    "sizeBytes". Raises StepError CalibrationUnreadable, which names files and lines.
    """
    entries: list[Entry] = []
    problems: list[str] = []
    texts = 0
    for name, path in (files := _files(spec)).items():
        hashed, size = hashlib.sha256(), 0
        for number, line in _lines(path):
            hashed.update(line)
            size += len(line)
            texts += bool(line.strip())
            if problem := _row_problem(line) if path.suffix == ".jsonl" else _line_problem(line):
                problems.append(f"{_shown(name)} line {number}: {problem}")
            if len(problems) == _MOST_PROBLEMS:
                raise _unreadable(spec, f"{'; '.join(problems)}; it was read no further")
        entries.append((name, size, hashed.hexdigest()))
    if problems:
        raise _unreadable(spec, "; ".join(problems))
    if not texts:
        raise _unreadable(spec, f"nothing is in {_listed(files)}")
    return {"digest": _digest(entries), "files": len(entries), "sizeBytes": sum(size for _, size, _ in entries)}


def bring(spec: Mapping[str, Any], target: Path) -> None:
    """Copy the texts to where a build reads them. What it reads is what was compared, whatever becomes of the claim.

    `spec`: as `digest`'s, and the "digest" that was inspected, if they were. Raises StepError CalibrationChanged when
    they are others now.
    """
    inspected = spec.get("digest")
    try:
        entries = [(name, *_copy(path, target / name)) for name, path in _files(spec).items()]
    except StepError as error:
        if inspected and error.reason == "CalibrationUnreadable":
            raise _changed(spec, error.message) from None
        raise
    if inspected and (found := _digest(entries)) != inspected:
        raise _changed(spec, f"the texts {_where(spec)} have the digest {found}, not {inspected}")


def _files(spec: Mapping[str, Any]) -> dict[str, Path]:
    """The texts by their names, sorted. Raises StepError where there are none, or more than are read."""
    root = Path(spec["root"]).resolve()
    directory = (root / spec["path"]).resolve()
    if not directory.is_relative_to(root):
        raise _unreadable(spec, "the path leads out of the claim")
    if not directory.is_dir():
        raise _unreadable(spec, "there is no such directory")
    found: dict[str, Path] = {}
    others: list[str] = []
    size = 0
    for name, path in _regular_files(directory, root):
        if path.suffix not in (".jsonl", ".txt"):
            others.append(name)
            continue
        found[name] = path
        size += path.stat().st_size
        if len(found) > MAX_FILES or size > MAX_BYTES:
            limit = f"{MAX_BYTES >> 20} MiB in {MAX_FILES:,} files are the most that is read"
            raise _unreadable(spec, f"{limit}; samples x maxSeqLen tokens are all that a calibration runs")
    if not found:
        raise _unreadable(spec, f"it has no .jsonl and no .txt file; it has {_listed(others)}")
    return dict(sorted(found.items()))


def _regular_files(directory: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Files below a directory by their names, also behind links that do not leave the claim. Links to directories are
    not followed."""
    for parent, _, names in os.walk(directory):
        for path in (Path(parent, name) for name in names):
            if path.is_file() and path.resolve().is_relative_to(root):
                yield path.relative_to(directory).as_posix(), path


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, numbered from 1; of one that is longer than may be, the beginning as the last."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
            yield number, line
            if len(line) > MAX_LINE_BYTES:
                return


def _row_problem(line: bytes) -> str | None:
    """What is wrong with a line of a .jsonl file: an object with its text under `text`. An empty line is none."""
    if not line.strip():
        return None
    if problem := _line_problem(line):
        return problem
    try:
        row = json.loads(line.decode().strip())
    except json.JSONDecodeError as error:
        return f"not JSON at column {error.colno}: {error.msg}"
    except (ValueError, RecursionError) as error:
        return f"not JSON that can be read: {error}"
    text = row.get("text") if isinstance(row, dict) else None
    if isinstance(text, str) and text.strip():
        return None
    if not isinstance(row, dict):
        return 'not an object: a row is {"text": "..."}'
    return f"no text under `text`; its keys are {_listed(row)}" if row else "no text under `text`"


def _line_problem(line: bytes) -> str | None:
    if len(line) > MAX_LINE_BYTES:
        return f"longer than {MAX_LINE_BYTES >> 20} MiB"
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start + 1}"
    return None


def _copy(path: Path, target: Path) -> tuple[int, str]:
    """Size and SHA-256 of what was copied."""
    hashed, size = hashlib.sha256(), 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as source, target.open("wb") as copy:
            while chunk := source.read(_CHUNK_BYTES):
                hashed.update(chunk)
                size += copy.write(chunk)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(target.parent, advice=ENLARGE_NODE) from None
        raise
    return size, hashed.hexdigest()


def _digest(entries: list[Entry]) -> str:
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def _where(spec: Mapping[str, Any]) -> str:
    return f"in {spec['path']} on claim {spec['claimName']}"


def _unreadable(spec: Mapping[str, Any], problem: str) -> StepError:
    return StepError("CalibrationUnreadable", f"spec.precision.calibration.dataset, {_where(spec)}: {problem}")


def _changed(spec: Mapping[str, Any], found: str) -> StepError:
    return StepError(
        "CalibrationChanged",
        f"the calibration texts {_where(spec)} are not those that were inspected: {found}. They are inspected again, "
        "and a checkpoint is made from what is there then; other texts belong into another directory.",
    )


def _listed(names: Collection[str]) -> str:
    listed = [_shown(name) for name in sorted(names)[:_LISTED]]
    return (", ".join(listed) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")) or "no files"


def _shown(name: str) -> str:
    """A name that need not be UTF-8, in a report that is."""
    return os.fsencode(name).decode(errors="replace")
