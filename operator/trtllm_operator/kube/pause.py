"""One wait for all calls when the API server is in trouble, and one call that tries first."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from trtllm_operator.kube.errors import ApiError

log = logging.getLogger(__name__)

FIRST_SECONDS = 0.5
#: One call every eight seconds burdens nobody, and after an outage nobody waits longer than that.
LONGEST_SECONDS = 8.0
#: How long a server may ask us to stay away.
LONGEST_RETRY_AFTER_SECONDS = 30.0
#: So many 500s with no success between them are everyone's trouble.
INTERNAL_ERRORS = 3


class Pause:
    """Open until a call meets a server in trouble; then closed for as long as the server asked for, or for a
    while that doubles up to 8 s.

    When the while is over one call goes ahead. If it succeeds everyone goes; if not, everyone waits again.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._failures = 0
        self._internal_errors = 0
        self._until = 0.0
        self._since = 0.0
        self._probing = False
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether calls go out without waiting."""
        return self._failures == 0

    @property
    def seconds_left(self) -> float:
        """For how long nobody may call; 0 when one call may."""
        return 0.0 if self.is_open else max(0.0, self._until - self._clock())

    @asynccontextmanager
    async def turn(self, *, relayed: bool = False) -> AsyncIterator[None]:
        """Wait until one may call; how the call inside ends decides for everyone.

        `relayed`: the server passes it on to a kubelet, whose trouble is not the server's.
        """
        probe = await self._admitted()
        try:
            yield
        except ApiError as error:
            if not relayed or error.is_throttled:
                self._judge(error)
            raise
        else:
            self.succeeded()
        finally:
            if probe:
                self._probing = False
                self._wake()

    def failed(self, error: ApiError) -> None:
        """A call met a server in trouble. Calls that were under way together count once."""
        now = self._clock()
        if self.is_open:
            self._since = now
            log.warning("API server in trouble, all calls wait: %s", error)
        elif now < self._until:
            return
        self._failures += 1
        if error.retry_after is not None:
            wait = max(FIRST_SECONDS, min(LONGEST_RETRY_AFTER_SECONDS, error.retry_after))
        else:
            wait = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._failures - 1, 10))
        self._until = now + wait * (1 + 0.1 * self._jitter())

    def succeeded(self) -> None:
        """A call was answered: the server is there for everyone."""
        self._internal_errors = 0
        if not self.is_open:
            log.warning("API server answers again after %.1f s", self._clock() - self._since)
            self._failures = 0
            self._wake()

    def _judge(self, error: ApiError) -> None:
        self._internal_errors = self._internal_errors + 1 if error.is_internal else 0
        if error.is_overload or (error.is_internal and (not self.is_open or self._internal_errors >= INTERNAL_ERRORS)):
            self.failed(error)
        elif not error.is_internal:
            self.succeeded()

    async def _admitted(self) -> bool:
        """Wait for admission; True for the one that goes ahead of the others."""
        while not self.is_open:
            left = self.seconds_left
            if not self._probing and not left:
                self._probing = True
                return True
            changed = self._changed
            try:
                async with asyncio.timeout(None if self._probing else left):
                    await changed.wait()
            except TimeoutError:
                continue
        return False

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
