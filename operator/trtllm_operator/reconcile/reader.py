"""What an attempt says beside the objects: the log of what runs, and why there is no Pod; and how large the KV cache of
a server came out. Asked now and then, never needed: what cannot be read is left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from ..artifacts import attempt
from ..artifacts.attempt import MULTI_ATTACH
from ..artifacts.diagnosis import SERVER
from ..artifacts.plan import LOOK_AGAIN_SECONDS, Observations, Snapshot, current_attempt
from ..engines.snapshot import EngineSnapshot
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.resource import EVENT
from ..objects import ATTEMPT, REVISION, Obj, label, timestamp
from ..pods import container_statuses, waits_for_volumes
from ..serving.kv_cache import pool_tokens

TAIL_LINES = 60
LOG_BYTES = 256 << 10
NO_POD_SECONDS = 15
"""How long a Job may be without a Pod before its Events are asked why."""
VOLUME_EVENTS = ("FailedAttachVolume", "FailedMount")
STALE_EVENT = timedelta(minutes=5)
"""What the kubelet and the attach controller still have to say they repeat within 2 min 2 s, their longest pause."""
_FORGET_SECONDS = 10 * LOOK_AGAIN_SECONDS
_MOST_ENGINES = 10_000
"""LLMEngines whose servers' words are remembered; the longest unvisited is forgotten first."""


class _PoolReading(NamedTuple):
    """What one server said of its KV cache."""

    asked: float
    start: str
    """Which start of which Pod."""
    tokens: int | None


