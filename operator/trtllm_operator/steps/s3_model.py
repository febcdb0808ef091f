"""A model below a prefix of an S3 bucket."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..planning.report import TensorHeader
from ..runner.report import StepError, is_disk_full
from ..runner.volume import disk_full
from .bucket import Bucket, PreconditionError
from .source import parse_header

_PARTIAL = ".partial"


class S3Model:
    """The objects directly below a prefix. `revision` is a digest of their names, sizes and ETags, which change with
    the content."""

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        found = {o.key.removeprefix(self._prefix): o for o in bucket.objects(self._prefix, below=False)}
        found.pop("", None)  # a marker that some tools leave for a directory
        if not found:
            raise StepError(
                "ModelNotFound",
                f"there is no object below s3://{bucket.name}/{self._prefix}: check spec.model.s3.bucket and prefix",
            )
        self._etags = {name: o.etag for name, o in found.items()}
        self.files: Mapping[str, int] = {name: o.size for name, o in found.items()}
        identity = [[name, self.files[name], self._etags[name]] for name in sorted(found)]
        self.revision = hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def read(self, path: str) -> bytes:
        return self._part(path, None)

    def tensors(self, path: str) -> Mapping[str, TensorHeader]:
        return parse_header(path, self.files[path], lambda start, end: self._part(path, (start, end - 1)))

    def download(self, paths: tuple[str, ...], directory: Path) -> None:
        """Bring files into a directory; one that an earlier run left unfinished is gone on with."""
        for path in paths:
            size, target = self.files[path], directory / path
            if target.is_file() and target.stat().st_size == size:
                continue
            partial = directory / f"{path}.{hashlib.sha256(self._etags[path].encode()).hexdigest()[:16]}{_PARTIAL}"
            try:
                with partial.open("ab") as out:
                    for chunk in self._bucket.stream(
                        self._prefix + path, size, start=out.tell(), etag=self._etags[path]
                    ):
                        out.write(chunk)
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    raise self._changed(path) from None
                if is_disk_full(error):
                    raise disk_full(directory, size - partial.stat().st_size) from None
                raise
            except PreconditionError:
                partial.unlink()
                raise self._changed(path) from None
            if partial.stat().st_size != size:
                partial.unlink()
                raise StepError(
                    "DownloadCorrupted", f"{path} did not arrive with the {size} bytes that it has", retryable=True
                )
            partial.rename(target)

    def _part(self, path: str, byte_range: tuple[int, int] | None) -> bytes:
        try:
            found = self._bucket.get(self._prefix + path, byte_range, self._etags[path])
        except PreconditionError:
            raise self._changed(path) from None
        if found is None:
            raise self._changed(path)
        return found

    def _changed(self, path: str) -> StepError:
        return StepError(
            "ModelChanged",
            f"{path} in s3://{self._bucket.name}/{self._prefix} changed while it was read: a model must not change in "
            "place. Put the new one below another prefix and name that in spec.model.",
        )


def open_model(where: Mapping[str, Any], credentials: str | None) -> S3Model:
    """`where`: {"bucket", "prefix", "endpoint", "region"}; `credentials`: directory of the Secret's files."""
    return S3Model(Bucket(where, Path(credentials) if credentials else None, "spec.model.s3"), where.get("prefix", ""))
