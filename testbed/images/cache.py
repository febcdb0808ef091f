"""The directory of built images, shared by every clone of the repository on the machine."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.images import oci
from testbed.images.errors import BuildError
from testbed.progress import Progress

_KEPT_BUILDS = 2
"""Of each image, counting the newest; what is older goes when a new one is built."""
_LOCK_SECONDS = 1200
_LOCK_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class BuiltImage:
    """An image in the cache."""

    name: str
    reference: str
    digest: str
    archive: str
    """Absolute path of the OCI archive."""
    size_bytes: int
    layers: tuple[str, ...]
    key: str
    """Of everything it was built from."""


def cache_directory() -> Path:
    """Where images are kept: under XDG_CACHE_HOME, by default ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "llmengine-operator" / "images"


class Cache:
    """The built images in a directory, each found by the hash of what it was built from."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, name: str, key: str) -> BuiltImage | None:
        """The image `name` built from what `key` stands for, if it is there whole."""
        try:
            record = json.loads(self._record(name, key).read_text())
        except FileNotFoundError:
            return None
        image = BuiltImage(**{**record, "layers": tuple(record["layers"]), "archive": str(self.archive(name, key))})
        archive = Path(image.archive)
        return image if archive.is_file() and archive.stat().st_size == image.size_bytes else None

    def add(self, name: str, key: str, archive: Path) -> BuiltImage:
        """Take over a finished archive; older builds of `name` beyond the few that are kept go."""
        image = oci.read(archive)
        built = BuiltImage(
            name=name,
            reference=image.reference,
            digest=image.digest,
            archive=str(self.archive(name, key)),
            size_bytes=archive.stat().st_size,
            layers=image.layers,
            key=key,
        )
        archive.replace(built.archive)
        record = self._record(name, key)
        partial = record.with_suffix(".part")
        partial.write_text(json.dumps(asdict(built), indent=2))
        partial.replace(record)
        records = sorted(self.directory.glob(f"{name}@*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for outdated in records[_KEPT_BUILDS:]:
            outdated.unlink()
            outdated.with_suffix(".tar").unlink(missing_ok=True)
        return built

    def archive(self, name: str, key: str) -> Path:
        return self._record(name, key).with_suffix(".tar")

    def _record(self, name: str, key: str) -> Path:
        return self.directory / f"{name}@{key[:20]}.json"

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[Path]:
        """Hold the cache alone; yields an empty work directory that is gone afterwards.

        Raises:
            BuildError: another build does not end in time.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        work = self.directory / "work"
        with (self.directory / "lock").open("w") as lock:
            deadline = time.monotonic() + _LOCK_SECONDS
            with progress.step("wait for the cache"):
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        if time.monotonic() > deadline:
                            raise BuildError(
                                f"another build has held {lock.name} for {_LOCK_SECONDS} s; end it and try again"
                            ) from None
                        time.sleep(_LOCK_POLL_SECONDS)
            # Left by a build that was killed: only the holder of the lock works here.
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)
