"""A manifest that another version wrote is known by the name that its inputs give."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.api.engineartifact import Inputs
from trtllm_operator.planning.keys import artifact_name
from trtllm_operator.runner.report import StepError
from trtllm_operator.steps.same import same
from trtllm_operator.steps.store import Content, Published

S3 = {"bucket": "engines", "prefix": "", "region": "us-east-1"}
GPU = {"product": "H100", "computeCapability": "9.0", "cpuArchitecture": "amd64", "resource": "nvidia.com/gpu"}
COMMAND = ["trtllm-build", "--max_batch_size", "8"]
CASES: list[dict[str, Any]] = [
    {"storage": {"persistentVolumeClaim": {"claimName": "engines"}}, "parent": "checkpoint-1", "gpu": GPU},
    {"storage": {"s3": S3}, "parent": "checkpoint-1", "gpu": {**GPU, "cpuArchitecture": "arm64"}, "command": COMMAND},
    {"storage": {"s3": {**S3, "prefix": "team"}}, "model": {"s3": {**S3, "digest": "a" * 64}}},
    {"storage": {"s3": S3}, "model": {"huggingFace": {"repo": "a/b", "commit": "c" * 40}}, "command": []},
]


@pytest.mark.parametrize("inputs", CASES)
def test_defaults_written_out_or_not_are_the_same_artifact(inputs: dict[str, Any]) -> None:
    read = Inputs.model_validate(inputs)
    name = artifact_name("Engine", read)
    spec = {"artifact": name, "type": "Engine", "inputs": read.dump()}
    short = read.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    for written in (inputs, read.dump(), short):
        published = Published.of(Content(name, "Engine", written, {}), [])
        assert same(published, spec) is published
    other = {**read.dump(), "image": "another@sha256:" + "0" * 64}
    with pytest.raises(StepError, match="its manifest says inputs"):
        same(Published.of(Content(name, "Engine", other, {}), []), spec)
