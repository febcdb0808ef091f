"""Where artifacts are kept: what a volume and a bucket have in common.

A store shows an artifact to its readers whole or not at all, and never changes it. `manifest.json`, which names every
other file with size and SHA-256, is what makes it whole: it is written last, and goes first.
"""

from __future__ import annotations

import hashlib
import json
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..runner import manifest
from ..runner.report import StepError, progress

PROGRESS_SECONDS = 5.0
Download = Callable[[tuple[str, ...], Path], None]
"""Brings files into a directory, but those that an interrupted run has left there whole."""
Entry = dict[str, Any]
"""A file in a manifest: {"path", "size", "sha256"}."""


@dataclass(frozen=True)
class Content:
    """What a manifest says beside the files."""

    artifact: str
    type: str
    inputs: Mapping[str, Any]
    build: Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """A complete artifact."""

    data: bytes
    """manifest.json"""

    @classmethod
    def of(cls, content: Content, files: Iterable[Entry]) -> Published:
        described = {
            "manifestVersion": manifest.MANIFEST_VERSION,
            "artifact": content.artifact,
            "type": content.type,
            "inputs": content.inputs,
            "build": content.build,
            "files": sorted(files, key=lambda entry: str(entry["path"])),
        }
        return cls(json.dumps(described, indent=1, sort_keys=True).encode())

    @property
    def manifest(self) -> Mapping[str, Any]:
        return dict(json.loads(self.data))

    @property
    def digest(self) -> str:
        """SHA-256 of manifest.json."""
        return hashlib.sha256(self.data).hexdigest()

    def report(self) -> dict[str, Any]:
        """What the operator keeps of it in the artifact's status."""
        found = self.manifest
        return {
            "manifestDigest": self.digest,
            "sizeBytes": sum(entry["size"] for entry in found["files"]),
            "files": len(found["files"]),
            "build": found["build"],
        }


class Store(Protocol):
    """Artifacts by their names."""

    def has(self, artifact: str) -> bool:
        """Whether the artifact is published."""

    def verify(self, artifact: str, digest: str | None = None) -> Published:
        """Read every file of an artifact. Raises StepError ArtifactCorrupted that names each that differs, also where
        its manifest has not the `digest` that was recorded at its publication."""

    def provide(self, artifact: str, wanted: Callable[[str], bool] = ..., digest: str | None = None) -> Path:
        """The directory in which containers without the store's credentials find the verified files that are wanted."""

    def publish(self, content: Content, output: Path, owner: str) -> Published:
        """Make the files below `output` the artifact. `owner` tells attempts at it apart.

        Losing the race to another builder of the same artifact is success: what that one published is verified and
        returned. A crash at any point leaves either nothing that readers see or the whole artifact.
        """

    def receive(self, content: Content, files: Mapping[str, int], download: Download) -> Published:
        """Make files that come from elsewhere, with their sizes in bytes, the artifact. Files that an interrupted run
        of the same content has brought already are kept. Adds `durationSeconds` to what the manifest says of the build.
        """

    def remove(self, artifact: str) -> None:
        """Take an artifact away, and what attempts at it have left; readers find it gone at once, never half gone."""


class Meter:
    """Says how far a long piece of work is, at most every few seconds. Threads may share one."""

    def __init__(self, event: str, total_bytes: int) -> None:
        self.done = 0
        self._event, self._total = event, total_bytes
        self._said = time.monotonic()
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self.done += size
            self.say(self.done)

    def say(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said >= PROGRESS_SECONDS or done >= self._total:
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
