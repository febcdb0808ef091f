"""The store on a shared volume: a directory with its final name is complete and never changes.

<root>/<artifact>/manifest.json, <files>
<root>/.staging/<artifact>.<owner>/        being written; renamed when complete
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..runner import manifest
from ..runner.manifest import MANIFEST_FILE, sha256
from ..runner.report import is_disk_full, progress
from ..runner.volume import disk_full
from .store import Content, Download, Entry, Meter, Published, regular_files

_STAGING = ".staging"
_THREADS = 4


class VolumeStore:
    """Artifacts below one directory of a shared volume. Implements `store.Store`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def directory(self, artifact: str) -> Path:
        """Where an artifact is, or will be."""
        return self.root / artifact

    def has(self, artifact: str) -> bool:
        return self.directory(artifact).is_dir()

    def verify(self, artifact: str, digest: str | None = None) -> Published:
        manifest.verify(self.directory(artifact), digest=digest)
        return Published((self.directory(artifact) / MANIFEST_FILE).read_bytes())

    def provide(
        self, artifact: str, wanted: Callable[[str], bool] = lambda _path: True, digest: str | None = None
    ) -> Path:
        manifest.verify(self.directory(artifact), hashed=wanted, digest=digest)
        return self.directory(artifact)

    def publish(self, content: Content, output: Path, owner: str) -> Published:
        """Raises StepError DiskFull with the volume's numbers."""
        staging = self._staging(content.artifact, owner)
        return self._rename_into_place(content, staging, lambda: self._copy(output, staging), keep_on_failure=False)

    def receive(self, content: Content, files: Mapping[str, int], download: Download) -> Published:
        """All attempts share one staging directory, and so exclude each other. Raises StepError DiskFull."""
        started = time.monotonic()
        staging = self._staging(content.artifact)
        staging.parent.mkdir(exist_ok=True)
        with _alone(staging.with_name(f"{content.artifact}.lock")):
            if self.has(content.artifact):
                return self.verify(content.artifact)
            staging.mkdir(exist_ok=True)
            for unfinished in staging.rglob("*.incomplete"):
                unfinished.unlink()  # the hub's client begins a file anew
            _require_space(staging, sum(files.values()))
            download(tuple(files), staging)
            for surplus in {entry.name for entry in staging.iterdir()} - files.keys():
                _discard(staging / surplus)
            build = {**content.build, "durationSeconds": round(time.monotonic() - started)}
            return self._rename_into_place(replace(content, build=build), staging, lambda: None, keep_on_failure=True)

    def remove(self, artifact: str) -> None:
        _discard(self.directory(artifact), self._staging(artifact))
        self._clear_staging(artifact)

    def _staging(self, artifact: str, owner: str = "") -> Path:
        """Where an artifact is prepared: on the volume, so that a rename publishes it."""
        return self.root / _STAGING / (f"{artifact}.{owner}" if owner else artifact)

    def _rename_into_place(
        self, content: Content, staging: Path, fill: Callable[[], None], *, keep_on_failure: bool
    ) -> Published:
        """Manifest last, all of it on disk before the rename."""
        artifact = content.artifact
        try:
            fill()
            published = self._seal(content, staging)
            staging.rename(self.directory(artifact))
        except OSError as error:
            if not self.has(artifact):
                if not keep_on_failure:
                    _discard(staging)
                raise disk_full(self.root) if is_disk_full(error) else error from None
            progress("lost-race", artifact=artifact)
            published = self.verify(artifact)
        else:
            _sync_directory(self.root)
        self._clear_staging(artifact)
        return published

    def _copy(self, source: Path, staging: Path) -> None:
        files = list(regular_files(source))
        meter = Meter("copying", sum(size for _path, size in files))
        staging.mkdir(parents=True)
        for path, size in files:
            for parent in reversed(Path(path).parents):
                (staging / parent).mkdir(exist_ok=True)
            shutil.copyfile(source / path, staging / path)
            meter.add(size)

    def _seal(self, content: Content, staging: Path) -> Published:
        files = [path for path, _size in regular_files(staging) if path != MANIFEST_FILE]
        meter = Meter("hashing", sum((staging / path).stat().st_size for path in files))

        def entry(path: str) -> Entry:
            file = staging / path
            file.chmod(0o644)
            digest = sha256(file)
            _sync_file(file)
            size = file.stat().st_size
            meter.add(size)
            return {"path": path, "size": size, "sha256": digest}

        with ThreadPoolExecutor(_THREADS) as pool:
            published = Published.of(content, pool.map(entry, files))
        path = staging / MANIFEST_FILE
        path.write_bytes(published.data)
        path.chmod(0o644)
        _sync_file(path)
        for directory, _names, _files in os.walk(staging, topdown=False):
            Path(directory).chmod(0o755)
            _sync_directory(Path(directory))
        return published

    def _clear_staging(self, artifact: str) -> None:
        """Remove what any attempt at this artifact has left; one that is still at it then finds the artifact there."""
        for leftover in (self._staging(artifact), *self._staging(artifact).parent.glob(f"{artifact}.*")):
            _discard(leftover)


def _require_space(staging: Path, total_bytes: int) -> None:
    """Refuse at the start what would fail after hours."""
    needed = total_bytes - sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())
    if needed > shutil.disk_usage(staging).free:
        raise disk_full(staging, needed)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Keep two Pods from writing into the same staging directory; the kernel ends the lock with its holder."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting", why="another Pod fetches the same model")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
