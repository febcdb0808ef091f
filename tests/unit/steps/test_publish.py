"""stage, publish and collect as their containers run them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.planning.commands import CALIBRATION_TEXTS
from trtllm_operator.runner import manifest as runner_manifest
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps.publish import TEXTS, check, collect, provide, publish, stage
from trtllm_operator.steps.store import Content
from trtllm_operator.steps.volume_store import VolumeStore

GOLDEN = "8bc47724f884d6dd8bcc336014adb5bac77546bb763c2351af17a2835d8e9098"
BUILD = {"gpu": "NVIDIA H100 80GB HBM3", "durationSeconds": 7, "peakHostMemoryBytes": 123}


class Pod:
    """One attempt at an engine: a store with its checkpoint, a scratch directory with what the build left."""

    def __init__(self, root: Path) -> None:
        self.store, self.scratch = VolumeStore(root / "store"), root / "scratch"
        (root / "earlier").mkdir()
        (root / "earlier" / "rank0.safetensors").write_text("weights")
        self.store.publish(Content("checkpoint-1", "Checkpoint", {}, {}), root / "earlier", "earlier")
        (self.scratch / "output").mkdir(parents=True)
        (self.scratch / "output" / "rank0.engine").write_text("engine")
        (self.scratch / "build.json").write_text(json.dumps(BUILD))
        where = {"artifact": "engine-1", "store": {"directory": str(self.store.root)}, "scratch": str(self.scratch)}
        self.where: dict[str, Any] = where
        self.check_spec: dict[str, Any] = {**where, "type": "Engine", "inputs": {"parent": "checkpoint-1"}}
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

    def test_the_texts_of_a_calibration_are_laid_where_its_command_looks(self, pod: Pod) -> None:
        stage({**pod.stage_spec, "texts": True})
        lines = (pod.scratch / "calibration" / CALIBRATION_TEXTS / "texts.jsonl").read_text().splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        assert len(texts) >= 32
        assert len(set(texts)) == len(texts)

    def test_a_version_of_the_texts_never_changes(self) -> None:
        """Its name is in the key of every checkpoint that was calibrated with it: other texts need another name."""
        content = (TEXTS / CALIBRATION_TEXTS / "texts.jsonl").read_bytes()
        assert hashlib.sha256(content).hexdigest() == GOLDEN

    def test_a_damaged_parent_stops_it_before_a_gpu_is_used(self, pod: Pod) -> None:
        (pod.store.directory("checkpoint-1") / "rank0.safetensors").write_text("Weights")
        with pytest.raises(StepError, match=r"rank0\.safetensors has SHA-256") as caught:
            stage(pod.stage_spec)
        assert (caught.value.reason, caught.value.artifact) == ("ArtifactCorrupted", "checkpoint-1")
        assert caught.value.retryable, "its parent is made again, and then the build can go on"

    def test_a_missing_parent(self, pod: Pod) -> None:
        with pytest.raises(StepError, match="checkpoint-2, which engine-1 is made from") as caught:
            stage({**pod.stage_spec, "parent": "checkpoint-2"})
        assert (caught.value.reason, caught.value.artifact) == ("ArtifactCorrupted", "checkpoint-2")

    def test_an_artifact_that_is_there_already_is_not_built_again(self, pod: Pod) -> None:
        first = publish(pod.publish_spec)
        assert stage(pod.stage_spec) == {"published": True}
        assert (pod.scratch / "skip").exists()
        assert publish(pod.publish_spec) == first

    def test_a_damaged_artifact_is_told_and_not_overwritten(self, pod: Pod) -> None:
        publish(pod.publish_spec)
        (pod.store.directory("engine-1") / "rank0.engine").write_text("ENGINE")
        with pytest.raises(StepError, match="is not what was published") as caught:
            stage(pod.stage_spec)
        assert (caught.value.reason, caught.value.artifact) == ("ArtifactCorrupted", "engine-1")


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


class TestProvide:
    def spec(self, pod: Pod, model: str) -> dict[str, Any]:
        return {"engine": "engine-1", "model": model, "store": pod.where["store"], "scratch": str(pod.scratch)}

    def test_a_server_is_told_which_artifact_is_damaged_before_it_starts(self, pod: Pod) -> None:
        publish(pod.publish_spec)
        provide(self.spec(pod, "checkpoint-1"))
        (pod.store.directory("engine-1") / "rank0.engine").unlink()
        with pytest.raises(StepError, match=r"rank0\.engine cannot be read") as caught:
            provide(self.spec(pod, "checkpoint-1"))
        assert caught.value.report()["failure"]["artifact"] == "engine-1"


class TestCheck:
    def test_a_whole_artifact_stays(self, pod: Pod) -> None:
        first = publish(pod.publish_spec)
        assert check(pod.check_spec) == {"whole": True}
        assert publish(pod.publish_spec) == first

    @pytest.mark.parametrize("file", ["rank0.engine", "manifest.json"])
    def test_a_damaged_one_is_taken_away_and_the_damage_told(self, pod: Pod, file: str) -> None:
        publish(pod.publish_spec)
        (pod.store.directory("engine-1") / file).write_text("x")
        answer = check(pod.check_spec)
        assert answer["whole"] is False
        assert file in answer["problem"]
        assert not pod.store.has("engine-1")
        assert stage(pod.stage_spec) == {"published": False}, "the next attempt builds it"

    def test_one_that_is_not_there(self, pod: Pod) -> None:
        assert check(pod.check_spec) == {"whole": False, "problem": "engine-1 is not in the store"}

    def test_c16_one_that_is_whole_and_not_what_its_record_says_is_taken_away_too(self, pod: Pod) -> None:
        publish(pod.publish_spec)
        answer = check({**pod.check_spec, "unfit": "it is for 8.9, and the GPU has 9.0"})
        assert answer == {"whole": False, "problem": "it is for 8.9, and the GPU has 9.0"}
        assert not pod.store.has("engine-1")

    def test_another_copy_than_was_published_is_taken_away_though_it_is_whole(self, pod: Pod) -> None:
        recorded = publish(pod.publish_spec)["manifestDigest"]
        assert check({**pod.check_spec, "digest": recorded}) == {"whole": True}
        answer = check({**pod.check_spec, "digest": "0" * 64})
        assert answer["whole"] is False
        assert "was recorded when engine-1 was published" in answer["problem"]
        assert not pod.store.has("engine-1")

    def test_another_artifact_under_its_name_is_taken_away(self, pod: Pod) -> None:
        publish({**pod.publish_spec, "inputs": {"parent": "checkpoint-2"}})
        answer = check(pod.check_spec)
        assert answer["whole"] is False
        assert 'its manifest says inputs {"parent": "checkpoint-2"}' in answer["problem"]


class TestWhatIsRead:
    """Each consumer compares what it reads with the digest that publication recorded."""

    def test_a_build_does_not_begin_from_another_checkpoint(self, pod: Pod) -> None:
        recorded = pod.store.verify("checkpoint-1").digest
        stage({**pod.stage_spec, "digests": {"checkpoint-1": recorded}})
        with pytest.raises(StepError, match="another copy") as refused:
            stage({**pod.stage_spec, "digests": {"checkpoint-1": "0" * 64}})
        assert refused.value.report()["failure"]["artifact"] == "checkpoint-1"

    def test_a_server_is_not_provided_with_another_engine(self, pod: Pod) -> None:
        recorded = publish(pod.publish_spec)["manifestDigest"]
        spec = {"engine": "engine-1", "model": "checkpoint-1", "store": pod.where["store"], "scratch": "/scratch"}
        provide({**spec, "digests": {"engine-1": recorded}})
        with pytest.raises(StepError, match="another copy"):
            provide({**spec, "digests": {"engine-1": "0" * 64}})

    @pytest.mark.parametrize("field", ["type", "inputs"])
    def test_what_is_found_published_has_to_be_this_artifact(self, pod: Pod, field: str) -> None:
        other = {"type": "Checkpoint", "inputs": {"parent": "checkpoint-2"}}
        publish({**pod.publish_spec, field: other[field]})
        with pytest.raises(StepError, match=f"its manifest says {field}") as refused:
            publish(pod.publish_spec)
        assert refused.value.reason == "ArtifactCorrupted"


class TestCollect:
    def test_it_takes_away_the_artifact_and_what_attempts_left(self, pod: Pod) -> None:
        publish(pod.publish_spec)
        (pod.store.root / ".staging" / "engine-1.uid-9").mkdir()
        collect(pod.where)
        assert [path.name for path in pod.store.root.iterdir() if path.name != ".staging"] == ["checkpoint-1"]
        assert list((pod.store.root / ".staging").iterdir()) == []

    def test_what_is_gone_already_is_no_failure(self, pod: Pod) -> None:
        collect({**pod.where, "artifact": "engine-9"})
