"""Who calls: by an API key of a mounted Secret, which may change while the front runs."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable
from pathlib import Path

from .errors import RequestError

log = logging.getLogger(__name__)

RELOAD_SECONDS = 2.0
MAX_KEYS = 4096
MAX_KEY_BYTES = 4096


class ApiKeys:
    """The keys of a directory, read again when the kubelet has changed it."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._looked = -float("inf")
        self._digests: tuple[tuple[str, bytes], ...] = ()

    def caller(self, authorization: str | None) -> str:
        """The name of the key in an `Authorization: Bearer` header. Raises RequestError 401.

        All keys are compared, each in constant time: how long it takes tells nothing about them.
        """
        self._reload()
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            message = "give an API key: Authorization: Bearer KEY"
            raise RequestError(401, "missing_api_key", message)
        digest = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()
        found: str | None = None
        for name, known in self._digests:
            if hmac.compare_digest(known, digest):
                found = name
        if found is None:
            raise RequestError(401, "invalid_api_key", "the API key is not known")
        return found

    def _reload(self) -> None:
        now = self._clock()
        if now - self._looked < RELOAD_SECONDS:
            return
        self._looked = now
        digests = []
        try:
            for path in sorted(self._directory.iterdir())[:MAX_KEYS]:
                if path.name.startswith(".") or not path.is_file():
                    continue
                value = path.read_bytes()[:MAX_KEY_BYTES].strip()
                if value:
                    digests.append((path.name, hashlib.sha256(value).digest()))
        except OSError as error:
            # The Secret's files are replaced by one rename: what was read before stands until they can be read.
            log.warning("API keys cannot be read: %s", error.strerror)
            return
        self._digests = tuple(digests)
