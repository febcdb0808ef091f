"""kubectl as a person uses it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

Obj = dict[str, Any]


class KubectlError(RuntimeError):
    """kubectl refused; the message is its own."""


class WaitedTooLong(RuntimeError):  # noqa: N818 (says what happened)
    """A condition did not come true within its limit; the message says what was seen last."""


class Kubectl:
    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig, self.namespace = kubeconfig, namespace
        beside = Path(sys.executable).parent / "kubectl"
        self._program = str(beside) if beside.exists() else "kubectl"

    def command(self, *arguments: str) -> list[str]:
        return [self._program, f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments]

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60) -> str:
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
        if done.returncode:
            raise KubectlError(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def apply(self, *objects: Mapping[str, Any]) -> str:
        return self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, *what: str) -> Obj:
        found: Obj = json.loads(self("get", *what, "-o", "json"))
        return found

    def find(self, *what: str) -> Obj | None:
        """The object, None where it does not exist."""
        out = self("get", *what, "-o", "json", "--ignore-not-found")
        return json.loads(out) if out.strip() else None

    def items(self, *what: str) -> list[Obj]:
        return list(self.get(*what)["items"])

    @contextmanager
    def port_forward(self, target: str, port: int) -> Iterator[int]:
        """A free local port that leads to `port` of a Pod, Deployment or Service."""
        process = subprocess.Popen(
            self.command("port-forward", target, f":{port}", "--address=127.0.0.1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = (
                process.stdout.readline()
            )  # "Forwarding from 127.0.0.1:41234 -> 8000"; the end of the pipe on failure
            if "->" not in line:
                raise KubectlError(f"port-forward {target}: {line.strip()}")
            yield int(line.split("->")[0].rpartition(":")[2])
        finally:
            process.terminate()
            process.wait(timeout=10)


def wait_for(what: str, check: Callable[[], str | None], *, limit_seconds: float, every_seconds: float = 0.5) -> float:
    """Until `check` returns None; the seconds that took. Its words say what is still missing."""
    began = time.monotonic()
    while (missing := check()) is not None:
        if time.monotonic() - began > limit_seconds:
            raise WaitedTooLong(f"{what}: not within {limit_seconds:.0f} s; {missing}")
        time.sleep(every_seconds)
    return time.monotonic() - began


def condition(obj: Obj | None, type_: str) -> Obj:
    """A condition of the object's current generation; an empty one where there is none (yet)."""
    if obj is None:
        return {}
    generation = obj["metadata"].get("generation")
    conditions = obj.get("status", {}).get("conditions") or ()
    found: Obj = next((c for c in conditions if c["type"] == type_), {})
    return found if found.get("observedGeneration", generation) == generation else {}


def ready(obj: Obj | None) -> str | None:
    """None once the object is Ready for its current generation, else what it says instead."""
    if obj is None:
        return "it does not exist"
    found = condition(obj, "Ready")
    if found.get("status") == "True":
        return None
    return f"{found.get('reason', 'not looked at yet')}: {found.get('message', '')}"
