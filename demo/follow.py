"""Follows an LLMEngine to Ready, saying what happens as it happens."""

from __future__ import annotations

import time

from testbed.progress import PROGRESS

from .kubectl import Kubectl, WaitedTooLong, condition, ready, wait_for


class StalledError(RuntimeError):
    """The LLMEngine needs a person; the message is the condition's."""


def until_ready(kubectl: Kubectl, name: str, *, limit_seconds: float = 600) -> float:
    """Prints each change of an artifact or a target; the seconds until Ready. Raises StalledError, WaitedTooLong."""
    began = time.monotonic()
    said: dict[str, str] = {}
    while True:
        for artifact in kubectl.items("engineartifacts"):
            status = artifact.get("status", {})
            where = f" on {status['nodeName']}" if status.get("nodeName") else ""
            _say(said, artifact["metadata"]["name"], f"{status.get('phase')} {status.get('reason')}{where}")
        engine = kubectl.get("llmengine", name)
        missing = ready(engine)
        stalled = condition(engine, "Stalled")
        if stalled.get("status") == "True":
            raise StalledError(f"{name} is stalled, {stalled['reason']}: {stalled['message']}")
        for target in engine.get("status", {}).get("targets", ()):
            _say(said, f"target {target['name']}", target.get("reason", ""))
        if missing is None:
            return time.monotonic() - began
        if time.monotonic() - began > limit_seconds:
            raise WaitedTooLong(f"{name} is not Ready after {limit_seconds:.0f} s: {missing}")
        time.sleep(0.5)


def until_drained(kubectl: Kubectl, name: str, *, limit_seconds: float = 180) -> float:
    """Until no server is left but those of the revisions that serve; the seconds that took."""

    def old_servers() -> str | None:
        serving = {t.get("servedRevision") for t in kubectl.get("llmengine", name)["status"]["targets"]}
        pods = kubectl.items("pods", "-l", f"llmengine.dev/engine={name},llmengine.dev/revision")
        old = [p["metadata"]["name"] for p in pods if p["metadata"]["labels"]["llmengine.dev/revision"] not in serving]
        return f"{', '.join(old)} still there" if old else None

    return wait_for("the old servers' end", old_servers, limit_seconds=limit_seconds)


def _say(said: dict[str, str], what: str, now: str) -> None:
    if said.get(what) != now:
        said[what] = now
        PROGRESS.say(f"  {what}: {now}")
