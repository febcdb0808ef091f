"""The store of artefacts on a shared volume: a directory with its final name is complete and never changes.

<root>/<artefact>/manifest.json, <files>
<root>/.staging/<artefact>.<owner>/        being written; renamed when complete
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runner.manifest import MANIFEST_FILE, sha256
from ..runner.report import StepError, is_disk_full, progress
from ..runner.volume import disk_full

MANIFEST_VERSION = 1
_STAGING = ".staging"
_THREADS = 4
_PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class Published:
    """A complete artefact."""

    manifest: Mapping[str, Any]
    digest: str
    """SHA-256 of manifest.json."""

    def report(self) -> dict[str, Any]:
        """What the operator keeps of it in the artefact's status."""
        files = self.manifest["files"]
        return {
            "manifestDigest": self.digest,
            "sizeBytes": sum(entry["size"] for entry in files),
            "files": len(files),
            "build": self.manifest["build"],
        }


class Store:
    """Artefacts below one directory of a shared volume."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def directory(self, artifact: str) -> Path:
        """Where an artefact is, or will be."""
        return self.root / artifact

    def staging(self, artifact: str, owner: str = "") -> Path:
        """Where an artefact is prepared: on the volume, so that a rename publishes it. With no owner the directory is
        shared by all attempts, which then must exclude each other."""
        return self.root / _STAGING / (f"{artifact}.{owner}" if owner else artifact)

    def has(self, artifact: str) -> bool:
        return self.directory(artifact).is_dir()

    def verify(self, artifact: str) -> Published:
        """Read every file of an artefact. Raises StepError ArtifactCorrupted that names each that differs."""
        directory = self.directory(artifact)
        try:
            data = (directory / MANIFEST_FILE).read_bytes()
            manifest = json.loads(data)
            if manifest["manifestVersion"] != MANIFEST_VERSION:
                raise ValueError(f"manifest version {manifest['manifestVersion']}")  # noqa: TRY301
            entries = manifest["files"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StepError(
                "ArtifactCorrupted", f"{directory}/{MANIFEST_FILE} cannot be read ({error}). {_REMEDY}"
            ) from None
        with ThreadPoolExecutor(_THREADS) as pool:
            problems = [
                problem for problem in pool.map(lambda entry: _difference(directory, entry), entries) if problem
            ]
        if problems:
            raise StepError(
                "ArtifactCorrupted", f"{directory} is not what was published: {'; '.join(problems)}. {_REMEDY}"
            )
        return Published(manifest, hashlib.sha256(data).hexdigest())

    def publish(
        self,
        staging: Path,
        artifact: str,
        kind: str,
        inputs: Mapping[str, Any],
        build: Mapping[str, Any],
        *,
        source: Path | None = None,
    ) -> Published:
        """Make what is in `staging` (copied there from `source` first) the artefact: manifest last, all of it on disk
        before the rename.

        Losing the race to another builder of the same artefact is success: what that one published is verified and
        returned. A crash at any point leaves either no directory of the final name or a complete one. Raises StepError
        DiskFull with the volume's numbers.
        """
        try:
            if source is not None:
                self._copy(source, staging)
            published = self._seal(staging, artifact, kind, inputs, build)
            staging.rename(self.directory(artifact))
        except OSError as error:
            if not self.has(artifact):
                if source is not None:
                    _discard(staging)
                raise disk_full(self.root) if is_disk_full(error) else error from None
            progress("lost-race", artifact=artifact)
            published = self.verify(artifact)
        else:
            _sync_directory(self.root)
        self._clear_staging(artifact)
        return published

    def remove(self, artifact: str) -> None:
        """Take an artefact away, all at once for readers: nobody sees a directory that lacks files."""
        _discard(self.directory(artifact), self.staging(artifact))
        self._clear_staging(artifact)

    def _copy(self, source: Path, staging: Path) -> None:
        files = list(regular_files(source))
        meter = Meter("copying", sum(size for _path, size in files))
        staging.mkdir(parents=True)
        for path, size in files:
            for parent in reversed(Path(path).parents):
                (staging / parent).mkdir(exist_ok=True)
            shutil.copyfile(source / path, staging / path)
            meter.add(size)

    def _seal(
        self, staging: Path, artifact: str, kind: str, inputs: Mapping[str, Any], build: Mapping[str, Any]
    ) -> Published:
        files = [path for path, _size in regular_files(staging) if path != MANIFEST_FILE]
        meter = Meter("hashing", sum((staging / path).stat().st_size for path in files))

        def entry(path: str) -> dict[str, Any]:
            file = staging / path
            file.chmod(0o644)
            digest = sha256(file)
            _sync_file(file)
            size = file.stat().st_size
            meter.add(size)
            return {"path": path, "size": size, "sha256": digest}

        with ThreadPoolExecutor(_THREADS) as pool:
            entries = list(pool.map(entry, files))
        manifest = {
            "manifestVersion": MANIFEST_VERSION,
            "artifact": artifact,
            "type": kind,
            "inputs": inputs,
            "build": build,
            "files": entries,
        }
        data = json.dumps(manifest, indent=1, sort_keys=True).encode()
        path = staging / MANIFEST_FILE
        path.write_bytes(data)
        path.chmod(0o644)
        _sync_file(path)
        for directory, _names, _files in os.walk(staging, topdown=False):
            Path(directory).chmod(0o755)
            _sync_directory(Path(directory))
        return Published(manifest, hashlib.sha256(data).hexdigest())

    def _clear_staging(self, artifact: str) -> None:
        """Remove what any attempt at this artefact has left; one that is still at it then finds the artefact there."""
        for leftover in (self.staging(artifact), *self.staging(artifact).parent.glob(f"{artifact}.*")):
            _discard(leftover)


class Meter:
    """Says how far a long piece of work is, at most every few seconds."""

    def __init__(self, event: str, total_bytes: int) -> None:
        self.done = 0
        self._event, self._total = event, total_bytes
        self._said = time.monotonic()

    def add(self, size: int) -> None:
        self.done += size
        self.say(self.done)

    def say(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said >= _PROGRESS_SECONDS or done >= self._total:
            self._said = now
            progress(self._event, bytes=done, totalBytes=self._total)


def regular_files(directory: Path) -> Iterator[tuple[str, int]]:
    """Paths below a directory and their sizes in bytes, sorted. Raises StepError for what is neither file nor
    directory: a link would be published as a name without content."""
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            yield path.relative_to(directory).as_posix(), status.st_size
        elif not stat.S_ISDIR(status.st_mode):
            raise StepError("OutputInvalid", f"{path} is a link or a special file, which the store does not take")


_REMEDY = "Delete its EngineArtifact, and it is made again."


def _difference(directory: Path, entry: Mapping[str, Any]) -> str | None:
    path = directory / entry["path"]
    try:
        size = path.stat().st_size
        if size != entry["size"]:
            return f"{entry['path']} has {size} bytes, the manifest says {entry['size']}"
        found = sha256(path)
    except OSError as error:
        return f"{entry['path']} cannot be read ({error.strerror})"
    return None if found == entry["sha256"] else f"{entry['path']} has another SHA-256 than the manifest says"


def _discard(path: Path, alias: Path | None = None) -> None:
    """Remove a directory or file of the store; whoever uses its name finds it gone at once, never half gone."""
    doomed = (alias or path).with_name(f"{(alias or path).name}.discarded-{uuid.uuid4().hex}")
    doomed.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.rename(doomed)
    except FileNotFoundError:
        return
    if doomed.is_dir():
        shutil.rmtree(doomed, ignore_errors=True)
    else:
        doomed.unlink(missing_ok=True)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    """A directory's entries to disk; file systems that have no such call (some FUSE) need none."""
    try:
        _sync_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
