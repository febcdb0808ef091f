"""inspect and fetch against a hub and a claim, as their containers run them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from trtllm_operator.planning import report as planner
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps import model
from trtllm_operator.steps.hub import retry_after_seconds
from trtllm_operator.steps.source import Directory

from .conftest import CONFIG, GOOD_TOKEN, POOR_TOKEN, HubServer, Steps, let_pass, write_model

WANTED = {
    "config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
}
Start = Callable[[], Steps]


def refused(answer: tuple[int, dict[str, Any], str]) -> tuple[int, str, str]:
    status, report, output = answer
    assert "failure" in report, output
    assert "Traceback" not in json.dumps(report)
    return status, report["failure"]["reason"], report["failure"]["message"]


def wait_for(condition: Callable[[], bool], limit_seconds: float = 60) -> None:
    deadline = time.monotonic() + limit_seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_seconds} s"
        time.sleep(0.02)


class TestInspect:
    def test_a_branch_becomes_a_commit_and_the_report_is_what_the_planner_reads(
        self, hub: HubServer, steps: Start
    ) -> None:
        hub.add(layers=3)
        status, report, output = steps().inspect()
        assert status == 0, output
        result = report["result"]
        assert len(result["revision"]) == 40
        assert result["tokenizer"] == "tokenizer.json"
        headers = {"model.embed_tokens.weight": planner.TensorHeader("F16", (256, 64))}
        for layer in range(3):
            headers[f"model.layers.{layer}.mlp.down_proj.weight"] = planner.TensorHeader("F16", (64, 128))
            headers[f"model.layers.{layer}.input_layernorm.weight"] = planner.TensorHeader("F32", (64,))
        assert {key: result[key] for key in ("config", "tensors")} == planner.make_report(CONFIG, headers)

    def test_no_weights_are_read(self, hub: HubServer, steps: Start) -> None:
        directory = hub.add(shards=1)
        padding = 8 << 20
        with (directory / "other.safetensors").open("wb") as file:
            file.truncate(padding)
        started = steps()
        assert started.inspect()[0] == 0
        weights = [request for request in hub.requests if request.path.endswith(".safetensors")]
        assert weights, "the headers were not read"
        assert all("Range" in request.headers for request in weights if request.method == "GET")
        assert not any("other.safetensors" in request.path for request in weights)

    def test_an_inspection_pinned_to_a_commit(self, hub: HubServer, steps: Start) -> None:
        hub.add()
        started = steps()
        commit = started.inspect()[1]["result"]["revision"]
        assert started.inspect(revision=commit)[1]["result"]["revision"] == commit

    @pytest.mark.parametrize(
        ("file", "reason", "told"),
        [
            ("config.json", "ModelUnreadable", "no config.json"),
            ("tokenizer.json", "TokenizerMissing", "none of tokenizer.json, tokenizer.model"),
            ("model-00002-of-00002.safetensors", "ModelUnreadable", "names model-00002-of-00002.safetensors, which"),
        ],
    )
    def test_a_file_that_is_missing(self, hub: HubServer, steps: Start, file: str, reason: str, told: str) -> None:
        (hub.add() / file).unlink()
        status, found, message = refused(steps().inspect())
        assert (status, found) == (64, reason)
        assert told in message

    def test_pickles_are_refused(self, hub: HubServer, steps: Start) -> None:
        directory = hub.add()
        for path in directory.glob("*.safetensors*"):
            path.unlink()
        status, reason, message = refused(steps().inspect())
        assert (status, reason) == (64, "ModelUnreadable")
        assert "pickles (pytorch_model.bin)" in message

    def test_weights_that_are_none(self, hub: HubServer, steps: Start) -> None:
        (hub.add(shards=1) / "model.safetensors").write_bytes(b"\xff" * 64)
        assert refused(steps().inspect())[:2] == (64, "ModelUnreadable")


class TestRefusedByTheHub:
    def test_a_wrong_token_names_what_to_check(self, hub: HubServer, steps: Start) -> None:
        hub.add()
        started = steps()
        started.token("hf_wrong")
        status, reason, message = refused(started.inspect())
        assert (status, reason) == (64, "DownloadRefused")
        assert "HTTP 401" in message
        assert "spec.model.huggingFace.tokenSecretRef" in message
        assert "hf_wrong" not in message

    def test_a_gated_model_without_a_token(self, hub: HubServer, steps: Start) -> None:
        hub.add(visibility="gated")
        status, reason, message = refused(steps().inspect())
        assert (status, reason) == (64, "DownloadRefused")
        assert "gated (HTTP 401): give a token" in message

    def test_a_gated_model_with_a_token_that_was_not_granted_access(self, hub: HubServer, steps: Start) -> None:
        hub.add(visibility="gated")
        started = steps()
        started.token(POOR_TOKEN)
        status, reason, message = refused(started.inspect())
        assert (status, reason) == (64, "DownloadRefused")
        assert "gated (HTTP 403): the account of the token must be granted access" in message

    def test_the_right_token_opens_it(self, hub: HubServer, steps: Start) -> None:
        hub.add(visibility="gated")
        started = steps()
        started.token(GOOD_TOKEN)
        status, report, output = started.inspect()
        assert status == 0, output
        assert started.fetch(report["result"]["revision"])[0] == 0
        assert GOOD_TOKEN not in output

    def test_an_empty_token(self, hub: HubServer, steps: Start) -> None:
        started = steps()
        started.token("")
        assert "token is empty" in refused(started.inspect())[2]

    @pytest.mark.parametrize("visibility", ["public", "private"])
    def test_a_repository_that_is_not_there_for_this_token(self, hub: HubServer, steps: Start, visibility: str) -> None:
        hub.add("owner/other", visibility=visibility)
        started = steps()
        started.token(POOR_TOKEN)
        repo = "owner/other" if visibility == "private" else "owner/none"
        status, reason, message = refused(started.inspect(repo))
        assert (status, reason) == (64, "ModelNotFound")
        assert f"no repository {repo} that the token's account can see" in message

    def test_a_repository_that_is_not_there_for_nobody_in_particular(self, hub: HubServer, steps: Start) -> None:
        status, reason, message = refused(steps().inspect())
        assert (status, reason) == (64, "DownloadRefused")
        assert "or there is no such repository" in message

    def test_a_revision_that_is_not_there(self, hub: HubServer, steps: Start) -> None:
        hub.add()
        status, reason, message = refused(steps().inspect(revision="v9"))
        assert (status, reason) == (64, "ModelNotFound")
        assert "no revision v9" in message

    @pytest.mark.parametrize(("answer", "reason"), [(429, "HubRateLimited"), (503, "HubUnreachable")])
    def test_what_may_pass_by_itself(self, hub: HubServer, steps: Start, answer: int, reason: str) -> None:
        hub.add()

        async def fail(_request: web.Request) -> web.StreamResponse:
            return web.Response(status=answer)

        hub.intercept = fail
        status, found, message = refused(steps().inspect())
        assert (status, found) == (75, reason)
        assert f"HTTP {answer}" in message

    @pytest.mark.parametrize(
        ("header", "seconds"),
        [("120", 120), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("soon", None), ("", None)],
    )
    def test_c95_the_pause_that_a_busy_hub_asks_for_is_passed_on(self, header: str, seconds: int | None) -> None:
        response = httpx2.Response(429, headers={"Retry-After": header} if header else {})
        assert retry_after_seconds(response) == seconds

    def test_a_hub_that_is_not_there(self, tmp_path: Path) -> None:
        started = Steps(tmp_path, "http://127.0.0.1:9")
        status, reason, message = refused(started.inspect())
        assert (status, reason) == (75, "HubUnreachable")
        assert "http://127.0.0.1:9 cannot be reached" in message


class TestFetch:
    def test_the_wanted_files_are_published_and_nothing_else(self, hub: HubServer, steps: Start) -> None:
        source = hub.add()
        started = steps()
        commit = started.inspect()[1]["result"]["revision"]
        status, report, output = started.fetch(commit)
        assert status == 0, output
        artifact = started.store / "model-1"
        assert {path.name for path in artifact.iterdir()} == WANTED | {"manifest.json"}
        assert all((artifact / name).read_bytes() == (source / name).read_bytes() for name in WANTED)
        assert report["result"]["files"] == len(WANTED)
        assert list((started.store / ".staging").iterdir()) == []
        before = len(hub.requests)
        assert started.fetch(commit)[1] == report
        assert len(hub.requests) == before, "a published model is not asked for again"

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_an_interrupted_download_keeps_the_files_it_had_finished(
        self, hub: HubServer, steps: Start, number: signal.Signals
    ) -> None:
        chunk = 10 << 20  # what the hub's client writes at once
        directory = hub.add(padding_bytes=2 * chunk)
        first, second = sorted(directory.glob("*.safetensors"), key=lambda path: path.stat().st_size)
        started = steps()
        commit = started.inspect()[1]["result"]["revision"]

        async def stall(request: web.Request) -> web.StreamResponse | None:
            if request.method != "GET" or not request.path.endswith(second.name):
                return None
            response = web.StreamResponse(headers={"Content-Length": str(second.stat().st_size)})
            await response.prepare(request)
            await response.write(second.read_bytes()[: chunk + 1000])
            await asyncio.sleep(60)
            return response

        hub.intercept = stall
        process = started.start("fetch", **started.fetch_spec(commit))
        staging = started.store / ".staging" / "model-1"
        wait_for(
            lambda: (
                (staging / first.name).exists()
                and any(file.stat().st_size >= chunk for file in staging.rglob("*.incomplete"))
            )
        )
        process.send_signal(number)
        process.communicate(timeout=30)
        assert not (started.store / "model-1").exists()
        if number == signal.SIGTERM:
            assert process.returncode == 75
            assert json.loads(started.log.read_bytes())["failure"]["reason"] == "Terminated"
        hub.intercept = let_pass
        before = len(hub.requests)
        status, _, output = started.fetch(commit)
        assert status == 0, output
        asked = {Path(r.path).name for r in hub.requests[before:] if r.method == "GET"}
        assert second.name in asked
        assert first.name not in asked, "what was there already must not be downloaded again"
        artifact = started.store / "model-1"
        assert {path.name for path in artifact.iterdir()} == WANTED | {"manifest.json"}
        assert (artifact / second.name).read_bytes() == second.read_bytes()

    def test_what_arrives_otherwise_than_the_hub_has_it_is_not_published(self, hub: HubServer, steps: Start) -> None:
        directory = hub.add(shards=1)
        size = (directory / "model.safetensors").stat().st_size
        started = steps()
        commit = started.inspect()[1]["result"]["revision"]

        async def corrupt(request: web.Request) -> web.StreamResponse | None:
            if request.method == "GET" and request.path.endswith("model.safetensors"):
                return web.Response(body=b"x" * size, headers={"X-Repo-Commit": commit})
            return None

        hub.intercept = corrupt
        status, reason, message = refused(started.fetch(commit))
        assert (status, reason) == (75, "DownloadCorrupted")
        assert "model.safetensors did not arrive" in message
        assert not (started.store / "model-1").exists()
        hub.intercept = let_pass
        assert started.fetch(commit)[0] == 0


class TestClaim:
    """A model in a directory of a claim: no hub, and so no process of its own."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        write_model(tmp_path / "claim" / "models" / "one")
        return tmp_path / "claim"

    def inspect(self, root: Path, path: str = "models/one") -> dict[str, Any]:
        return model.inspect({"model": {"persistentVolumeClaim": {"path": path}}, "root": str(root)})

    def fetch(self, root: Path, digest: str, store: Path) -> dict[str, Any]:
        pinned = {"persistentVolumeClaim": {"claimName": "models", "path": "models/one", "digest": digest}}
        store.mkdir(exist_ok=True)
        where = {"store": {"directory": str(store)}, "root": str(root), "scratch": str(store.parent)}
        spec = {"artifact": "model-1", "inputs": {}, "model": pinned, **where}
        return model.fetch(spec)

    def test_it_is_inspected_and_copied(self, root: Path, tmp_path: Path) -> None:
        report = self.inspect(root, "/models/one")
        assert report["config"]["hidden_size"] == 64
        assert len(report["revision"]) == 64
        result = self.fetch(root, report["revision"], tmp_path / "store")
        assert result["files"] == len(WANTED)
        copied = (tmp_path / "store" / "model-1" / "model-00001-of-00002.safetensors").read_bytes()
        original = (root / "models" / "one" / "model-00001-of-00002.safetensors").read_bytes()
        assert hashlib.sha256(copied).digest() == hashlib.sha256(original).digest()

    def test_its_report_is_the_hubs(self, root: Path, hub: HubServer, steps: Start) -> None:
        hub.add()
        of_the_hub = steps().inspect()[1]["result"]
        of_the_claim = self.inspect(root)
        assert {**of_the_hub, "revision": ""} == {**of_the_claim, "revision": ""}

    @pytest.mark.parametrize(
        "change",
        [
            lambda one: (one / "config.json").write_text("{}"),
            lambda one: os.utime(one / "model-00001-of-00002.safetensors", (1, 1)),
            lambda one: (one / "tokenizer_config.json").unlink(),
        ],
        ids=["content", "modification time of weights", "file removed"],
    )
    def test_a_model_that_has_changed_since_is_refused(
        self, root: Path, tmp_path: Path, change: Callable[[Path], object]
    ) -> None:
        digest = self.inspect(root)["revision"]
        change(root / "models" / "one")
        with pytest.raises(StepError, match="must not change in place") as caught:
            self.fetch(root, digest, tmp_path / "store")
        assert caught.value.reason == "ModelChanged"
        assert not (tmp_path / "store" / "model-1").exists()

    def test_a_path_that_is_not_there(self, root: Path) -> None:
        with pytest.raises(StepError, match="not a directory of the claim") as caught:
            self.inspect(root, "models/two")
        assert caught.value.reason == "ModelNotFound"

    @pytest.mark.parametrize("path", ["../outside", "link"])
    def test_a_path_that_leads_out_of_the_claim(self, root: Path, path: str) -> None:
        (root / "link").symlink_to("/etc")
        with pytest.raises(StepError, match="leads out of the claim"):
            self.inspect(root, path)

    def test_an_unfinished_copy_is_told(self, root: Path) -> None:
        weights = root / "models" / "one" / "model-00001-of-00002.safetensors"
        weights.write_bytes(weights.read_bytes()[:-10])
        with pytest.raises(StepError, match=r"where its header says .* an unfinished copy"):
            self.inspect(root)

    def test_a_store_that_is_too_small_is_told_before_anything_is_copied(
        self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        digest = self.inspect(root)["revision"]
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(
            "trtllm_operator.steps.volume_store.shutil.disk_usage", lambda _path: usage._replace(free=10)
        )
        with pytest.raises(StepError, match="more are needed") as caught:
            self.fetch(root, digest, tmp_path / "store")
        assert caught.value.reason == "DiskFull"

    def test_two_revisions_differ(self, root: Path) -> None:
        write_model(root / "models" / "two", layers=3)
        assert Directory(root / "models" / "one").revision != Directory(root / "models" / "two").revision
