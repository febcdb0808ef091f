"""The store in a bucket: an artifact is there when its manifest is.

<prefix>/<artifact>/manifest.json           created last, on the condition that there is none; deleted first
<prefix>/<artifact>/<SHA-256>/<path>        a file; its key names its content, so that nothing is ever overwritten

Objects that no manifest names are of publishers that died, lost a race, or are still at it: readers never see them.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ..runner.manifest import MANIFEST_FILE, corrupted, difference, parse, require_recorded, require_whole, sha256
from ..runner.report import StepError, is_disk_full, progress
from ..runner.volume import ENLARGE_NODE, disk_full
from .bucket import Bucket, PreconditionError, UploadGoneError
from .store import Content, Download, Entry, Meter, Published, regular_files

_THREADS = 4
_SENT_AT_ONCE = 2
"""Files that are uploaded at a time, each by several parts. A model's lie in the scratch directory meanwhile, for which
artifacts/chain.py plans."""
_CONDITIONS_KEY = "conditional-writes"
_PARTIAL = ".partial"


class ObjectStore:
    """Artifacts below a prefix of a bucket. Implements `store.Store`."""

    def __init__(self, bucket: Bucket, prefix: str, scratch: Path) -> None:
        """`scratch` is a directory of the Pod: what is provided and what is received passes through it."""
        self._bucket, self._prefix, self._scratch = bucket, prefix.strip("/"), scratch

    def has(self, artifact: str) -> bool:
        return self._bucket.get(self._key(artifact, MANIFEST_FILE)) is not None

    def verify(self, artifact: str, digest: str | None = None) -> Published:
        published = self._read(artifact, digest)
        entries = published.manifest["files"]
        meter = Meter("verifying", sum(entry["size"] for entry in entries))

        def check(entry: Entry) -> str | None:
            digest, size = hashlib.sha256(), 0
            try:
                for chunk in self._bucket.stream(self._file_key(artifact, entry), entry["size"]):
                    digest.update(chunk)
                    size += len(chunk)
                    meter.add(len(chunk))
            except FileNotFoundError:
                return f"{entry['path']} is not there"
            return difference(entry, size, digest.hexdigest())

        with ThreadPoolExecutor(_THREADS) as pool:
            require_whole(artifact, self._where(artifact), pool.map(check, entries))
        return published

    def provide(
        self, artifact: str, wanted: Callable[[str], bool] = lambda _path: True, digest: str | None = None
    ) -> Path:
        """Download into <scratch>/store/<artifact>, with a manifest of the files that are wanted. What an interrupted
        run has left there is gone on with. Raises StepError ArtifactCorrupted, DiskFull."""
        published = self._read(artifact, digest)
        entries = [entry for entry in published.manifest["files"] if wanted(entry["path"])]
        target = self._scratch / "store" / artifact
        target.mkdir(parents=True, exist_ok=True)
        (target / MANIFEST_FILE).unlink(missing_ok=True)
        meter = Meter("staging", sum(entry["size"] for entry in entries))
        try:
            with ThreadPoolExecutor(_THREADS) as pool:
                found = pool.map(lambda entry: self._download(artifact, entry, target, meter), entries)
                require_whole(artifact, self._where(artifact), found)
        except OSError as error:
            if is_disk_full(error):
                raise disk_full(target, sum(e["size"] for e in entries) - meter.done, ENLARGE_NODE) from None
            raise
        kept = {entry["path"] for entry in entries}
        for path, _size in list(regular_files(target)):
            if path not in kept:
                (target / path).unlink()
        manifest = published.manifest
        content = Content(artifact, manifest["type"], manifest["inputs"], manifest["build"])
        (target / MANIFEST_FILE).write_bytes(Published.of(content, entries).data)
        return target

    def publish(self, content: Content, output: Path, owner: str) -> Published:
        """`owner` is of no use here: attempts are told apart by what they made."""
        files = list(regular_files(output))
        meter = Meter("uploading", sum(size for _path, size in files))

        def upload(file: tuple[str, int]) -> Entry:
            entry = self._upload(content.artifact, file[0], output / file[0])
            meter.add(entry["size"])
            return entry

        def fill() -> Iterable[Entry]:
            with ThreadPoolExecutor(_SENT_AT_ONCE) as pool:
                return list(pool.map(upload, files))

        return self._publish(content, fill)

    def receive(self, content: Content, files: Mapping[str, int], download: Download) -> Published:
        """File by file through the scratch directory, which so holds a few of them at a time."""
        started = time.monotonic()
        incoming = self._scratch / "incoming"
        incoming.mkdir(exist_ok=True)
        meter = Meter("fetching", sum(files.values()))

        def fill() -> Iterable[Entry]:
            here = {e["path"]: e for e in self._files(content.artifact) if e["size"] == files.get(e["path"])}

            def bring(path: str) -> Entry:
                entry = here.get(path)
                if entry is None:
                    own = incoming / hashlib.sha256(path.encode()).hexdigest()[:16]
                    own.mkdir(exist_ok=True)
                    download((path,), own)
                    entry = self._upload(content.artifact, path, own / path)
                    shutil.rmtree(own)
                meter.add(entry["size"])
                return entry

            with ThreadPoolExecutor(_SENT_AT_ONCE) as pool:
                return list(pool.map(bring, files))

        try:
            return self._publish(
                content, fill, lambda: {**content.build, "durationSeconds": round(time.monotonic() - started)}
            )
        except OSError as error:
            if is_disk_full(error):
                raise disk_full(incoming, max(files.values()), ENLARGE_NODE) from None
            raise

    def remove(self, artifact: str) -> None:
        self._bucket.delete(self._key(artifact, MANIFEST_FILE))
        for found in self._bucket.objects(self._key(artifact)):
            self._bucket.delete(found.key)
        self._bucket.abort_uploads(self._key(artifact))

    def _publish(
        self,
        content: Content,
        fill: Callable[[], Iterable[Entry]],
        build: Callable[[], Mapping[str, object]] | None = None,
    ) -> Published:
        artifact = content.artifact
        self._require_conditions()
        try:
            entries = fill()
            published = Published.of(replace(content, build=build()) if build else content, entries)
            self._bucket.create(self._key(artifact, MANIFEST_FILE), published.data)
        except (PreconditionError, UploadGoneError):
            if not self.has(artifact):
                raise StepError(
                    "StorageUnreachable",
                    f"{self._where(artifact)} was being removed while it was published",
                    retryable=True,
                ) from None
            progress("lost-race", artifact=artifact)
            published = self.verify(artifact)
        self._clear(published, artifact)
        return published

    def _clear(self, published: Published, artifact: str) -> None:
        """Remove what other attempts have left; one that is still at it then finds the artifact there.

        Raises StepError when somebody has removed files of this artifact meanwhile, and takes its manifest back.
        """
        named = {self._file_key(artifact, entry): entry["size"] for entry in published.manifest["files"]}
        for found in list(self._bucket.objects(self._key(artifact))):
            if named.pop(found.key, None) is None and not found.key.endswith(f"/{artifact}/{MANIFEST_FILE}"):
                self._bucket.delete(found.key)
        self._bucket.abort_uploads(self._key(artifact))
        if named:
            self._bucket.delete(self._key(artifact, MANIFEST_FILE))
            raise StepError(
                "StorageUnreachable",
                f"{self._where(artifact)} was being removed while it was published: it lacks {sorted(named)[0]}",
                retryable=True,
            )

    def _require_conditions(self) -> None:
        """Refuse a server that ignores If-None-Match: there two builders could each publish over the other."""
        key = f"{self._prefix}/{_CONDITIONS_KEY}".lstrip("/")
        for _ in range(2):
            try:
                self._bucket.create(key, b"Proves that this server honors If-None-Match.\n")
            except PreconditionError:
                return
        raise StepError(
            "StorageRefused",
            "the server of spec.storage.s3 ignores conditional writes (If-None-Match), without which two builds of one "
            "artifact could mix. Use a server that honors them (Amazon S3 and current S3-compatible servers do), or a "
            "persistentVolumeClaim.",
        )

    def _upload(self, artifact: str, path: str, file: Path) -> Entry:
        entry: Entry = {"path": path, "size": file.stat().st_size, "sha256": sha256(file)}
        key = self._file_key(artifact, entry)
        if not any(found.key == key and found.size == entry["size"] for found in self._bucket.objects(key)):
            self._bucket.upload(key, file, entry["size"])
        return entry

    def _download(self, artifact: str, entry: Entry, target: Path, meter: Meter) -> str | None:
        """One file, continued where it breaks; the difference from its entry, if any."""
        file = target / entry["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file() and difference(entry, file.stat().st_size, sha256(file)) is None:
            meter.add(entry["size"])
            return None
        partial = file.with_name(f"{file.name}.{entry['sha256']}{_PARTIAL}")
        digest, size = hashlib.sha256(), 0
        with partial.open("ab+") as out:
            out.seek(0)
            while chunk := out.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
            meter.add(size)
            try:
                for chunk in self._bucket.stream(self._file_key(artifact, entry), entry["size"], start=size):
                    out.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                    meter.add(len(chunk))
            except FileNotFoundError:
                return f"{entry['path']} is not there"
        problem = difference(entry, size, digest.hexdigest())
        if problem:
            partial.unlink()
        else:
            partial.rename(file)
        return problem

    def _read(self, artifact: str, digest: str | None = None) -> Published:
        data = self._bucket.get(self._key(artifact, MANIFEST_FILE))
        where = f"{self._where(artifact)}/{MANIFEST_FILE}"
        if data is None:
            raise corrupted(artifact, f"{where} is not there: the artifact was removed from the bucket")
        require_recorded(data, digest, artifact, where)
        parse(data, artifact, where)
        return Published(data)

    def _files(self, artifact: str) -> Iterator[Entry]:
        """Files of the artifact that are uploaded, whoever did."""
        prefix = self._key(artifact)
        for found in self._bucket.objects(prefix):
            digest, _, path = found.key.removeprefix(prefix).partition("/")
            if path:
                yield {"path": path, "size": found.size, "sha256": digest}

    def _file_key(self, artifact: str, entry: Entry) -> str:
        return self._key(artifact, f"{entry['sha256']}/{entry['path']}")

    def _key(self, artifact: str, path: str = "") -> str:
        return f"{self._prefix}/{artifact}/{path}".lstrip("/")

    def _where(self, artifact: str) -> str:
        return f"s3://{self._bucket.name}/{self._key(artifact).rstrip('/')}"
