"""The Hugging Face hub through its own client, and its refusals in words that say what to do."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    NotASafetensorsRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SafetensorsParsingError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.tqdm import disable_progress_bars

from ..planning.report import TensorHeader
from ..runner.manifest import sha256
from ..runner.report import StepError, is_disk_full
from ..runner.volume import disk_full
from .credentials import read_credential
from .store import Meter

TOKEN_PATH = "HF_TOKEN_PATH"  # noqa: S105 (the name of a variable that holds a path)
_WORKERS = 8
_PROGRESS_SECONDS = 5.0
_TOKEN_FIELD = "spec.model.huggingFace.tokenSecretRef"  # noqa: S105 (the name of a field)
T = TypeVar("T")


class Hub:
    """A repository of the hub at one commit. HF_ENDPOINT says which hub, HF_TOKEN_PATH where a token is."""

    def __init__(self, repo: str, revision: str) -> None:
        self.repo = repo
        self._token = _read_token()
        self._api = HfApi(token=self._token or False)
        self.revision = revision
        self.revision = str(self._ask(lambda: self._api.model_info(repo, revision=revision).sha))
        entries = self._ask(lambda: list(self._api.list_repo_tree(repo, recursive=False, revision=self.revision)))
        self._entries = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}
        self.files: Mapping[str, int] = {path: entry.size for path, entry in self._entries.items()}

    def read(self, path: str) -> bytes:
        return Path(self._ask(lambda: self._download_one(path))).read_bytes()

    def tensors(self, path: str) -> Mapping[str, TensorHeader]:
        try:
            found = self._ask(
                lambda: self._api.parse_safetensors_file_metadata(self.repo, path, revision=self.revision)
            )
        except (SafetensorsParsingError, NotASafetensorsRepoError) as error:
            raise StepError("ModelUnreadable", f"{path} is not a safetensors file: {error}") from None
        return {name: TensorHeader(info.dtype, tuple(info.shape)) for name, info in found.tensors.items()}

    def download(self, paths: tuple[str, ...], directory: Path) -> None:
        """Download files into a directory, but those that an earlier run finished; check all against the hub's digests.

        Raises StepError DiskFull, or DownloadCorrupted with the bad files removed, so that another run fetches them.
        """
        disable_progress_bars()
        total = sum(self.files[path] for path in paths)
        with _Watch(directory, total):
            try:
                self._ask(
                    lambda: snapshot_download(
                        self.repo,
                        revision=self.revision,
                        local_dir=directory,
                        allow_patterns=[_literal(path) for path in paths],
                        token=self._token or False,
                        max_workers=_WORKERS,
                    )
                )
            except OSError as error:
                if is_disk_full(error):
                    raise disk_full(directory, total - _bytes_in(directory)) from None
                raise
        if bad := [path for path in paths if not self._intact(directory / path, path)]:
            for path in bad:
                (directory / path).unlink(missing_ok=True)
            raise StepError(
                "DownloadCorrupted",
                f"{', '.join(bad)} did not arrive as {self.repo} at {self.revision} has them",
                retryable=True,
            )

    def _intact(self, file: Path, path: str) -> bool:
        entry = self._entries[path]
        if not file.is_file() or file.stat().st_size != entry.size:
            return False
        if entry.lfs is not None:
            return sha256(file) == entry.lfs.sha256
        content = file.read_bytes()
        blob = b"blob %d\0" % len(content) + content
        return hashlib.sha1(blob, usedforsecurity=False).hexdigest() == entry.blob_id

    def _download_one(self, path: str) -> str:
        return hf_hub_download(self.repo, path, revision=self.revision, token=self._token or False)

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
            if failure := refusal(error, self.repo, self.revision, token=self._token is not None):
                raise failure from None
            raise


def refusal(error: BaseException, repo: str, revision: str, *, token: bool) -> StepError | None:
    """What the hub's answer, or none, means for the person who asked for `repo` at `revision`; None when `error` is not
    the hub's. The client wraps the cause when it looks into its cache first, so causes are followed."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (HfHubHTTPError, httpx2.HTTPStatusError)):
            return _http_refusal(seen, seen.response.status_code, repo, revision, token=token)
        if isinstance(seen, httpx2.HTTPError):
            break
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    return StepError(
        "HubUnreachable", f"{endpoint} cannot be reached for {repo}: {type(seen).__name__}: {seen}", retryable=True
    )


def _http_refusal(error: BaseException, status: int, repo: str, revision: str, *, token: bool) -> StepError:
    if isinstance(error, GatedRepoError):
        account = "the account of the token must" if token else f"give a token in {_TOKEN_FIELD}, whose account must"
        return StepError("DownloadRefused", f"{repo} is gated (HTTP {status}): {account} be granted access on the hub")
    if isinstance(error, RevisionNotFoundError):
        return StepError("ModelNotFound", f"{repo} has no revision {revision}: check spec.model.huggingFace.revision")
    if status == 401 and token:
        return StepError(
            "DownloadRefused",
            f"the hub refuses the token for {repo} (HTTP 401): it is wrong or has expired. Check the Secret and key "
            f"that {_TOKEN_FIELD} names.",
        )
    if status == 401:
        return StepError(
            "DownloadRefused",
            f"the hub wants a token for {repo} (HTTP 401), or there is no such repository: give one in {_TOKEN_FIELD}, "
            "or check spec.model.huggingFace.repo",
        )
    if status == 403:
        return StepError(
            "DownloadRefused",
            f"the hub forbids {repo} to this token (HTTP 403): its account or its scope lacks read access. Check the "
            f"Secret and key that {_TOKEN_FIELD} names.",
        )
    if isinstance(error, RepositoryNotFoundError) or status == 404:
        private = " that the token's account can see" if token else ""
        return StepError(
            "ModelNotFound", f"the hub has no repository {repo}{private}: check spec.model.huggingFace.repo"
        )
    if status == 429:
        pause = retry_after_seconds(getattr(error, "response", None))
        asked = f", for {pause} s" if pause else ""
        return StepError(
            "HubRateLimited",
            f"the hub asks to slow down for {repo} (HTTP 429{asked})",
            retryable=True,
            retry_after_seconds=pause,
        )
    if status >= 500:
        return StepError("HubUnreachable", f"the hub answers HTTP {status} for {repo}", retryable=True)
    return StepError("DownloadRefused", f"the hub answers HTTP {status} for {repo}")


def retry_after_seconds(response: Any) -> int | None:
    """The pause that an answer asks for in its Retry-After: seconds, or a date."""
    said = response.headers.get("Retry-After") if response is not None else None
    if not said:
        return None
    try:
        return max(0, int(said))
    except ValueError:
        pass
    try:
        return max(0, round((parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds()))
    except (TypeError, ValueError):
        return None


class _Watch:
    """Says how much of a download is there while it runs."""

    def __init__(self, directory: Path, total_bytes: int) -> None:
        self._directory = directory
        self._meter = Meter("downloading", total_bytes)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_PROGRESS_SECONDS):
            self._meter.say(_bytes_in(self._directory))


def _bytes_in(directory: Path) -> int:
    size = 0
    for path in directory.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return size


def _literal(path: str) -> str:
    """A file name as a pattern that matches it alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def _read_token() -> str | None:
    where = os.environ.get(TOKEN_PATH)
    if not where:
        return None
    source = f"the token of the Secret and key that {_TOKEN_FIELD} names"
    token = read_credential(Path(where), "DownloadRefused", source)
    if not token:
        raise StepError("DownloadRefused", f"the token is empty: check the Secret and key that {_TOKEN_FIELD} names")
    return token
