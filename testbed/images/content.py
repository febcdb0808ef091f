"""What goes into an image: its files, their hashes, and a build context that holds exactly them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from testbed.images.errors import BuildError

_IGNORED_NAMES = {"__pycache__"}


def files_of(root: Path, sources: Iterable[str]) -> dict[str, Path]:
    """The files and links under `sources` (paths relative to `root`), by path in the context, sorted.

    Raises:
        BuildError: a source does not exist.
    """
    found: dict[str, Path] = {}
    for source in sources:
        path = root / source
        if path.is_dir():
            found.update(
                (entry.relative_to(root).as_posix(), entry)
                for entry in path.rglob("*")
                if not _IGNORED_NAMES.intersection(entry.parts) and (entry.is_symlink() or entry.is_file())
            )
        elif path.is_file():
            found[source] = path
        else:
            raise BuildError(f"{path} is missing: an image is built from it")
    return dict(sorted(found.items()))


def fingerprint(files: Mapping[str, Path]) -> dict[str, str]:
    """Per path what an image can see of the file: its SHA-256, whether it is executable, or where a link points."""
    seen = {}
    for name, path in files.items():
        if path.is_symlink():
            seen[name] = f"link {path.readlink()}"
        else:
            kind = "program" if os.access(path, os.X_OK) else "file"
            seen[name] = f"{kind} {sha256_of(path)}"
    return seen


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def key_of(inputs: Mapping[str, object]) -> str:
    """64 hexadecimal digits that change when anything in `inputs` (JSON values) does."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def stage(files: Mapping[str, Path], context: Path) -> None:
    """Copy `files` into the directory `context`, with modes that do not depend on who checked them out."""
    context.mkdir(parents=True, exist_ok=True)
    for name, path in files.items():
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(path.readlink())
        else:
            shutil.copyfile(path, target)
            target.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    for directory in (context, *(entry for entry in context.rglob("*") if entry.is_dir() and not entry.is_symlink())):
        directory.chmod(0o755)
