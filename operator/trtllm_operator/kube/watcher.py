"""kopf as what it is best at: discovery, login, lists and watches that feed a cache. It never writes.

Only `on.event` handlers are registered and its storages keep nothing, so kopf has nothing to write: no finalizer, no
annotation, no Event, no peering.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
import kopf

from trtllm_operator.kube.cache import Cache
from trtllm_operator.kube.client import Client
from trtllm_operator.kube.resource import key_of, version_of
from trtllm_operator.kube.resync import Watch


class _NoDiffBase(kopf.DiffBaseStorage):
    """Without change-detecting handlers there is nothing to compare; kopf's default copies each object four times."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """Without change-detecting handlers there is no progress to keep."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: Any) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class _EndlessBackoffs:
    """Delays in seconds between tries of kopf's requests. They never end: where they do, kopf ends the process."""

    def __iter__(self) -> Iterator[float]:
        delay = 0.5
        while True:
            yield delay * random.uniform(0.8, 1.2)  # noqa: S311
            delay = min(8.0, delay * 2)


class Watcher:
    """Puts what happens to the watched resources into the cache, until `stop` is called."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        watches: Sequence[Watch],
        *,
        namespaces: Sequence[str] = (),
        on_list: Callable[[Watch], None],
    ) -> None:
        self._client = client
        self._cache = cache
        self._watches = tuple(watches)
        self._namespaces = tuple(namespaces)
        self._on_list = on_list
        self._stop = asyncio.Event()
        self._list_paths = {
            watch.resource.path(namespace): watch for watch in watches for namespace in (self._namespaces or ("",))
        }
        #: Watch events taken in since the start.
        self.events = 0

    def stop(self) -> None:
        """Let `run` return."""
        self._stop.set()

    async def run(self, on_started: Callable[[], None]) -> None:
        """Watch until stopped; `on_started` is called once kopf has put its own signal handlers in place.

        The resources must be served by now: without permission to watch CRDs kopf never looks for them again. It waits
        at its end for all tasks that were created after it was started: start others before.
        """
        existing = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=self._settings(),
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            standalone=True,
            # Unused without peers, yet kopf would look for the user's name, which a Pod's user need not have.
            identity=cast(Any, "standalone"),
            stop_flag=self._stop,
        )
        on_started()
        await kopf.run_tasks(tasks, ignored=existing)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        async def login(**_: Any) -> kopf.AiohttpSession:
            # A new session each time: kopf closes the one it has when it ends and whenever it is refused.
            session = self._client.new_session(self._answered)
            return kopf.AiohttpSession(server=self._client.config.server, aiohttp_session=session)

        kopf.on.login(registry=registry)(login)
        for watch in self._watches:
            resource = watch.resource
            handler = self._handler(watch)
            kopf.on.event(resource.group, resource.version, resource.plural, id="cache", registry=registry)(handler)
        return registry

    def _handler(self, watch: Watch) -> Any:
        async def take_in(event: Any, **_: Any) -> None:
            self.events += 1
            obj = dict(event["object"])
            if event["type"] == "DELETED":
                self._cache.remove(watch.resource, key_of(obj), obj["metadata"]["uid"], version_of(obj))
            else:
                self._cache.put(watch.resource, obj)

        return take_in

    def _answered(self, response: aiohttp.ClientResponse) -> None:
        """kopf lists before each watch it starts anew, and never reports what went in between."""
        if response.method == "GET" and response.status < 400 and response.url.query.get("watch") != "true":
            path = response.url.path.removeprefix(_base_path(self._client.config.server))
            if watch := self._list_paths.get(path):
                self._on_list(watch)

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.persistence.diffbase_storage = _NoDiffBase()
        settings.persistence.progress_storage = _NoProgress()
        settings.peering.standalone = True
        settings.posting.enabled = False
        settings.posting.loggers = False
        for watch in self._watches:
            if watch.label_selector:
                resource = watch.resource
                selectors = settings.watching.label_selectors
                selectors[resource.group, resource.version, resource.plural] = watch.label_selector
        # kopf would list all namespaces and CRDs, and wait for the permission: an operator of some namespaces has none.
        settings.scanning.disabled = bool(self._namespaces)
        settings.watching.chunk_size = 500
        # The default of 0.1 s is a storm of lists while the server answers "410 Gone".
        settings.watching.reconnect_backoff = 1.0
        settings.watching.server_timeout = 300
        settings.watching.client_timeout = 330
        settings.watching.connect_timeout = 10
        settings.networking.request_timeout = 30
        settings.networking.error_backoffs = _EndlessBackoffs()
        settings.queueing.idle_timeout = 0.5
        settings.queueing.exit_timeout = 2
        settings.process.ultimate_exiting_timeout = 25
        # Else one line per watch event.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        return settings


def _base_path(server: str) -> str:
    """The path under which a proxy serves the API; "" for most."""
    return urlsplit(server).path.rstrip("/")
