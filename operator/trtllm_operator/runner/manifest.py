"""Reading side of the store: whether a published directory is whole. The steps' store.py writes what is read here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .report import StepError

MANIFEST_FILE = "manifest.json"
_CHUNK_BYTES = 8 << 20
_THREADS = 4


def read(directory: Path) -> dict[str, Any]:
    """The manifest of a published artefact. Raises StepError EngineCorrupted."""
    path = directory / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_text())
    except FileNotFoundError:
        raise StepError(
            "EngineCorrupted",
            f"{path} is not there: the artefact was removed from the store, or another claim is mounted than it was "
            "put into.",
        ) from None
    except ValueError as error:
        raise StepError("EngineCorrupted", f"{path} is not JSON: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("manifestVersion") != 1:
        raise StepError("EngineCorrupted", f"{path} is not a manifest of version 1.")
    return manifest


def verify(directory: Path, hashed: Callable[[str], bool] = lambda _path: True) -> dict[str, Any]:
    """Check every file's size, and SHA-256 where `hashed` says so of its path; return the manifest.

    Raises StepError EngineCorrupted that names every file that differs. Hashing runs in threads: it is bound by the
    volume, and leaves the engine in the page cache for the load that follows.
    """
    manifest = read(directory)

    def check(entry: Mapping[str, Any]) -> str | None:
        path = directory / entry["path"]
        try:
            size = path.stat().st_size
        except OSError as error:
            return f"{entry['path']} cannot be read ({error.strerror})"
        if size != entry["size"]:
            return f"{entry['path']} has {size} bytes, the manifest says {entry['size']}"
        if hashed(entry["path"]) and (found := sha256(path)) != entry["sha256"]:
            return f"{entry['path']} has SHA-256 {found}, the manifest says {entry['sha256']}"
        return None

    with ThreadPoolExecutor(_THREADS) as pool:
        problems = [problem for problem in pool.map(check, manifest["files"]) if problem]
    if problems:
        raise StepError("EngineCorrupted", f"{directory} is not what was published: {'; '.join(problems)}.")
    return manifest


def sha256(path: Path) -> str:
    """Lower-case hexadecimal SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
