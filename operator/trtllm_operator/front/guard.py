"""A webhook that sees each prompt before it is tokenized, and may refuse or rewrite it."""

from __future__ import annotations

import json
import logging
from typing import Any, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import RequestError
from .settings import GuardSettings

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 32 << 20


class Verdict(BaseModel):
    """The webhook's answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    action: Literal["allow", "refuse", "rewrite"]
    message: str = Field(default="the request was refused by policy", max_length=1000)
    messages: list[dict[str, Any]] | None = None
    """In place of those of the request, of `rewrite` in a chat."""
    prompt: str | None = None
    """In place of that of the request, of `rewrite` in a completion."""


class Guard:
    """Asks the webhook; what happens where it does not answer is the administrator's choice."""

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def judge(self, body: dict[str, Any]) -> Verdict:
        """`body`: {"model", "caller", and "messages" or "prompt"}. Raises RequestError 403 for a refusal, 503 where it
        does not answer and must."""
        try:
            verdict = await self._ask(body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if self._settings.fail_open:
                log.warning("the guard does not answer (%s): the request goes on", type(error).__name__)
                return Verdict(action="allow")
            message = "the guard that must see each prompt does not answer"
            raise RequestError(503, "guard_unavailable", message, retry_after_seconds=5) from None
        if verdict.action == "refuse":
            raise RequestError(403, "refused_by_guard", verdict.message)
        return verdict

    async def close(self) -> None:
        """Close the connection."""
        if self._session:
            await self._session.close()

    async def _ask(self, body: dict[str, Any]) -> Verdict:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        timeout = aiohttp.ClientTimeout(total=self._settings.timeout_seconds)
        async with self._session.post(
            self._settings.url, json=body, timeout=timeout, allow_redirects=False
        ) as response:
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            raw = await response.content.read(MAX_ANSWER_BYTES + 1)
            if len(raw) > MAX_ANSWER_BYTES:
                raise ValueError("the answer is too long")
        try:
            return Verdict.model_validate(json.loads(raw))
        except (ValidationError, RecursionError) as error:
            raise ValueError(str(error)) from None
