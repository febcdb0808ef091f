"""stage, publish and collect as their containers run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.runner import manifest as runner_manifest
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps.publish import collect, publish, stage
from trtllm_operator.steps.store import Store

BUILD = {"gpu": "NVIDIA H100 80GB HBM3", "durationSeconds": 7, "peakHostMemoryBytes": 123}


class Pod:
    """One attempt at an engine: a store with its checkpoint, a scratch directory with what the build left."""

    def __init__(self, root: Path) -> None:
        self.store, self.scratch = Store(root / "store"), root / "scratch"
        staging = self.store.staging("checkpoint-1", "earlier")
        staging.mkdir(parents=True)
        (staging / "rank0.safetensors").write_text("weights")
        self.store.publish(staging, "checkpoint-1", "Checkpoint", {}, {})
        (self.scratch / "output").mkdir(parents=True)
        (self.scratch / "output" / "rank0.engine").write_text("engine")
        (self.scratch / "build.json").write_text(json.dumps(BUILD))
        where = {"artifact": "engine-1", "store": str(self.store.root), "scratch": str(self.scratch)}
        self.stage_spec: dict[str, Any] = {**where, "parent": "checkpoint-1"}
        self.publish_spec: dict[str, Any] = {**where, "type": "Engine", "inputs": {"parent": "checkpoint-1"}}


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    monkeypatch.setenv("POD_UID", "uid-1")
    return Pod(tmp_path)


class TestStage:
    def test_a_whole_parent_lets_the_build_begin(self, pod: Pod) -> None:
        assert stage(pod.stage_spec) == {"published": False}
        assert not (pod.scratch / "skip").exists()

    def test_a_damaged_parent_stops_it_before_a_gpu_is_used(self, pod: Pod) -> None:
        (pod.store.directory("checkpoint-1") / "rank0.safetensors").write_text("Weights")
        with pytest.raises(StepError, match=r"rank0\.safetensors has another SHA-256") as caught:
            stage(pod.stage_spec)
        assert caught.value.reason == "ParentCorrupted"

    def test_a_missing_parent(self, pod: Pod) -> None:
        with pytest.raises(StepError, match="checkpoint-2, which engine-1 is made from") as caught:
            stage({**pod.stage_spec, "parent": "checkpoint-2"})
        assert caught.value.reason == "ParentMissing"

    def test_an_artefact_that_is_there_already_is_not_built_again(self, pod: Pod) -> None:
        first = publish(pod.publish_spec)
        assert stage(pod.stage_spec) == {"published": True}
        assert (pod.scratch / "skip").exists()
        assert publish(pod.publish_spec) == first

    def test_a_damaged_artefact_is_told_and_not_overwritten(self, pod: Pod) -> None:
        publish(pod.publish_spec)
        (pod.store.directory("engine-1") / "rank0.engine").write_text("ENGINE")
        with pytest.raises(StepError, match="Delete its EngineArtifact") as caught:
            stage(pod.stage_spec)
        assert caught.value.reason == "ArtifactCorrupted"


class TestPublish:
    def test_the_facts_of_the_build_come_with_the_result(self, pod: Pod) -> None:
        result = publish(pod.publish_spec)
        assert (result["files"], result["sizeBytes"], result["build"]) == (1, 6, BUILD)
        assert len(result["manifestDigest"]) == 64

    def test_a_build_that_left_nothing(self, pod: Pod) -> None:
        (pod.scratch / "output" / "rank0.engine").unlink()
        with pytest.raises(StepError, match="left nothing") as caught:
            publish(pod.publish_spec)
        assert caught.value.reason == "OutputMissing"
        assert not pod.store.has("engine-1")

    def test_what_is_published_is_what_the_runner_verifies(self, pod: Pod) -> None:
        """The two rooms stand alone; the manifest is what they share."""
        publish(pod.publish_spec)
        directory = pod.store.directory("engine-1")
        assert runner_manifest.verify(directory)["build"] == BUILD
        (directory / "rank0.engine").write_text("ENGINE")
        with pytest.raises(StepError, match=r"rank0\.engine"):
            runner_manifest.verify(directory)

    def test_as_a_process_it_writes_the_termination_message(self, pod: Pod, tmp_path: Path) -> None:
        log = tmp_path / "termination-log"
        spec = json.dumps(pod.publish_spec)
        answer = subprocess.run(
            [sys.executable, "-m", "trtllm_operator.steps", "publish", "--spec", spec, "--termination-log", log],
            env={**os.environ, "PYTHONPATH": "operator"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        assert json.loads(log.read_text())["result"]["sizeBytes"] == 6
        events = [json.loads(line) for line in answer.stdout.splitlines()]
        assert {"event": "copying", "bytes": 6, "totalBytes": 6} in events


class TestCollect:
    def test_it_takes_away_the_artefact_and_what_attempts_left(self, pod: Pod) -> None:
        publish(pod.publish_spec)
        (pod.store.root / ".staging" / "engine-1.uid-9").mkdir()
        collect({"artifact": "engine-1", "store": str(pod.store.root)})
        assert [path.name for path in pod.store.root.iterdir() if path.name != ".staging"] == ["checkpoint-1"]
        assert list((pod.store.root / ".staging").iterdir()) == []

    def test_what_is_gone_already_is_no_failure(self, pod: Pod) -> None:
        collect({"artifact": "engine-9", "store": str(pod.store.root)})