@dataclass
class Reader:
    """Remembers what was read of each artifact, so that none is asked more than once in LOOK_AGAIN_SECONDS."""

    client: Client
    clock: Callable[[], float] = time.monotonic
    _read: dict[str, tuple[float, str, Observations]] = field(default_factory=dict)
    """By the artifact's uid: when, of what, and what was found."""
    _pools: dict[str, dict[str, _PoolReading]] = field(default_factory=dict)
    """By the LLMEngine's uid and the revision."""
    _volumes: dict[str, dict[str, tuple[float, str | None]]] = field(default_factory=dict)
    """By the uids of the LLMEngine and of the Pod: when, and what was found. Only while Pods wait."""

    async def read_attempt(self, seen: Snapshot) -> Snapshot:
        """The snapshot with what its current attempt says."""
        job = current_attempt(seen)
        if job is None:
            return seen
        uid, now = str(seen.artifact["metadata"]["uid"]), self.clock()
        pod = attempt.current_pod(p for p in seen.pods if label(p, ATTEMPT) == label(job, ATTEMPT))
        if pod and attempt.has_just_begun(pod, seen.now):
            return seen
        container = attempt.running_container(pod) if pod else None
        subject = f"{(pod or job)['metadata'].get('uid')} {container[0] if container else ''}"
        when, what, found = self._read.get(uid, (-float("inf"), "", Observations()))
        if what != subject or now - when >= LOOK_AGAIN_SECONDS:
            before = found if what == subject else Observations()
            found = await self._ask(seen, job, pod, container[0] if container else None, before)
            self._read[uid] = (now, subject, found)
            self._forget(now)
        return replace(seen, observations=found)

    async def read_kv_cache_tokens(self, seen: EngineSnapshot) -> EngineSnapshot:
        """The snapshot with what servers say of their KV cache: of each revision one server is asked, once a start."""
        uid, now = str(seen.engine["metadata"]["uid"]), self.clock()
        before: dict[str, _PoolReading] = self._pools.pop(uid, {})
        readings: dict[str, _PoolReading] = {}
        for pod in sorted(seen.pods, key=lambda p: str(p["metadata"]["name"])):
            revision, start = label(pod, REVISION) or "", _start_of_server(pod)
            if start is None or revision in readings:
                continue
            last = before.get(revision)
            if last is None or last.start != start or (last.tokens is None and now - last.asked >= LOOK_AGAIN_SECONDS):
                last = _PoolReading(now, start, await self._pool_tokens(pod))
            readings[revision] = last
        if readings:
            self._pools[uid] = readings
            while len(self._pools) > _MOST_ENGINES:
                del self._pools[next(iter(self._pools))]
        found = {revision: last.tokens for revision, last in readings.items() if last.tokens is not None}
        return replace(seen, kv_cache_tokens=found)

    async def read_volume_events(self, seen: EngineSnapshot) -> EngineSnapshot:
        """The snapshot with what the cluster says of volumes that Pods of servers and inspections wait for."""
        uid, now = str(seen.engine["metadata"]["uid"]), self.clock()
        before, found = self._volumes.pop(uid, {}), dict[str, tuple[float, str | None]]()
        for pod in (*seen.pods, *seen.inspection_pods):
            if waits_for_volumes(pod):
                name = str(pod["metadata"]["uid"])
                last = before.get(name)
                if last is None or now - last[0] >= LOOK_AGAIN_SECONDS:
                    last = (now, await self._volume_events(pod, seen.now))
                found[name] = last
        if found:
            self._volumes[uid] = found
        return replace(seen, volume_events={name: text for name, (_, text) in found.items() if text})

    async def _volume_events(self, pod: Obj, now: datetime) -> str | None:
        try:
            return await volume_events(self.client, pod, now)
        except ApiError as error:
            if error.is_overload or error.is_internal:
                raise
            return None

    async def _pool_tokens(self, pod: Obj) -> int | None:
        """From the beginning of the log: the pool is taken as the engine is loaded."""
        meta = pod["metadata"]
        try:
            log = await self.client.logs(meta["namespace"], meta["name"], SERVER, limit_bytes=LOG_BYTES)
        except ApiError:
            return None
        return pool_tokens(log)

    async def _ask(
        self, seen: Snapshot, job: Obj, pod: Obj | None, container: str | None, before: Observations
    ) -> Observations:
        """`before` is what was said at the last look: it stands where a kubelet cannot be asked."""
        try:
            if pod is None:
                return Observations(job_events=await self._why_no_pod(job, seen.now))
            if container:
                return Observations(log=await self._log(pod, container))
            return Observations(volume_events=await volume_events(self.client, pod, seen.now))
        except ApiError as error:
            troubled = error.is_overload or error.is_internal
            if troubled and (container is None or error.is_throttled):
                raise
            return before if troubled else Observations()  # the container has just begun, or the Pod has just gone

    async def _log(self, pod: Obj, container: str) -> str:
        meta = pod["metadata"]
        return await self.client.logs(
            meta["namespace"], meta["name"], container, tail_lines=TAIL_LINES, limit_bytes=LOG_BYTES
        )

    async def _why_no_pod(self, job: Obj, now: datetime) -> str | None:
        meta = job["metadata"]
        created = datetime.fromisoformat(meta["creationTimestamp"])
        if job["spec"].get("suspend") or (now - created).total_seconds() < NO_POD_SECONDS:
            return None
        events = await self.client.list(
            EVENT, namespace=meta["namespace"], field_selector=f"involvedObject.uid={meta['uid']},reason=FailedCreate"
        )
        newest = max(events, key=_time_of, default=None)
        return str(newest.get("message")) if newest else None

    def _forget(self, now: float) -> None:
        for uid in [uid for uid, (when, _, _) in self._read.items() if now - when > _FORGET_SECONDS]:
            del self._read[uid]


async def volume_events(client: Client, pod: Obj, now: datetime) -> str | None:
    """The cluster's last word on a volume of a Pod that has been without containers for a while, if there is one."""
    meta = pod["metadata"]
    created = datetime.fromisoformat(meta["creationTimestamp"])
    if not waits_for_volumes(pod) or (now - created).total_seconds() < NO_POD_SECONDS:
        return None
    events = await client.list(
        EVENT, namespace=meta["namespace"], field_selector=f"involvedObject.uid={meta['uid']},type=Warning"
    )
    since = timestamp(now - STALE_EVENT)
    found = [e for e in events if e.get("reason") in VOLUME_EVENTS and _time_of(e) >= since]
    # That Pods wait for each other says more than that the kubelet waited in vain.
    newest = max(found, key=lambda e: (MULTI_ATTACH in str(e.get("message")), _time_of(e)), default=None)
    return str(newest.get("message")) if newest else None


def _time_of(event: Obj) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _start_of_server(pod: Obj) -> str | None:
    """Which start of which Pod this is, of a server that is ready; None of one that is not."""
    status = next((s for s in container_statuses(pod) if s["name"] == SERVER), None)
    if status is None or not status.get("ready") or "deletionTimestamp" in pod["metadata"]:
        return None
    return f"{pod['metadata']['uid']} {status.get('restartCount', 0)}"
