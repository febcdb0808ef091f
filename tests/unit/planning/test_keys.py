"""Keys: golden values, and what must and must not change them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.api.common import Storage
from trtllm_operator.api.engineartifact import Inputs
from trtllm_operator.planning import artifact_name, canonical_json

ENGINE: dict[str, Any] = {
    "parent": "checkpoint-0123456789abcdef0123",
    "image": "registry.example/tritonserver@sha256:" + "0" * 64,
    "command": ["trtllm-build", "--checkpoint_dir", "{parent}", "--output_dir", "{output}", "--max_seq_len", "2048"],
    "gpu": {"product": "NVIDIA-H100-80GB-HBM3", "computeCapability": "9.0"},
    "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
}
MODEL: dict[str, Any] = {
    "model": {"huggingFace": {"repo": "org/model", "commit": "0" * 40}},
    "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
}


def name(kind: Any, **changes: Any) -> str:
    base = MODEL if kind == "Model" else ENGINE
    return artifact_name(kind, Inputs.model_validate(base | changes))


def test_golden_keys() -> None:
    """A change here rebuilds every engine of every cluster: raise Inputs.keySchema and say why."""
    assert name("Model") == "model-f96020dd18c9c6b0e33c"
    assert name("Engine") == "engine-cc95798ab97b79086598"


@pytest.mark.parametrize(
    "change",
    [
        {"parent": "checkpoint-ffffffffffffffffffff"},
        {"image": "registry.example/tritonserver@sha256:" + "1" * 64},
        {"command": [*ENGINE["command"][:-1], "4096"]},
        {"gpu": {"product": "NVIDIA-H100-PCIe", "computeCapability": "9.0"}},
        {"storage": {"persistentVolumeClaim": {"claimName": "other"}}},
        {"storage": {"s3": {"bucket": "engines"}}},
    ],
)
def test_every_input_changes_the_key(change: dict[str, Any]) -> None:
    assert name("Engine", **change) != name("Engine")


S3 = {"bucket": "engines", "prefix": "team", "endpoint": "https://minio", "region": "eu-west-1"}


@pytest.mark.parametrize("field", S3)
def test_where_a_bucket_is_is_part_of_the_key(field: str) -> None:
    whole = name("Engine", storage={"s3": S3})
    assert name("Engine", storage={"s3": {**S3, field: "another" if field != "endpoint" else "http://minio"}}) != whole


def test_golden_key_of_a_bucket() -> None:
    assert name("Engine", storage={"s3": S3}) == "engine-a1d6d3b46fae4e676e1b"


def test_what_opens_a_bucket_is_no_part_of_the_key() -> None:
    stores = [Storage.model_validate({"s3": {**S3, "credentialsSecretRef": {"name": n}}}) for n in ("one", "two")]
    names = {artifact_name("Model", Inputs.model_validate({**MODEL, "storage": s.location.dump()})) for s in stores}
    assert len(names) == 1


def test_the_type_is_part_of_the_key() -> None:
    assert name("Engine").removeprefix("engine-") != name("Checkpoint").removeprefix("checkpoint-")


def test_an_equal_default_written_out_is_the_same_key() -> None:
    assert name("Engine", keySchema=1) == name("Engine")
    assert name("Engine", model=None) == name("Engine")


def test_order_of_fields_is_not_part_of_the_key() -> None:
    fields = list(ENGINE.items())
    fields.reverse()
    assert artifact_name("Engine", Inputs.model_validate(dict(fields))) == name("Engine")


def test_names_are_dns_labels_that_leave_room_for_a_suffix() -> None:
    for kind in ("Model", "Checkpoint", "Engine"):
        assert len(name(kind)) <= 31


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.randoms())
def test_canonical_json_does_not_depend_on_order(value: Any, source: random.Random) -> None:
    def shuffled(part: Any) -> Any:
        if isinstance(part, dict):
            items = [(k, shuffled(v)) for k, v in part.items()]
            source.shuffle(items)
            return dict(items)
        return [shuffled(v) for v in part] if isinstance(part, list) else part

    assert canonical_json(shuffled(value)) == canonical_json(value)
