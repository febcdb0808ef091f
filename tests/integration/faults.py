"""A proxy in front of a real API server that fails the way networks and servers do."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType

import aiohttp
import yaml
from aiohttp import web

from trtllm_operator.kube.kubeconfig import ClusterConfig

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LEASES = "/apis/coordination.k8s.io/"
_NOT_FORWARDED = frozenset({"host", "content-length", "accept-encoding", "connection"})


class Fault(Enum):
    """What happens to requests."""

    NONE = "passed on"
    STALL = "nothing moves any more, on new and old connections"
    KILL = "connections are cut"
    GONE = "watches are answered 410: the server no longer knows that far back"
    OVERLOADED = "429 with Retry-After: 1"
    INTERNAL = "500"
    CONFLICT = "writes of a status are answered 409: somebody else was first"


@dataclass(frozen=True)
class Trap:
    """Something that happens at a write; those of Leases do not count."""

    number: int
    """Of the write, from 1; 0 for every write."""
    after: bool
    """The server has carried the write out and its answer is on the way; else the write is."""
    act: Callable[[], Awaitable[bool]]
    """Whether the write, or its answer, then goes on; its connection is cut otherwise."""
    method: str = ""
    """Only writes of this method, to a path that ends with `path`, count."""
    path: str = ""

    def counts(self, write: str) -> bool:
        return write.startswith(self.method) and write.endswith(self.path)


class FaultProxy:
    """Serves http://127.0.0.1 for one API server, with that server's credentials; an async context manager.

    `writes` counts requests that could change something, by method and path; `answers` those it answered itself.
    `trap` is sprung by the write of its number.
    """

    def __init__(self, upstream: ClusterConfig) -> None:
        self._upstream = upstream
        self._fault = Fault.NONE
        self._moving = asyncio.Event()
        self._moving.set()
        self._connections: set[asyncio.BaseTransport] = set()
        self._watches: set[asyncio.BaseTransport] = set()
        self.writes: Counter[tuple[str, str]] = Counter()
        self.answers: Counter[Fault] = Counter()
        self.trap: Trap | None = None
        self.sprung = asyncio.Event()
        """Set once the server has answered a write that sprang a trap."""
        self.numbered: list[str] = []
        """Method and path of the writes that count for a trap, in order."""
        self.url = ""

    async def __aenter__(self) -> FaultProxy:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._upstream.ssl_context),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.set(Fault.KILL)
        await self._runner.cleanup()
        await self._session.close()

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig for what shall go through the proxy."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy"}}],
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def set(self, fault: Fault) -> None:
        """From now on."""
        self._fault = fault
        if fault is Fault.STALL:
            self._moving.clear()
        else:
            self._moving.set()
        if fault is Fault.KILL:
            _abort(self._connections)
        elif fault is Fault.GONE:
            self.drop_watches()

    def drop_watches(self) -> None:
        """Cut the connections that carry watches now."""
        _abort(self._watches)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        self._connections.add(transport)
        watching = request.query.get("watch") == "true"
        try:
            await self._moving.wait()
            if (answer := self._answer(request, watching)) is not None:
                return answer
            trap = self._count(request)
            if trap and not trap.after and not await trap.act():
                return _cut(request)
            if watching:
                self._watches.add(transport)
            try:
                return await self._forward(request, trap if trap and trap.after else None)
            finally:
                if trap:
                    self.sprung.set()
        finally:
            self._watches.discard(transport)
            if transport.is_closing():
                self._connections.discard(transport)

    def _count(self, request: web.Request) -> Trap | None:
        """The trap that the request springs, if it is a write and any."""
        if request.method not in _WRITES:
            return None
        self.writes[request.method, request.path] += 1
        if request.path.startswith(_LEASES):
            return None
        write = f"{request.method} {request.path}"
        self.numbered.append(write)
        trap = self.trap
        if trap is None or not trap.counts(write):
            return None
        return trap if trap.number in (0, sum(map(trap.counts, self.numbered))) else None

    def _answer(self, request: web.Request, watching: bool) -> web.StreamResponse | None:
        """What the fault makes of a request, if anything."""
        if self._fault in (Fault.NONE, Fault.STALL) or (self._fault is Fault.GONE and not watching):
            return None
        if self._fault is Fault.CONFLICT and not (request.method == "PATCH" and request.path.endswith("/status")):
            return None
        self.answers[self._fault] += 1
        if self._fault is Fault.KILL:
            return _cut(request)
        if self._fault is Fault.GONE:
            return _status(200, 410, "Expired", "too old resource version", event=True)
        if self._fault is Fault.OVERLOADED:
            return _status(429, 429, "TooManyRequests", "too many requests", headers={"Retry-After": "1"})
        if self._fault is Fault.CONFLICT:
            return _status(409, 409, "Conflict", "the object has been modified; please apply your changes again")
        return _status(500, 500, "InternalError", "etcdserver: request timed out")

    async def _forward(self, request: web.Request, trap: Trap | None) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED}
        if token := self._upstream.token():
            headers["Authorization"] = f"Bearer {token}"
        body = await request.read()
        url = self._upstream.server + request.raw_path
        async with self._session.request(request.method, url, data=body or None, headers=headers) as upstream:
            kept = {name: value for name, value in upstream.headers.items() if name in ("Content-Type", "Retry-After")}
            if trap and not await trap.act():
                return _cut(request)
            response = web.StreamResponse(status=upstream.status, headers=kept)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                async for chunk in upstream.content.iter_any():
                    await self._moving.wait()
                    await response.write(chunk)
            return response


def _cut(request: web.Request) -> web.StreamResponse:
    """Ends the request's connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _abort(transports: set[asyncio.BaseTransport]) -> None:
    for transport in list(transports):
        transport.abort()  # type: ignore[attr-defined]
    transports.clear()


def _status(
    status: int, code: int, reason: str, message: str, *, event: bool = False, headers: dict[str, str] | None = None
) -> web.Response:
    body: dict[str, object] = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return web.json_response({"type": "ERROR", "object": body} if event else body, status=status, headers=headers)
