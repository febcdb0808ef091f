"""Reading side of the store: whether a published directory is whole. The steps' stores write what is read here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .report import StepError

MANIFEST_FILE = "manifest.json"
MANIFEST_VERSION = 1
_CHUNK_BYTES = 8 << 20
_THREADS = 4


def read(directory: Path, digest: str | None = None) -> dict[str, Any]:
    """The manifest of a published artifact, whose name the directory has. Raises StepError ArtifactCorrupted, also
    where the manifest is not the one whose `digest` was recorded at its publication."""
    path = directory / MANIFEST_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise corrupted(
            directory.name,
            f"{path} is not there: the artifact was removed from the store, or another claim is mounted than it was "
            "put into",
        ) from None
    require_recorded(data, digest, directory.name, str(path))
    return parse(data, directory.name, str(path))


def require_recorded(data: bytes, digest: str | None, artifact: str, where: str) -> None:
    """Raises StepError ArtifactCorrupted where a manifest is not the one that was recorded; None is that none was."""
    found = hashlib.sha256(data).hexdigest()
    if digest is not None and found != digest:
        why = f"{where} has SHA-256 {found}, and {digest} was recorded when {artifact} was published"
        raise corrupted(artifact, f"{why}: the store holds another copy than the one that was verified")


def parse(data: bytes, artifact: str, where: str) -> dict[str, Any]:
    """The manifest of an artifact from its bytes, which were found at `where`. Raises StepError ArtifactCorrupted."""
    try:
        manifest = json.loads(data)
    except ValueError as error:
        raise corrupted(artifact, f"{where} cannot be read: it is not JSON ({error})") from None
    if (
        not isinstance(manifest, dict)
        or manifest.get("manifestVersion") != MANIFEST_VERSION
        or not isinstance(manifest.get("files"), list)
    ):
        raise corrupted(artifact, f"{where} cannot be read: it is not a manifest of version {MANIFEST_VERSION}")
    if unsafe := [entry["path"] for entry in manifest["files"] if not _is_below(entry["path"])]:
        raise corrupted(artifact, f"{where} names {unsafe[0]}, which is outside of the artifact")
    return manifest


def verify(
    directory: Path, hashed: Callable[[str], bool] = lambda _path: True, digest: str | None = None
) -> dict[str, Any]:
    """Check every file's size, and SHA-256 where `hashed` says so of its path; return the manifest, which is the one of
    `digest` where that is given.

    Raises StepError ArtifactCorrupted that names every file that differs. Hashing runs in threads: it is bound by the
    volume, and leaves the engine in the page cache for the load that follows.
    """
    manifest = read(directory, digest)

    def check(entry: Mapping[str, Any]) -> str | None:
        path = directory / entry["path"]
        try:
            size = path.stat().st_size
            digest = sha256(path) if hashed(entry["path"]) and size == entry["size"] else None
        except OSError as error:
            return f"{entry['path']} cannot be read ({error.strerror})"
        return difference(entry, size, digest)

    with ThreadPoolExecutor(_THREADS) as pool:
        require_whole(directory.name, str(directory), pool.map(check, manifest["files"]))
    return manifest


def _is_below(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


def difference(entry: Mapping[str, Any], size: int, digest: str | None) -> str | None:
    """In what a file differs from its entry of the manifest; `digest` None leaves its content out."""
    if size != entry["size"]:
        return f"{entry['path']} has {size} bytes, the manifest says {entry['size']}"
    if digest is not None and digest != entry["sha256"]:
        return f"{entry['path']} has SHA-256 {digest}, the manifest says {entry['sha256']}"
    return None


def require_whole(artifact: str, where: str, differences: Iterable[str | None]) -> None:
    """Raises StepError ArtifactCorrupted when there is a difference."""
    if problems := [problem for problem in differences if problem]:
        raise corrupted(artifact, f"{where} is not what was published: {'; '.join(problems)}")


def corrupted(artifact: str, what: str) -> StepError:
    """An artifact that is not what was published. It may pass: the operator checks the store, and makes it again."""
    return StepError("ArtifactCorrupted", f"{what}.", retryable=True, artifact=artifact)


def sha256(path: Path) -> str:
    """Lower-case hexadecimal SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
