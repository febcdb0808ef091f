"""/livez, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

#: What is wrong, or "" where nothing is.
Check = Callable[[], str]


class Probes:
    """A small HTTP server that says how the operator is."""

    def __init__(self, *, livez: Check, readyz: Check, metrics: CollectorRegistry) -> None:
        self._livez = livez
        self._readyz = readyz
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self, address: str, port: int) -> int:
        """Serve; the port, where 0 picks a free one."""
        app = web.Application()
        app.router.add_get("/livez", self._checked(self._livez))
        app.router.add_get("/readyz", self._checked(self._readyz))
        app.router.add_get("/metrics", self._serve_metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop serving and close all connections."""
        if self._runner:
            await self._runner.cleanup()

    def _checked(self, check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(_: web.Request) -> web.StreamResponse:
            problem = check()
            return web.Response(status=503 if problem else 200, text=problem or "ok")

        return handle

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics), headers={"Content-Type": CONTENT_TYPE_LATEST})
