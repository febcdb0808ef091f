"""From the spec to the artifacts: what is part of a key, and the policy beside it."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.api.engineartifact import GpuClass, Policy
from trtllm_operator.api.llmengine import LLMEngineSpec
from trtllm_operator.artifacts.chain import chain, policy
from trtllm_operator.catalog import load_catalog
from trtllm_operator.objects import Artifact
from trtllm_operator.planning import read_config

from ..planning.build import SMOLLM2

CATALOG = load_catalog()
H100 = GpuClass(product="NVIDIA-H100-80GB-HBM3", compute_capability="9.0")
GIB = 1 << 30
NUMBERS = {
    "modelBytes": 140 * GIB,
    "checkpointBytes": 70 * GIB,
    "engineBytes": 70 * GIB,
    "gpuMemoryBytes": 80 * GIB,
    "checkpointHostMemoryBytes": 180 * GIB,
    "engineHostMemoryBytes": 100 * GIB,
}


def spec(**changes: Any) -> LLMEngineSpec:
    base = {
        "model": {"huggingFace": {"repo": "org/model"}},
        "release": "1.2.1",
        "budgets": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048},
        "targets": [{"name": "h100", "gpu": {"product": H100.product}}],
        "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
    }
    return LLMEngineSpec.model_validate({**base, **changes})


def made(*, texts_digest: str | None = None, **changes: Any) -> dict[str, Artifact]:
    artifacts = chain(
        spec(**changes),
        revision="c" * 40,
        facts=read_config(SMOLLM2, None),
        release=CATALOG.release("1.2.1"),
        image="registry.example/tritonserver@sha256:" + "0" * 64,
        gpu=H100,
        texts_digest=texts_digest,
    )
    return {a.spec.type: a for a in artifacts}


def policies(**changes: Any) -> dict[str, Policy]:
    return {t: policy(spec(**changes), a.spec, NUMBERS, H100) for t, a in made(**changes).items()}


def names(**changes: Any) -> list[str]:
    return [a.name for a in made(**changes).values()]


def test_golden_names() -> None:
    """A change here rebuilds every engine of every cluster: raise Inputs.keySchema and say why."""
    assert names() == [
        "model-511a6e45ae7fe7b52aee",
        "checkpoint-622c0022a005d2e8a2be",
        "engine-15b4d998982bce91ed52",
    ]


@pytest.mark.parametrize(
    "build",
    [
        {"workers": 4},
        {"queueName": "gpus"},
        {"priorityClassName": "low"},
        {"calibrationGpus": 2},
        {"resources": {"limits": {"memory": "1Gi"}}},
        {"timeoutSeconds": 60},
        {"nodeSelector": {"pool": "builds"}},
    ],
)
def test_how_a_build_runs_is_no_part_of_a_key(build: dict[str, Any]) -> None:
    assert names(build=build) == names()


def test_extra_flags_are_part_of_the_engine_s_key_alone_and_their_order_is_not() -> None:
    flags = [{"name": "--reduce_fusion", "value": "enable"}, {"name": "--gemm_plugin", "value": "disable"}]
    with_flags = names(build={"extraFlags": flags})
    assert [a == b for a, b in zip(with_flags, names(), strict=True)] == [True, True, False]
    assert names(build={"extraFlags": flags[::-1]}) == with_flags


def test_calibration_is_part_of_the_key_of_what_it_makes_and_of_nothing_else() -> None:
    texts = {"dataset": {"persistentVolumeClaim": {"claimName": "texts", "path": "chat"}}, "samples": 64}
    assert names(precision={"calibration": texts}) == names()
    fp8, own = {"quantization": "fp8"}, {"quantization": "fp8", "calibration": texts}
    assert names(precision=fp8)[1] != names(precision=own)[1]
    source = made(precision=own)["Checkpoint"].spec.inputs.calibration
    assert source is not None
    assert (source.claim_name, source.path, source.digest) == ("texts", "chat", None)


def test_which_texts_they_are_is_part_of_the_key_and_a_path_without_a_digest_keeps_its_own() -> None:
    """A change of this name rebuilds what was built before texts were inspected."""
    texts = {"dataset": {"persistentVolumeClaim": {"claimName": "texts", "path": "chat"}}}
    own = {"quantization": "fp8", "calibration": texts}
    assert names(precision=own)[1] == "checkpoint-30b5c74d6f900adbbd79"
    inspected = [made(texts_digest=d * 64, precision=own) for d in "ab"]
    assert len({names(precision=own)[1], *(m["Checkpoint"].name for m in inspected)}) == 3
    assert len({names(precision=own)[2], *(m["Engine"].name for m in inspected)}) == 3
    assert {m["Model"].name for m in inspected} == {names()[0]}
    assert inspected[0]["Checkpoint"].spec.inputs.dump()["calibration"]["digest"] == "a" * 64


def test_the_disk_of_a_calibration_holds_its_texts() -> None:
    texts = {"dataset": {"persistentVolumeClaim": {"claimName": "texts", "path": "chat"}}}
    planned = []
    for precision in ({"quantization": "fp8"}, {"quantization": "fp8", "calibration": texts}):
        checkpoint = made(precision=precision)["Checkpoint"].spec
        asked = policy(spec(precision=precision), checkpoint, {**NUMBERS, "calibrationBytes": 10 * GIB}, H100)
        assert asked.planned is not None
        planned.append(asked.planned.ephemeral_storage_bytes or 0)
    assert planned[1] - planned[0] == 11 * GIB, "and a tenth, as of all that is planned"


def test_a_calibration_gets_the_gpus_that_hold_the_model_and_half_as_much_again() -> None:
    """140 GB of weights: more than 210 GB at the peak, at least 4 x 80 GB (examples/llama/README.md); 2 for int4_wo."""
    fp8 = policies(precision={"quantization": "fp8"})["Checkpoint"]
    assert fp8.gpus == 3, "210 GiB of 80 GiB GPUs, of each of which a tenth is not to be had"
    assert fp8.gpu_product == H100.product
    assert policies(precision={"quantization": "fp8"}, build={"calibrationGpus": 4})["Checkpoint"].gpus == 4
    assert policies(precision={"quantization": "int8_wo"})["Checkpoint"].gpus == 0


@pytest.mark.parametrize(("workers", "gpus"), [(1, 1), (2, 2), (8, 3)])
def test_workers_take_a_gpu_and_memory_each_and_are_no_more_than_the_ranks(workers: int, gpus: int) -> None:
    engine = policies(parallelism={"tensor": 3}, build={"workers": workers})["Engine"]
    assert engine.gpus == gpus
    assert engine.planned is not None
    assert engine.planned.host_memory_bytes == gpus * 100 * GIB + GIB
    assert engine.planned.shared_memory_bytes == GIB


def test_c97_the_disk_of_a_step_is_planned_from_what_it_makes() -> None:
    checkpoint = policies()["Checkpoint"].planned
    assert checkpoint is not None
    assert checkpoint.ephemeral_storage_bytes == 77 * GIB + (256 << 20), "source and engine lie in the store"


def test_deadlines_follow_from_sizes() -> None:
    seconds = {t: p.timeout_seconds for t, p in policies().items()}
    assert seconds["Model"] == 1800 + 140 * GIB // 20_000_000
    assert seconds["Checkpoint"] > seconds["Model"]
    assert policies(build={"timeoutSeconds": 77})["Engine"].timeout_seconds == 77
    calibrated = policies(precision={"quantization": "fp8"})["Checkpoint"].timeout_seconds
    assert calibrated == seconds["Checkpoint"] + 7200


def test_the_user_s_resources_are_kept_apart_from_what_was_planned() -> None:
    engine = policies(build={"resources": {"limits": {"memory": "4Gi"}}})["Engine"]
    assert engine.resources is not None
    assert engine.resources.limits == {"memory": "4Gi"}
    assert engine.planned is not None
    assert engine.planned.host_memory_bytes == 100 * GIB + (64 << 20)
