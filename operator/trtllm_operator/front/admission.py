"""Who may go to a server now, who waits, and who is refused."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from .errors import RequestError

WINDOW_SECONDS = 60.0
"""Of the limits for one caller."""
RATE_SECONDS = 30.0
"""Over how long the drain rate is measured."""
DEFAULT_RETRY_SECONDS = 5.0
"""While nothing has been measured."""
MAX_CALLERS = 10_000
"""Remembered at once; the longest silent is forgotten first."""


@dataclass(frozen=True)
class AdmissionLimits:
    """Of the whole front; None is no limit."""

    max_concurrent_requests: int | None = None
    """In flight at servers; None takes what the servers run at once."""
    max_queued_tokens: int = 1_000_000
    """Tokens of all requests that wait: prompts and the most that may come."""
    queue_timeout_seconds: float = 60.0
    requests_per_minute: int | None = None
    """Of one caller."""
    tokens_per_minute: int | None = None
    """Of one caller, prompts and the most that may come."""


@dataclass
class _Waiting:
    requests: int
    tokens: int
    admitted: asyncio.Future[None]


class DrainRate:
    """Tokens a second that leave the system, over the last seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self._ended: deque[tuple[float, int]] = deque()
        self._total = 0

    def ended(self, tokens: int) -> None:
        """A request has ended that was counted with `tokens`."""
        self._ended.append((self._clock(), tokens))
        self._total += tokens
        self._forget()

    def seconds_for(self, tokens: int) -> float:
        """How long so many tokens take at the measured rate."""
        self._forget()
        elapsed = min(RATE_SECONDS, max(1.0, self._clock() - self._begun))
        if not self._total:
            return DEFAULT_RETRY_SECONDS
        return tokens / (self._total / elapsed)

    def _forget(self) -> None:
        old = self._clock() - RATE_SECONDS
        while self._ended and self._ended[0][0] < old:
            self._total -= self._ended.popleft()[1]


class Admission:
    """Lets requests through in the order in which they came, never more at once than there is room for."""

    def __init__(
        self,
        limits: AdmissionLimits,
        *,
        capacity: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`capacity`: what the servers run at once, now."""
        self.limits = limits
        self._capacity = capacity
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._callers: OrderedDict[str, deque[tuple[float, int]]] = OrderedDict()
        self.rate = DrainRate(clock)
        self.in_flight = 0
        self.queued_tokens = 0

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return sum(w.requests for w in self._waiting)

    @asynccontextmanager
    async def slots(self, caller: str, requests: int, tokens: int) -> AsyncIterator[float]:
        """Places among those in flight, for the requests of one client call; the seconds that they were waited for.

        They are taken together: two calls that each hold half of what they need would wait for each other.
        `tokens`: of the prompts and the most that may come. Raises RequestError 429 or 503.
        """
        self._check_caller(caller, tokens)
        waited = await self._enter(requests, tokens)
        try:
            yield waited
        finally:
            self.in_flight -= requests
            self.rate.ended(tokens)
            self.wake()

    def wake(self) -> None:
        """Let in whom there is room for: after a request has ended, or when the capacity has changed."""
        while self._waiting and self._has_room(self._waiting[0].requests):
            first = self._waiting.popleft()
            self.queued_tokens -= first.tokens
            self.in_flight += first.requests
            first.admitted.set_result(None)

    def _has_room(self, requests: int) -> bool:
        """What needs more than there ever is goes alone."""
        limit = self.limits.max_concurrent_requests
        room = self._capacity() if limit is None else limit
        return self.in_flight + requests <= room or (self.in_flight == 0 and room > 0)

    async def _enter(self, requests: int, tokens: int) -> float:
        if not self._waiting and self._has_room(requests):
            self.in_flight += requests
            return 0.0
        self._check_queue(tokens)
        begun = self._clock()
        mine = _Waiting(requests, tokens, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        self.queued_tokens += tokens
        try:
            async with asyncio.timeout(self.limits.queue_timeout_seconds):
                await asyncio.shield(mine.admitted)
        except BaseException as error:
            if mine in self._waiting:
                self._leave(mine)
            else:  # admitted in the moment in which it gave up
                self.in_flight -= requests
            self.wake()
            if isinstance(error, TimeoutError):
                raise self._late() from None
            raise
        return self._clock() - begun

    def _leave(self, mine: _Waiting) -> None:
        self._waiting.remove(mine)
        self.queued_tokens -= mine.tokens

    def _check_queue(self, tokens: int) -> None:
        limit = self.limits.max_queued_tokens
        if self.queued_tokens + tokens <= limit:
            return
        message = (
            f"{self.in_flight} requests are in flight and {self.queued_tokens:,} tokens wait; with the {tokens:,} of "
            f"this request it would be more than maxQueuedTokens, {limit:,}. Try again later"
        )
        retry = self.rate.seconds_for(max(1, self.queued_tokens + tokens - limit))
        raise RequestError(429, "queue_full", message, retry_after_seconds=retry)

    def _late(self) -> RequestError:
        seconds = self.limits.queue_timeout_seconds
        message = (
            f"the request waited {seconds:g} s for a place, the front's queueTimeoutSeconds, and never reached a GPU: "
            f"{self.in_flight} requests are in flight, {self.queued} wait"
        )
        retry = self.rate.seconds_for(max(1, self.queued_tokens))
        return RequestError(503, "queue_timeout", message, retry_after_seconds=retry)

    def _check_caller(self, caller: str, tokens: int) -> None:
        """Count the request against its caller. Raises RequestError 429 over a limit."""
        requests, token_limit = self.limits.requests_per_minute, self.limits.tokens_per_minute
        if requests is None and token_limit is None:
            return
        now = self._clock()
        past = self._callers.pop(caller, deque())
        while past and past[0][0] <= now - WINDOW_SECONDS:
            past.popleft()
        self._callers[caller] = past
        while len(self._callers) > MAX_CALLERS:
            self._callers.popitem(last=False)
        if requests is not None and len(past) >= requests:
            raise self._over(f"{len(past)} requests in the last minute, {requests} are allowed", past[0][0], now)
        used = sum(t for _, t in past)
        if token_limit is not None and used + tokens > token_limit:
            said = f"{used:,} tokens in the last minute and {tokens:,} more, {token_limit:,} are allowed"
            if tokens > token_limit:
                raise RequestError(429, "caller_limit", f"this caller: {said}; ask for fewer tokens")
            raise self._over(said, past[0][0], now)
        past.append((now, tokens))

    @staticmethod
    def _over(said: str, oldest: float, now: float) -> RequestError:
        retry = oldest + WINDOW_SECONDS - now
        return RequestError(429, "caller_limit", f"this caller: {said}", retry_after_seconds=retry)
