"""The steps as their containers run them, with a real S3 server: a model from a bucket, into a bucket, and refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.s3 import write_credentials
from tests.unit.steps.conftest import write_model
from trtllm_operator.runner import manifest
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps import bucket as bucket_module
from trtllm_operator.steps.bucket import Bucket
from trtllm_operator.steps.model import inspect
from trtllm_operator.steps.publish import check, collect, provide, publish, stage

from .conftest import BUILD, PREFIX, Space

MODEL_PREFIX = "models/smol"


def upload_model(space: Space, **model: Any) -> Path:
    directory = write_model(space.root / "model", **model)
    for path in directory.iterdir():
        space.put(f"{MODEL_PREFIX}/{path.name}", path.read_bytes())
    space.put(f"{MODEL_PREFIX}/original/consolidated.pth", b"not at the top")
    return directory


class Steps:
    """Each step a process of its own, with a report."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.log = space.root / "termination-log"
        self.model = {**space.where, "prefix": MODEL_PREFIX}
        self.credentials = str(space.credentials)

    def start(self, step: str, spec: dict[str, Any]) -> subprocess.Popen[str]:
        self.log.unlink(missing_ok=True)
        command = [sys.executable, "-m", "trtllm_operator.steps", step, "--termination-log", str(self.log)]
        return subprocess.Popen(
            [*command, "--spec", json.dumps(spec)],
            env={**os.environ, "PYTHONPATH": "operator"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, step: str, spec: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
        process = self.start(step, spec)
        output, _ = process.communicate(timeout=120)
        return process.returncode, json.loads(self.log.read_bytes()), output

    def inspect(self) -> dict[str, Any]:
        return {"model": {"s3": self.model}, "root": "/model", "credentials": self.credentials}

    def fetch(self, digest: str, store: dict[str, Any], scratch: str = "fetch") -> dict[str, Any]:
        (self.space.root / scratch).mkdir(exist_ok=True)
        return {
            "artifact": "model-1",
            "inputs": {},
            "model": {"s3": {**self.model, "digest": digest}},
            "store": store,
            "root": "/model",
            "credentials": self.credentials,
            "scratch": str(self.space.root / scratch),
        }


@pytest.fixture
def steps(space: Space) -> Steps:
    return Steps(space)


class TestModelInABucket:
    def test_no_weights_are_read_to_inspect_it(self, steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
        upload_model(steps.space, padding_bytes=4 << 20)
        read: list[int] = []
        get = Bucket.get

        def watched(self: Bucket, *arguments: Any) -> bytes | None:
            found = get(self, *arguments)
            read.append(len(found or b""))
            return found

        monkeypatch.setattr(Bucket, "get", watched)
        report = inspect(steps.inspect())
        assert report["config"]["hidden_size"] == 64
        assert report["tensors"]["bytes"] > 4 << 20
        assert report["largestFileBytes"] > 4 << 20
        assert sum(read) < 100_000, "headers and small files alone"

    @pytest.mark.parametrize("into", ["a bucket", "a volume"])
    def test_it_is_fetched_whole_and_nothing_else(self, steps: Steps, into: str) -> None:
        source = upload_model(steps.space)
        digest = steps.run("inspect", steps.inspect())[1]["result"]["revision"]
        volume = steps.space.root / "volume"
        volume.mkdir()
        store = steps.space.step if into == "a bucket" else {"directory": str(volume)}
        status, report, output = steps.run("fetch", steps.fetch(digest, store))
        assert status == 0, output
        directory = steps.space.store("reader").provide("model-1") if into == "a bucket" else volume / "model-1"
        names = {path.name for path in directory.iterdir()} - {"manifest.json"}
        assert names == {path.name for path in source.iterdir()} - {
            "README.md",
            "modeling_custom.py",
            "pytorch_model.bin",
        }
        assert all((directory / name).read_bytes() == (source / name).read_bytes() for name in names)
        assert manifest.verify(directory)["type"] == "Model"
        assert steps.run("fetch", steps.fetch(digest, store))[1] == report

    def test_a_model_that_changed_since_it_was_inspected_is_refused(self, steps: Steps) -> None:
        upload_model(steps.space)
        digest = steps.run("inspect", steps.inspect())[1]["result"]["revision"]
        steps.space.put(f"{MODEL_PREFIX}/config.json", b'{"hidden_size": 128}')
        status, report, _ = steps.run("fetch", steps.fetch(digest, steps.space.step))
        assert (status, report["failure"]["reason"]) == (64, "ModelChanged")
        assert f"s3://{steps.space.name}/{MODEL_PREFIX}" in report["failure"]["message"]

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_an_interrupted_fetch_goes_on_where_it_was(self, steps: Steps, number: signal.Signals) -> None:
        """Into a volume: its staging directory outlives the Pod. The server hangs in the middle of the large file."""
        upload_model(steps.space, shards=1, padding_bytes=96 << 20)
        digest = steps.run("inspect", steps.inspect())[1]["result"]["revision"]
        volume = steps.space.root / "volume"
        volume.mkdir()
        spec = steps.fetch(digest, {"directory": str(volume)})
        process = steps.start("fetch", spec)
        deadline = time.monotonic() + 60

        def partial() -> int:
            return sum(path.stat().st_size for path in volume.glob(".staging/model-1/*.partial"))

        while partial() < 1 << 20:
            assert time.monotonic() < deadline, "no byte of the large file comes"
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.001)
        process.send_signal(number)
        process.communicate(timeout=30)
        assert not (volume / "model-1").exists()
        kept = partial()
        assert 1 << 20 <= kept < 96 << 20
        status, _, output = steps.run("fetch", spec)
        assert status == 0, output
        assert manifest.verify(volume / "model-1")["type"] == "Model"
        assert list((volume / ".staging").iterdir()) == []

    def test_a_prefix_with_nothing_below(self, steps: Steps) -> None:
        status, report, _ = steps.run("inspect", steps.inspect())
        assert (status, report["failure"]["reason"]) == (64, "ModelNotFound")
        assert "check spec.model.s3.bucket and prefix" in report["failure"]["message"]


class TestRefused:
    def refusal(self, steps: Steps, **changes: Any) -> tuple[int, str, str]:
        spec = steps.inspect()
        spec["model"]["s3"] |= changes
        status, report, output = steps.run("inspect", spec)
        assert "failure" in report, output
        assert "Traceback" not in json.dumps(report)
        return status, report["failure"]["reason"], report["failure"]["message"]

    def test_a_wrong_key(self, steps: Steps) -> None:
        steps.credentials = str(write_credentials(steps.space.root / "wrong", secret_key="another"))
        status, reason, message = self.refusal(steps)
        assert (status, reason) == (64, "StorageRefused")
        assert "in the Secret that spec.model.s3.credentialsSecretRef names" in message
        assert "another" not in message

    def test_a_secret_without_the_key(self, steps: Steps) -> None:
        directory = write_credentials(steps.space.root / "poor")
        (directory / "AWS_SECRET_ACCESS_KEY").unlink()
        steps.credentials = str(directory)
        status, reason, message = self.refusal(steps)
        assert (status, reason) == (64, "StorageRefused")
        assert "has no AWS_SECRET_ACCESS_KEY" in message

    def test_no_credentials_for_a_bucket_that_is_not_public(self, steps: Steps) -> None:
        upload_model(steps.space)
        spec = steps.inspect()
        del spec["credentials"]
        status, report, _ = steps.run("inspect", spec)
        assert (status, report["failure"]["reason"]) == (64, "StorageRefused")

    def test_a_bucket_that_is_not_there(self, steps: Steps) -> None:
        status, reason, message = self.refusal(steps, bucket="no-such-bucket")
        assert (status, reason) == (64, "StorageRefused")
        assert "has no bucket no-such-bucket: check spec.model.s3.bucket" in message

    def test_a_server_that_is_not_there(self, steps: Steps) -> None:
        status, reason, message = self.refusal(steps, endpoint="http://127.0.0.1:1")
        assert (status, reason) == (75, "StorageUnreachable")
        assert "http://127.0.0.1:1 cannot be reached" in message


class TestBuild:
    """stage, publish, provide, check and collect, as one artifact's life."""

    def test_from_its_parent_to_its_end(
        self, space: Space, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("POD_UID", "uid-1")
        space.publish(space.output({"rank0.safetensors": b"weights"}, "parent"), "checkpoint-1")
        space.publish(space.output({"tokenizer.json": b"{}", "a.safetensors": b"w"}, "model"), "model-1")
        scratch = space.root / "scratch"
        where = {"artifact": "engine-1", "store": space.step, "scratch": str(scratch)}
        (scratch / "output").mkdir(parents=True)
        assert stage({**where, "parent": "checkpoint-1", "model": "model-1"}) == {"published": False}
        assert (scratch / "store" / "checkpoint-1" / "rank0.safetensors").read_bytes() == b"weights"
        assert {p.name for p in (scratch / "store" / "model-1").iterdir()} == {"tokenizer.json", "manifest.json"}
        (scratch / "output" / "rank0.engine").write_bytes(b"engine")
        (scratch / "build.json").write_text(json.dumps(BUILD))
        result = publish({**where, "type": "Engine", "inputs": {}})
        assert (result["files"], result["sizeBytes"], result["build"]) == (1, 6, BUILD)

        server = {"engine": "engine-1", "model": "model-1", "store": space.step, "scratch": str(space.root / "server")}
        provide(server)
        assert manifest.verify(space.root / "server" / "store" / "engine-1")["type"] == "Engine"
        what = {**where, "type": "Engine", "inputs": {}}
        assert check(what) == {"whole": True}

        key = next(k for k in space.listing() if k.endswith("rank0.engine"))
        space.put(f"{PREFIX}/{key}", b"ENGINE")
        with pytest.raises(StepError, match=r"rank0\.engine has SHA-256") as caught:
            provide({**server, "scratch": str(space.root / "another")})
        assert caught.value.artifact == "engine-1"
        answer = check(what)
        assert answer["whole"] is False
        assert "rank0.engine has SHA-256" in answer["problem"]
        assert stage({**where, "parent": "checkpoint-1"}) == {"published": False}, "the next attempt builds it"

        publish({**where, "type": "Engine", "inputs": {}})
        collect(where)
        assert not any(key.startswith("engine-1/") for key in space.listing())
        assert space.store().has("checkpoint-1")
        for secret in ("llmengine-test-secret",):
            assert secret not in capsys.readouterr().out

    def test_a_download_that_stalls_is_given_up_and_may_pass(
        self, space: Space, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        space.publish(space.output({"rank0.safetensors": b"weights"}, "parent"), "checkpoint-1")
        monkeypatch.setattr(bucket_module, "_READ_SECONDS", 1)
        store = space.store(bucket=space.new_bucket())
        space.server.stop()
        try:
            with pytest.raises(StepError, match="cannot be reached") as caught:
                store.verify("checkpoint-1")
        finally:
            space.server.resume()
        assert (caught.value.reason, caught.value.retryable) == ("StorageUnreachable", True)
        assert store.verify("checkpoint-1")
