"""`llmengine plan` of a model in a bucket: by its headers, with the user's own keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from testbed.s3 import ACCESS_KEY, SECRET_KEY
from tests.integration.stores.conftest import Space
from tests.unit.planning.build import SMOLLM2
from trtllm_operator.cli.main import app


@pytest.fixture
def manifest(space: Space, tmp_path: Path) -> str:
    spec: dict[str, Any] = {
        "model": {"s3": space.where | {"prefix": "models/smol"}},
        "release": "1.2.1",
        "budgets": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048},
        "targets": [{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}],
        "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
    }
    document = {"apiVersion": "llmengine.dev/v1alpha1", "kind": "LLMEngine", "metadata": {"name": "s"}, "spec": spec}
    (tmp_path / "engine.yaml").write_text(yaml.safe_dump(document))
    return str(tmp_path / "engine.yaml")


def plan(manifest: str, **environment: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["plan", "-f", manifest, "-o", "json"], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_model_in_a_bucket_is_read_with_the_users_keys(space: Space, manifest: str) -> None:
    header = json.dumps({"model.embed_tokens.weight": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]}})
    files = {
        "config.json": json.dumps(SMOLLM2).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": len(header).to_bytes(8, "little") + header.encode() + bytes(32),
    }
    for name, content in files.items():
        space.server.client.put_object(Bucket=space.name, Key=f"models/smol/{name}", Body=content)
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    code, out, err = plan(manifest, **keys)
    assert code == 0, err
    planned = json.loads(out)
    assert len(planned["model"]["revision"]) == 64, "the digest that the operator pins"
    assert planned["artifacts"][0]["name"].startswith("model-")
    code, _, err = plan(manifest, AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY="wrong")
    assert code == 4
    assert err.startswith("llmengine: s3://")
    assert err.count("\n") == 1


def test_what_is_not_in_the_bucket_is_one_line_and_exit_4(space: Space, manifest: str) -> None:
    code, _, err = plan(manifest, AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
    assert code == 4
    assert "there is no object below" in err
    assert err.count("\n") == 1
