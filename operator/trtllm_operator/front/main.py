"""The front's process: watches its LLMEngine and EndpointSlices, and serves HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from functools import lru_cache

import uvicorn

from ..api import GROUP, VERSION, llmengine
from ..kube.client import Client
from ..kube.errors import ConfigError
from ..kube.follow import follow
from ..kube.kubeconfig import load_config
from ..kube.resource import ENDPOINT_SLICE, Obj, Resource
from .app import make_app
from .cluster_state import routes_of
from .dispatch import Dispatcher
from .errors import RequestError
from .model_files import ModelFilesError, ModelText, read_model
from .service import Service
from .settings import ENVIRONMENT, Settings, SettingsError, read_settings

PORT = 8080
LLM_ENGINE = Resource(GROUP, VERSION, llmengine.PLURAL, llmengine.KIND)
KEEP_ALIVE_SECONDS = 65
"""Longer than a load balancer's own 60 s, so that it is never the front that closes a connection in use."""
GRACEFUL_SECONDS = 3600
"""How long streams may go on once the front is told to end; the Pod's grace period is the real bound."""

log = logging.getLogger(__name__)


def main() -> int:
    """Run until a signal ends it; the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        settings = read_settings(os.environ.get(ENVIRONMENT))
        client = Client(load_config(), field_manager="llmengine-front")
    except (SettingsError, ConfigError) as error:
        sys.stderr.write(f"llmengine-front: {error}\n")
        return 2
    asyncio.run(_serve(settings, client, int(os.environ.get("LLMENGINE_FRONT_PORT", str(PORT)))))
    return 0


async def _serve(settings: Settings, client: Client, port: int) -> None:
    @lru_cache(maxsize=4)
    def model(artifact: str) -> ModelText:
        try:
            return read_model(settings.models_directory / artifact)
        except ModelFilesError as error:
            log.warning("model %s: %s", artifact, error)
            raise RequestError(503, "model_unusable", f"the model's tokenizer cannot be used: {error}") from None

    dispatcher = Dispatcher()
    service = Service(settings, dispatcher, models=model)
    state = ClusterState(service)
    app = make_app(service, ready=lambda: state.is_known)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host="0.0.0.0",  # noqa: S104 - the Pod's own network
            port=port,
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACEFUL_SECONDS,
        )
    )
    watches = [
        asyncio.create_task(
            follow(
                client,
                LLM_ENGINE,
                settings.namespace,
                state.engines_changed,
                field_selector=f"metadata.name={settings.name}",
            )
        ),
        asyncio.create_task(
            follow(
                client,
                ENDPOINT_SLICE,
                settings.namespace,
                state.slices_changed,
                label_selector=f"{GROUP}/engine={settings.name}",
            )
        ),
    ]
    for watch in watches:
        # A watch that dies would leave the front with routes of the past.
        watch.add_done_callback(lambda task: None if task.cancelled() else setattr(server, "should_exit", True))
    try:
        await server.serve()
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await service.close()
        await client.close()


class ClusterState:
    """What the watches have shown, and what follows from it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._engines: Mapping[str, Obj] | None = None
        self._slices: Mapping[str, Obj] | None = None

    @property
    def is_known(self) -> bool:
        """Whether both kinds have been listed."""
        return self._engines is not None and self._slices is not None

    def engines_changed(self, engines: Mapping[str, Obj]) -> None:
        """The LLMEngine came, changed or went."""
        self._engines = engines
        self._update()

    def slices_changed(self, slices: Mapping[str, Obj]) -> None:
        """Servers came, changed or went."""
        self._slices = slices
        self._update()

    def _update(self) -> None:
        if self._engines is None or self._slices is None:
            return
        routes = routes_of(self._engines.get(self._service.settings.name), self._slices.values())
        self._service.update(routes)


if __name__ == "__main__":
    raise SystemExit(main())
