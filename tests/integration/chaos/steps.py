"""What the containers of an artifact's Pod do, played: the real steps on a real store, around a tool that is none.

Only reading a model, downloading it and the toolchain are made up. What is staged, published, verified and collected is
so by the operator's own code, in a directory of this machine.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.engines.simulation import REPORT
from trtllm_operator.kube.resource import Obj
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps import calibration_texts as texts
from trtllm_operator.steps import publish as steps
from trtllm_operator.steps.store import Content
from trtllm_operator.steps.volume_store import VolumeStore

FACTS = {"gpu": "played", "durationSeconds": 1, "peakHostMemoryBytes": 1 << 20}


class Workshop:
    """One namespace's store, and what was built into it.

    `builds` counts by artifact what was truly built since it was last collected.
    """

    def __init__(self, directory: Path) -> None:
        self.root = directory / "store"
        self.root.mkdir(parents=True)
        self.claim = directory / "texts"
        """Of calibration texts."""
        self.builds: Counter[str] = Counter()
        self.collected: Counter[str] = Counter()
        """How often the files of each were removed."""
        self.accepted: dict[str, tuple[str, ...]] = {}
        """Tokens that the hub takes of a container; of one that is not named, any or none."""
        self._directory = directory
        self._one_at_a_time = threading.Lock()
        """Of this process: which Pod it plays is told to the steps in its environment."""

    @property
    def store(self) -> VolumeStore:
        return VolumeStore(self.root)

    def published(self) -> list[str]:
        """Every name that a reader of the store can see."""
        return sorted(p.name for p in self.root.iterdir() if not p.name.startswith("."))

    def staged(self) -> list[str]:
        """What is left half-way."""
        staging = self.root / ".staging"
        return sorted(p.name for p in staging.iterdir()) if staging.is_dir() else []

    def run(self, pod: Obj, token: str | None = None) -> dict[str, dict[str, Any]]:
        """The report of each container of a Pod whose every container succeeds; StepError where one does not."""
        scratch = self._directory / pod["metadata"]["uid"]
        scratch.mkdir()
        containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        with self._one_at_a_time:
            os.environ["POD_UID"] = pod["metadata"]["uid"]
            for container in containers:
                if token not in self.accepted.get(container["name"], (token,)):
                    raise StepError("DownloadRefused", "HTTP 401: check the Secret")
            return {c["name"]: self._container(c, scratch) for c in containers}

    def _container(self, container: Obj, scratch: Path) -> dict[str, Any]:
        here = {"store": {"directory": str(self.root)}, "scratch": str(scratch)}
        spec = json.loads(container["command"][-1]) | here
        match container["name"]:
            case "inspect":
                return REPORT
            case "digest":
                return texts.digest(spec | {"root": str(self.claim)})
            case "fetch":
                return self._fetch(spec)
            case "stage":
                if own := spec.get("calibration"):
                    spec["calibration"] = own | {"root": str(self.claim)}
                return steps.stage(spec)
            case "convert" | "build":
                return self._build(spec["artifact"], scratch)
            case "publish":
                return steps.publish(spec)
            case "check":
                return steps.check(spec)
            case "collect":
                self.collected[spec["artifact"]] += 1
                self.builds.pop(spec["artifact"], None)
                return steps.collect(spec)
            case unknown:
                raise AssertionError(f"a container {unknown} that nobody knows how to play")

    def _fetch(self, spec: dict[str, Any]) -> dict[str, Any]:
        name = spec["artifact"]
        if self.store.has(name):
            return self.store.verify(name).report()
        self.builds[name] += 1
        weights = f"weights of {name}"

        def download(paths: Sequence[str], into: Path) -> None:
            for path in paths:
                (into / path).write_text(weights)

        content = Content(name, "Model", spec["inputs"], {})
        return self.store.receive(content, {"model.safetensors": len(weights)}, download).report()

    def _build(self, name: str, scratch: Path) -> dict[str, Any]:
        if (scratch / steps.SKIP_FILE).exists():
            return {}
        self.builds[name] += 1
        output = scratch / steps.OUTPUT
        output.mkdir()
        (output / "config.json").write_text(json.dumps({"built": name}))
        (output / "rank0.engine").write_bytes(name.encode() * 1000)
        (scratch / steps.FACTS_FILE).write_text(json.dumps(FACTS))
        return {}
