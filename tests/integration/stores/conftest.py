"""A bucket of a real S3 server, and the store in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from testbed.s3 import S3Server, write_credentials
from trtllm_operator.steps.bucket import Bucket
from trtllm_operator.steps.object_store import ObjectStore
from trtllm_operator.steps.store import Content, Published

PREFIX = "team/engines"
INPUTS = {"parent": "checkpoint-1"}
BUILD = {"gpu": "NVIDIA H100 80GB HBM3", "durationSeconds": 7}
FILES = {"config.json": b"{}", "rank0.engine": b"engine" * 10_000, "lora/0/adapter_config.json": b"[]"}


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@dataclass
class Space:
    """A bucket of its own for a test, and directories of the Pods that use it."""

    server: S3Server
    name: str
    root: Path

    @property
    def where(self) -> dict[str, str]:
        return {"bucket": self.name, "prefix": PREFIX, "endpoint": self.server.endpoint, "region": "us-east-1"}

    @property
    def credentials(self) -> Path:
        return self.root / "credentials"

    @property
    def step(self) -> dict[str, Any]:
        """The store as a step's arguments name it."""
        return {"s3": self.where, "credentials": str(self.credentials)}

    def store(self, pod: str = "pod", bucket: Bucket | None = None) -> ObjectStore:
        scratch = self.root / pod
        scratch.mkdir(exist_ok=True)
        return ObjectStore(bucket or self.bucket, PREFIX, scratch)

    def new_bucket(self) -> Bucket:
        return Bucket(self.where, self.credentials, "spec.storage.s3")

    @cached_property
    def bucket(self) -> Bucket:
        """One client for all: making one takes a third of a second."""
        return self.new_bucket()

    def listing(self) -> list[str]:
        """Below the prefix, without it."""
        found = self.server.client.list_objects_v2(Bucket=self.name).get("Contents", ())
        return [o["Key"].removeprefix(f"{PREFIX}/") for o in found if not o["Key"].endswith("/conditional-writes")]

    def uploads(self) -> list[str]:
        return [u["Key"] for u in self.server.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())]

    def put(self, key: str, content: bytes) -> None:
        self.server.client.put_object(Bucket=self.name, Key=key, Body=content)

    def output(self, files: dict[str, bytes] = FILES, name: str = "output") -> Path:
        directory = self.root / name
        for path, content in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
        return directory

    def publish(self, output: Path, artifact: str = "engine-1", build: dict[str, Any] = BUILD) -> Published:
        return self.store().publish(Content(artifact, "Engine", INPUTS, build), output, "")


@pytest.fixture
def space(s3: S3Server, tmp_path: Path) -> Space:
    name = f"test-{uuid.uuid4().hex[:12]}"
    s3.client.create_bucket(Bucket=name)
    write_credentials(tmp_path / "credentials")
    return Space(s3, name, tmp_path)
