"""Gets one answer from a server: picks it, counts its load, and asks another one where it fails before it begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from .backends import IDLE, Backend, Load, Routes, choose
from .errors import RequestError
from .triton import Generation, Server, ServerError, Tokens

NO_SERVER_SECONDS = 5.0
"""How long a request waits for a server where there is none: longer than a switch of revisions leaves a gap."""
AVOID_SECONDS = 3.0
"""How long a server that failed is asked only where no other can be."""
ATTEMPTS = 2
CLOSE_GRACE_SECONDS = 3600.0
"""A server that is not routed to any more keeps its streams; its connection closes with the last of them."""


@dataclass
class Dispatcher:
    """The servers of one front."""

    connect: Callable[[str], Server] = Server
    clock: Callable[[], float] = time.monotonic
    routes: Routes = field(default_factory=Routes)
    loads: dict[str, Load] = field(default_factory=dict)
    _servers: dict[str, Server] = field(default_factory=dict)
    _avoid_until: dict[str, float] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def update(self, routes: Routes) -> None:
        """Send new requests by these routes from now on; let streams to other servers end."""
        self.routes = routes
        known = {backend.address for backend in routes.backends}
        for address in [a for a in self._servers if a not in known]:
            task = asyncio.create_task(self._servers.pop(address).close(CLOSE_GRACE_SECONDS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_server(self) -> Routes:
        """The routes, once there is a server. Raises RequestError 503 with the LLMEngine's reason where none comes."""
        deadline = self.clock() + NO_SERVER_SECONDS
        while not self.routes.backends:
            left = deadline - self.clock()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._changed.wait()
            except TimeoutError:
                message = f"no server answers: {self.routes.reason}"
                raise RequestError(503, "no_server", message, retry_after_seconds=NO_SERVER_SECONDS) from None
        return self.routes

    async def generate(
        self, wanted: Generation, request_id: str, *, model: str, chosen: Callable[[Backend], None] = lambda _: None
    ) -> AsyncGenerator[Tokens]:
        """The tokens of one answer. `chosen` learns of each server that is asked.

        Raises RequestError: 503 where no server fits any more, 502 where one failed in the middle.
        """
        tokens = len(wanted.prompt) + wanted.max_tokens
        failure: ServerError | None = None
        for _ in range(ATTEMPTS):
            await self.wait_for_server()
            backend = self._choose(wanted, model)
            if backend is None:
                break
            chosen(backend)
            self._count(backend.address, 1, tokens)
            try:
                server = self._servers.get(backend.address) or self._connect(backend.address)
                async with aclosing(server.generate(wanted, request_id)) as stream:
                    async for new in stream:
                        yield new
            except ServerError as error:
                failure = error
                self._avoid_until[backend.address] = self.clock() + AVOID_SECONDS
                if not error.unavailable:
                    message = f"the server of target {backend.target} failed: {error.message}"
                    raise RequestError(502, "server_failed", message[:2000]) from None
            else:
                return
            finally:
                self._count(backend.address, -1, -tokens)
        said = f"; the last one said: {failure.message}" if failure else ""
        message = f"no server takes the request now{said}"
        raise RequestError(503, "no_server", message[:2000], retry_after_seconds=NO_SERVER_SECONDS)

    async def close(self) -> None:
        """Close all connections."""
        for server in self._servers.values():
            await server.close()
        for task in self._closing:
            task.cancel()

    def _connect(self, address: str) -> Server:
        server = self._servers[address] = self.connect(address)
        return server

    def _choose(self, wanted: Generation, model: str) -> Backend | None:
        now = self.clock()
        avoid = {address for address, until in self._avoid_until.items() if until > now}
        if len(avoid) < len(self._avoid_until):
            self._avoid_until = {a: self._avoid_until[a] for a in avoid}
        own = tuple(b for b in self.routes.backends if b.model == model)
        return choose(
            Routes(own),
            self.loads,
            prompt_tokens=len(wanted.prompt),
            output_tokens=wanted.max_tokens,
            avoid=avoid,
        )

    def _count(self, address: str, requests: int, tokens: int) -> None:
        load = self.loads.get(address, IDLE)
        changed = Load(load.requests + requests, load.tokens + tokens)
        if changed == IDLE:
            self.loads.pop(address, None)
        else:
            self.loads[address] = changed
