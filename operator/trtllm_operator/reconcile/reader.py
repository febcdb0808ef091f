"""What an attempt says beside the objects: the log of what runs, and why there is no Pod. Asked now and then, never
needed: what cannot be read is left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from ..build import attempt
from ..build.plan import LOOK_AGAIN_SECONDS, Said, Snapshot, current_attempt
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.resource import EVENT
from ..objects import ATTEMPT, Obj, label

TAIL_LINES = 60
LOG_BYTES = 256 << 10
NO_POD_SECONDS = 15
"""How long a Job may be without a Pod before its Events are asked why."""
_FORGET_SECONDS = 10 * LOOK_AGAIN_SECONDS


@dataclass
class Reader:
    """Remembers what was read of each artefact, so that none is asked more than once in LOOK_AGAIN_SECONDS."""

    client: Client
    clock: Callable[[], float] = time.monotonic
    _read: dict[str, tuple[float, str, Said]] = field(default_factory=dict)
    """By the artefact's uid: when, of what, and what was said."""

    async def listen(self, seen: Snapshot) -> Snapshot:
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
        when, what, said = self._read.get(uid, (-float("inf"), "", Said()))
        if what != subject or now - when >= LOOK_AGAIN_SECONDS:
            said = await self._ask(seen, job, pod, container[0] if container else None)
            self._read[uid] = (now, subject, said)
            self._forget(now)
        return replace(seen, said=said)

    async def _ask(self, seen: Snapshot, job: Obj, pod: Obj | None, container: str | None) -> Said:
        try:
            if pod is None:
                return Said(job_events=await self._why_no_pod(job, seen.now))
            return Said(log=await self._log(pod, container)) if container else Said()
        except ApiError as error:
            if error.is_overload or error.is_internal:
                raise
            return Said()  # the container has just begun, or the Pod has just gone

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
        newest = max(events, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""), default=None)
        return str(newest.get("message")) if newest else None

    def _forget(self, now: float) -> None:
        for uid in [uid for uid, (when, _, _) in self._read.items() if now - when > _FORGET_SECONDS]:
            del self._read[uid]
