"""An S3-compatible bucket: the requests that the steps make, and its refusals in words that say what to do."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..runner.report import StepError
from .credentials import read_credential

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
CA_FILE = "ca.crt"
"""Keys of the Secret, and so names of the files; the last two may be left out."""
PART_BYTES = 16 << 20
MAX_PARTS = 10_000
"""S3's own limit."""
CHUNK_BYTES = 1 << 20
_PARTS_AT_ONCE = 4
_UPLOADS = 3
_STALLS = 5
"""How often in a row a download may break off without a byte having come."""
_READ_SECONDS = 60
_CONFLICTS, _CONFLICT_SECONDS = 10, 0.5


class Object(NamedTuple):
    """One object of a listing."""

    key: str
    size: int
    etag: str
    """Changes with the content."""


class PreconditionError(Exception):
    """The object is there already, or is not the one that was asked for."""


class UploadGoneError(Exception):
    """Somebody else aborts the multipart upload."""


class Bucket:
    """A bucket with the credentials in a directory of files, or with none for a public one."""

    def __init__(self, where: Mapping[str, Any], credentials: Path | None, field: str) -> None:
        """`where`: {"bucket", "endpoint" (absent: AWS), "region"}. `field` of the spec is what messages speak of."""
        self.name: str = where["bucket"]
        self._endpoint: str | None = where.get("endpoint")
        self._field = field
        secret = _Secret(credentials, field) if credentials else None
        settings = Config(
            signature_version=None if secret else UNSIGNED,
            s3={"addressing_style": "path" if self._endpoint else "auto", "payload_signing_enabled": True},
            retries={"mode": "standard", "total_max_attempts": 5},
            connect_timeout=10,
            read_timeout=_READ_SECONDS,
            max_pool_connections=32,
            # What signing already proves to every server; newer checksums are refused by older ones.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self._client: Any = botocore.session.Session().create_client(
            "s3",
            region_name=where["region"],
            endpoint_url=self._endpoint,
            config=settings,
            aws_access_key_id=secret.read(ACCESS_KEY) if secret else None,
            aws_secret_access_key=secret.read(SECRET_KEY) if secret else None,
            aws_session_token=secret.optional(SESSION_TOKEN) if secret else None,
            verify=secret.ca if secret else None,
        )

    def get(self, key: str, byte_range: tuple[int, int] | None = None, etag: str | None = None) -> bytes | None:
        """A small object, or `byte_range` of it (first, last byte); None when there is none.

        Raises PreconditionError when its content is no longer that of `etag`.
        """
        arguments = {"IfMatch": etag} if etag else {}
        if byte_range:
            arguments["Range"] = f"bytes={byte_range[0]}-{byte_range[1]}"
        with self._asking(key):
            try:
                return bytes(self._client.get_object(Bucket=self.name, Key=key, **arguments)["Body"].read())
            except ClientError as error:
                if _code(error) in ("NoSuchKey", "404"):
                    return None
                raise

    def stream(self, key: str, size: int, *, start: int = 0, etag: str | None = None) -> Iterator[bytes]:
        """An object from byte `start` on, gone on with where the connection breaks. Raises FileNotFoundError when there
        is none, PreconditionError when its content is no longer that of `etag`."""
        stalls = 0
        while start < size:
            came = 0
            try:
                for chunk in self._chunks(key, start, etag):
                    came += len(chunk)
                    yield chunk
                if came == 0:
                    return  # shorter than it should be: the reader sees it by the size
            except BotoCoreError as error:
                stalls = 0 if came else stalls + 1
                if stalls >= _STALLS:
                    raise self._unreachable(error) from None
            start += came

    def objects(self, prefix: str, *, below: bool = True) -> Iterator[Object]:
        """Objects whose keys begin with `prefix`; without `below` only those with no further `/`."""
        arguments = {} if below else {"Delimiter": "/"}
        with self._asking(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix, **arguments)
            for page in pages:
                for entry in page.get("Contents", ()):
                    yield Object(entry["Key"], entry["Size"], entry["ETag"])

    def create(self, key: str, content: bytes) -> None:
        """Put an object that must not exist yet. Raises PreconditionError when it does."""
        for left in reversed(range(_CONFLICTS)):
            with self._asking(key):
                try:
                    self._client.put_object(Bucket=self.name, Key=key, Body=content, IfNoneMatch="*")
                except ClientError as error:
                    # Somebody else is creating it at this moment: whether they do decides the next try.
                    if _code(error) != "ConditionalRequestConflict" or not left:
                        raise
                    time.sleep(_CONFLICT_SECONDS)
                else:
                    return

    def upload(self, key: str, path: Path, size: int) -> None:
        """Put a file whose content the key names: parts of an earlier, interrupted upload of it are used again.

        Where that upload is still somebody's who has the same content, whoever is first completes it. Raises
        UploadGoneError when others abort it again and again.
        """
        with self._asking(key):
            if size <= PART_BYTES:
                self._client.put_object(Bucket=self.name, Key=key, Body=path.read_bytes())
                return
            for attempt in range(_UPLOADS):
                try:
                    self._upload_parts(key, path, size, resume=attempt == 0)
                except ClientError as error:
                    if _code(error) not in ("NoSuchUpload", "InvalidPart"):
                        raise
                    if any(found.key == key and found.size == size for found in self.objects(key)):
                        return
                else:
                    return
        raise UploadGoneError(key)

    def delete(self, key: str) -> None:
        """Delete an object; that there is none is success."""
        with self._asking(key):
            self._client.delete_object(Bucket=self.name, Key=key)

    def abort_uploads(self, prefix: str) -> int:
        """Give up the unfinished multipart uploads below `prefix`; how many there were."""
        with self._asking(prefix):
            found = list(self._uploads(prefix))
            for key, upload in found:
                try:
                    self._client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload)
                except ClientError as error:
                    if _code(error) != "NoSuchUpload":
                        raise
        return len(found)

    def _chunks(self, key: str, start: int, etag: str | None) -> Iterator[bytes]:
        arguments = {"IfMatch": etag} if etag else {}
        if start:
            arguments["Range"] = f"bytes={start}-"
        with self._asking(key):
            try:
                body = self._client.get_object(Bucket=self.name, Key=key, **arguments)["Body"]
            except ClientError as error:
                if _code(error) in ("NoSuchKey", "404"):
                    raise FileNotFoundError(key) from None
                if _code(error) in ("InvalidRange", "416"):
                    return
                raise
        yield from body.iter_chunks(CHUNK_BYTES)

    def _upload_parts(self, key: str, path: Path, size: int, *, resume: bool) -> None:
        part_bytes = max(PART_BYTES, -(-math.ceil(size / MAX_PARTS) // CHUNK_BYTES) * CHUNK_BYTES)
        wanted = {n + 1: min(part_bytes, size - n * part_bytes) for n in range(math.ceil(size / part_bytes))}
        upload, done = (self._resume(key, wanted) if resume else None) or (self._begin(key), {})

        def send(number: int) -> dict[str, Any]:
            with path.open("rb") as file:
                file.seek((number - 1) * part_bytes)
                body = file.read(wanted[number])
            answer = self._client.upload_part(Bucket=self.name, Key=key, UploadId=upload, PartNumber=number, Body=body)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
            parts = [done.get(number) or pool.submit(send, number) for number in wanted]
            finished = [part if isinstance(part, dict) else part.result() for part in parts]
        self._client.complete_multipart_upload(
            Bucket=self.name, Key=key, UploadId=upload, MultipartUpload={"Parts": finished}
        )

    def _resume(self, key: str, wanted: Mapping[int, int]) -> tuple[str, dict[int, dict[str, Any]]] | None:
        """An unfinished upload of this key and the parts it has."""
        for found, upload in self._uploads(key):
            if found == key:
                pages = self._client.get_paginator("list_parts").paginate(Bucket=self.name, Key=key, UploadId=upload)
                parts = [part for page in pages for part in page.get("Parts", ())]
                return upload, {
                    part["PartNumber"]: {"PartNumber": part["PartNumber"], "ETag": part["ETag"]}
                    for part in parts
                    if wanted.get(part["PartNumber"]) == part["Size"]
                }
        return None

    def _begin(self, key: str) -> str:
        return str(self._client.create_multipart_upload(Bucket=self.name, Key=key)["UploadId"])

    def _uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self.name, Prefix=prefix)
        for page in pages:
            for entry in page.get("Uploads", ()):
                yield entry["Key"], entry["UploadId"]

    @contextmanager
    def _asking(self, key: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            if _code(error) in ("PreconditionFailed", "412"):
                raise PreconditionError(key) from None
            raise self._refusal(error, key) from None
        except BotoCoreError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> StepError:
        return StepError(
            "StorageUnreachable",
            f"{self._at} cannot be reached for bucket {self.name}: {type(error).__name__}: {error}",
            retryable=True,
        )

    def _refusal(self, error: ClientError, key: str) -> StepError:
        code, status = _code(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        told = error.response.get("Error", {}).get("Message") or "no reason given"
        if code in ("NoSuchBucket", "InvalidBucketName"):
            return StepError("StorageRefused", f"{self._at} has no bucket {self.name}: check {self._field}.bucket")
        if code in (
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "ExpiredToken",
            "InvalidToken",
            "TokenRefreshRequired",
        ):
            return StepError(
                "StorageRefused",
                f"{self._at} refuses the credentials ({code}): check {ACCESS_KEY} and {SECRET_KEY} in the Secret that "
                f"{self._field}.credentialsSecretRef names",
            )
        if code in ("AuthorizationHeaderMalformed", "PermanentRedirect", "301"):
            return StepError(
                "StorageRefused", f"bucket {self.name} is in another region ({told}): check {self._field}.region"
            )
        if code == "RequestTimeTooSkewed":
            return StepError("StorageRefused", f"this node's clock differs too much from that of {self._at}: set it")
        if status in (401, 403):
            return StepError(
                "StorageRefused",
                f"{self._at} forbids {error.operation_name} of {self.name}/{key} ({code}: {told}): the credentials of "
                f"{self._field}.credentialsSecretRef lack a permission",
            )
        return StepError(
            "StorageUnreachable",
            f"{self._at} answers {error.operation_name} of {self.name}/{key} with HTTP {status} ({code}: {told})",
            retryable=status >= 500 or status == 429,
        )

    @property
    def _at(self) -> str:
        return self._endpoint or "Amazon S3"


class _Secret:
    """A Secret as files."""

    def __init__(self, directory: Path, field: str) -> None:
        self._directory = directory
        self._field = field

    def read(self, key: str) -> str:
        found = self.optional(key)
        if not found:
            raise StepError(
                "StorageRefused",
                f"the Secret that {self._field}.credentialsSecretRef names has no {key}, or an empty one; it needs "
                f"{ACCESS_KEY} and {SECRET_KEY}",
            )
        return found

    def optional(self, key: str) -> str | None:
        path = self._directory / key
        source = f"{key} of the Secret that {self._field}.credentialsSecretRef names"
        return read_credential(path, "StorageRefused", source) if path.exists() else None

    @property
    def ca(self) -> str | None:
        """The certificate authority of the endpoint, when it is a private one."""
        path = self._directory / CA_FILE
        return str(path) if path.exists() else None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
