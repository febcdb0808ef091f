"""`kubectl apply --dry-run=server` says no, and says why, to everything that the schema and its rules can know."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.api.kubectl import Kubectl
from tests.integration.api.objects import (
    ABSENT,
    CHECKPOINT,
    CLAIM_ENGINE,
    CLAIM_MODEL,
    ENGINE,
    FULL_ENGINE,
    GOOD,
    MODEL,
    S3_ENGINE,
    S3_MODEL,
    SELECTING_ENGINE,
    Obj,
    changed,
)
from trtllm_operator.api import crd
from trtllm_operator.api.engineartifact import EngineArtifactSpec
from trtllm_operator.api.llmengine import LLMEngineSpec
from trtllm_operator.api.markers import Object

pytestmark = pytest.mark.apiserver


@dataclass(frozen=True)
class Bad:
    """An object spoiled in one field, and what must be said of it."""

    base: Obj
    path: str
    value: object
    said: str
    where: str | None = None
    """The field that is named, when it is not the spoiled one."""

    def __str__(self) -> str:
        value = "absent" if self.value is ABSENT else str(self.value)
        return f"{self.base['kind']} {self.path}={value[:40]}"


def bad(path: str, value: object, said: str, *, base: Obj = FULL_ENGINE, where: str | None = None) -> Bad:
    return Bad(base, path, value, said, where)


TARGET = "spec.targets.0"
HUB = "spec.model.huggingFace"
CLAIM = "spec.model.persistentVolumeClaim"
REQUESTS, LIMITS = "spec.build.resources.requests", "spec.build.resources.limits"

GPU_ONE_OF = "give exactly one of product, architecture, computeCapability and any"

BAD_ENGINES = [
    # What is not there, what is missing, what is of the wrong type.
    bad("spec.budget", {}, 'unknown field "spec.budget"', where=""),
    bad("spec.budgets.maxBatchsize", 8, 'unknown field "spec.budgets.maxBatchsize"', where=""),
    bad("spec.targets.0.gpu.count", 8, 'unknown field "spec.targets[0].gpu.count"', where=""),
    bad("spec.model", ABSENT, "Required value"),
    bad("spec.release", ABSENT, "Required value"),
    bad("spec.budgets", ABSENT, "Required value"),
    bad("spec.budgets.maxNumTokens", ABSENT, "Required value"),
    bad("spec.storage", ABSENT, "Required value"),
    bad("spec.targets", ABSENT, "Required value"),
    bad("spec.targets.0.gpu", ABSENT, "Required value"),
    bad("spec.budgets.maxSeqLen", "2048", 'must be of type integer: "string"'),
    bad("spec.budgets.maxSeqLen", 2048.5, 'must be of type int32: "float64"'),
    bad("spec.release", 1.2, 'must be of type string: "number"'),
    # Out of range.
    bad("spec.budgets.maxInputLen", -1, "should be greater than or equal to 1"),
    bad("spec.budgets.maxSeqLen", -2048, "should be greater than or equal to 1"),
    bad("spec.budgets.maxBatchSize", 0, "should be greater than or equal to 1"),
    bad("spec.budgets.maxNumTokens", 10**12, "should be less than or equal to 16777216"),
    bad("spec.budgets.maxBeamWidth", 257, "should be less than or equal to 256"),
    bad("spec.parallelism.tensor", 0, "should be greater than or equal to 1"),
    bad("spec.parallelism.tensor", 65, "should be less than or equal to 64"),
    # What a target says otherwise, alone and together with the spec.
    bad(
        "spec.targets.1.budgets",
        {"maxSeqLen": 2047},
        "a target's maxInputLen must be less than its maxSeqLen",
        where="spec.targets",
    ),
    bad(
        "spec.targets.1.budgets",
        {"maxInputLen": 2048},
        "a target's maxInputLen must be less than its maxSeqLen",
        where="spec.targets",
    ),
    bad(
        "spec.targets.1.parallelism",
        {"pipeline": 16},
        "a target's tensor x pipeline must be at most 64",
        where="spec.targets",
    ),
    bad("spec.targets.1.parallelism.tensor", 0, "should be greater than or equal to 1"),
    bad("spec.targets.1.precision", {"quantization": "fp9"}, "Unsupported value"),
    bad("spec.targets.1.serving.replicas", 2, 'unknown field "spec.targets[1].serving.replicas"', where=""),
    bad(f"{TARGET}.replicas", -1, "should be greater than or equal to 0"),
    bad("spec.serving.kvCacheFreeGpuMemoryPercent", 100, "should be less than or equal to 99"),
    bad("spec.serving.maxQueueSize", -1, "should be greater than or equal to 0"),
    bad("spec.build.timeoutSeconds", 5, "should be greater than or equal to 60"),
    bad("spec.build.maxAttempts", 0, "should be greater than or equal to 1"),
    bad("spec.targets", [], "should have at least 1 items"),
    bad("spec.precision.quantization", "fp7", 'Unsupported value: "fp7": supported values: "none", "fp8"'),
    bad("spec.precision.dtype", "float8", "Unsupported value"),
    bad("spec.precision.kvCache", "fp4", "Unsupported value"),
    # Malformed words.
    bad("spec.release", "latest", "should match"),
    bad(f"{HUB}.repo", "a/b/c", "should match"),
    bad(f"{HUB}.repo", "https://huggingface.co/a/b", "should match"),
    bad(f"{HUB}.revision", "-x", "should match"),
    bad(f"{HUB}.tokenSecretRef.name", "Not_A_Name", "should match"),
    bad(f"{HUB}.tokenSecretRef.key", "../token", "should match"),
    bad(f"{CLAIM}.path", "/absolute", "should match", base=CLAIM_ENGINE),
    bad(f"{CLAIM}.claimName", "Not_A_Name", "should match", base=CLAIM_ENGINE),
    bad("spec.storage.persistentVolumeClaim.claimName", "", "should be at least 1 chars long"),
    bad(f"{TARGET}.name", "H100", "should match"),
    bad(f"{TARGET}.name", "a-name-of-17-char", "Too long: may not be more than 16"),
    bad(f"{TARGET}.gpu.product", "NVIDIA H100", "should match"),
    bad("spec.targets.1.name", "h100", 'Duplicate value: {"name":"h100"}', where="spec.targets[1]"),
    bad("spec.build.nodeSelector.pool", "not a value", "should match"),
    bad("spec.build.tolerations.0.effect", "NoSleep", "Unsupported value"),
    bad("spec.build.resources.requests.memory", "lots", "must be a quantity", where=REQUESTS + "[memory]"),
    # The rules.
    bad("metadata.name", "a" * 37, "the name must be at most 36 characters"),
    bad("metadata.name", "1-model", "the name must begin with a letter"),
    bad("metadata.name", "llama-3.1", "the name must begin with a letter"),
    bad(f"{HUB}.repo", "a..b/c", "the hub allows neither '..' nor '--'"),
    bad(f"{HUB}.repo", "a/b--c", "the hub allows neither '..' nor '--'"),
    bad(f"{HUB}.revision", "refs/../main", "a revision has no '..'"),
    bad(f"{CLAIM}.path", "llama/../../etc", "path must not contain '..'", base=CLAIM_ENGINE),
    bad("spec.model", {}, "give exactly one of huggingFace, persistentVolumeClaim and s3"),
    bad(CLAIM, {"claimName": "c", "path": "p"}, "give exactly one of huggingFace, per", where="spec.model"),
    bad("spec.model.s3", {"bucket": "models"}, "give exactly one of huggingFace, per", where="spec.model"),
    bad(f"{TARGET}.gpu.product", ABSENT, GPU_ONE_OF, where="spec.targets[0].gpu"),
    bad(f"{TARGET}.gpu.any", {}, GPU_ONE_OF, where="spec.targets[0].gpu"),
    bad(f"{TARGET}.gpu.architecture", "hopper", GPU_ONE_OF, where="spec.targets[0].gpu"),
    bad(f"{TARGET}.gpu.computeCapability", "9.0", GPU_ONE_OF, where="spec.targets[0].gpu"),
    bad(f"{TARGET}.gpu", {"any": {"product": "x"}}, 'unknown field "spec.targets[0].gpu.any.product"', where=""),
    bad(f"{TARGET}.gpu", {"architecture": "lovelace"}, "Unsupported value", where="spec.targets[0].gpu.architecture"),
    bad(f"{TARGET}.gpu", {"computeCapability": "sm90"}, "should match", where="spec.targets[0].gpu.computeCapability"),
    bad(
        f"{TARGET}.gpu",
        {"computeCapability": 9.0},
        "must be of type string",
        where="spec.targets[0].gpu.computeCapability",
    ),
    bad("metadata.name", "a" * 32, "together be at most 36 characters", base=SELECTING_ENGINE),
    bad(
        "spec.targets.1.name",
        "gpu-h100",
        "no target's name may begin with",
        base=SELECTING_ENGINE,
        where="spec.targets",
    ),
    bad("spec.storage", {}, "name exactly one store: persistentVolumeClaim or s3"),
    bad(
        "spec.storage.persistentVolumeClaim",
        {"claimName": "engines"},
        "name exactly one store",
        base=S3_ENGINE,
        where="spec.storage",
    ),
    bad("spec.storage.s3.bucket", ABSENT, "Required value", base=S3_ENGINE),
    bad("spec.storage.s3.bucket", "My_Bucket", "should match", base=S3_ENGINE),
    bad("spec.storage.s3.prefix", "engines/", "should match", base=S3_ENGINE),
    bad("spec.storage.s3.prefix", "a/../b", "prefix must contain neither '..' nor '//'", base=S3_ENGINE),
    bad("spec.storage.s3.endpoint", "minio:9000", "should match", base=S3_ENGINE),
    bad("spec.storage.s3.endpoint", "https://minio/path", "should match", base=S3_ENGINE),
    bad("spec.storage.s3.credentialsSecretRef", ABSENT, "Required value", base=S3_ENGINE),
    bad("spec.storage.s3.secretKey", "x", 'unknown field "spec.storage.s3.secretKey"', base=S3_ENGINE, where=""),
    bad("spec.budgets.maxInputLen", 2048, "maxInputLen must be less than maxSeqLen"),
    bad("spec.budgets.maxSeqLen", 1024, "maxInputLen must be less than", where="spec.budgets.maxInputLen"),
    bad("spec.parallelism.pipeline", 9, "tensor x pipeline must be at most 64", where="spec.parallelism"),
    bad("spec.parallelism", {"tensor": 64, "pipeline": 2}, "tensor x pipeline must be at most 64"),
    bad("spec.build.nodeSelector.not a key", "x", "a key must be a label's name", where="spec.build.nodeSelector"),
    bad("spec.serving.tolerations.0.value", "x", "operator Exists takes no value", where="spec.serving.tolerations[0]"),
    bad(
        "spec.serving.tolerations.1.key", ABSENT, "Equal (the default) needs a key", where="spec.serving.tolerations[1]"
    ),
    bad("spec.build.tolerations.0.effect", ABSENT, "tolerationSeconds needs effect", where="spec.build.tolerations[0]"),
    bad("spec.build.resources.limits.cpu", "-1", "must be a quantity that is not negative", where=LIMITS + "[cpu]"),
    bad("spec.build.resources.limits.cpu", -1, "must be a quantity that is not negative", where=LIMITS + "[cpu]"),
    bad("spec.build.resources.limits", {"nvidia.com/gpu": 1}, "only cpu, memory and ephemeral-storage may be set"),
    bad(
        "spec.build.resources.limits.cpu", "999m", "no request may be more than the limit", where="spec.build.resources"
    ),
    bad("spec.serving.resources.requests.memory", "513Mi", "no request may be", where="spec.serving.resources"),
]

BAD_ENGINES += [
    bad("spec.front.perCaller", {"header": "X"}, "give requestsPerMinute, tokensPerMinute, or both"),
    bad("spec.front.replicas", 65, "should be less than or equal to 64"),
    bad("spec.front.guard.url", "ftp://x", "should match"),
    bad("spec.front.modelNames", ["a b"], "should match"),
    bad("spec.targets.0.weight", 0, "should be greater than or equal to 1"),
]

BAD_ARTIFACTS = [
    bad("spec.inputs.images", "x", 'unknown field "spec.inputs.images"', base=ENGINE, where=""),
    bad("spec.type", "Plan", "Unsupported value", base=MODEL),
    bad("spec.inputs.keySchema", 2, "Unsupported value", base=MODEL),
    bad("spec.inputs.storage", ABSENT, "Required value", base=MODEL),
    bad("spec.inputs.model.huggingFace.commit", "main", "should match", base=MODEL),
    bad("spec.inputs.gpu.computeCapability", "9", "should match", base=ENGINE),
    bad("metadata.name", "engine-0123", "named after its type and 20 hexadecimal digits", base=ENGINE),
    bad("metadata.name", MODEL["metadata"]["name"], "named after its type and 20 hexadecimal digits", base=ENGINE),
    bad("spec.inputs.model", {}, "give exactly one of huggingFace, persistentVolumeClaim and s3", base=MODEL),
    bad("spec.inputs.storage", {}, "give exactly one of persistentVolumeClaim and s3", base=MODEL),
    bad("spec.inputs.model.s3.digest", ABSENT, "Required value", base=S3_MODEL),
    bad(
        "spec.inputs.storage.s3.credentialsSecretRef",
        {"name": "x"},
        'unknown field "spec.inputs.storage.s3.credentialsSecretRef"',
        base=S3_MODEL,
        where="",
    ),
    bad("spec.inputs.model", ABSENT, "a Model has inputs.model", base=CLAIM_MODEL, where="spec"),
    bad("spec.inputs.parent", ABSENT, "a Checkpoint or Engine has inputs.parent", base=CHECKPOINT, where="spec"),
    bad("spec.inputs.gpu", ABSENT, "an Engine has inputs.gpu", base=ENGINE, where="spec"),
    bad("spec.inputs.gpu", ENGINE["spec"]["inputs"]["gpu"], "an Engine has inputs.gpu", base=CHECKPOINT, where="spec"),
    bad("spec.inputs.image", ABSENT, "has inputs.image and inputs.command", base=CHECKPOINT, where="spec"),
    bad("spec.inputs.command", ABSENT, "has inputs.image and inputs.command", base=ENGINE, where="spec"),
]

BAD_CHANGES = [
    bad("spec.type", "Engine", "type is immutable", base=CHECKPOINT),
    bad("spec.inputs.image", "another@sha256:" + "cd" * 32, "inputs are immutable", base=ENGINE, where="spec.inputs"),
    bad("spec.expected.tensorParallel", 4, "expected is immutable", base=ENGINE, where="spec.expected"),
    bad("spec.inputs.command.2", "elsewhere", "inputs are immutable", base=ENGINE, where="spec.inputs"),
    bad("spec.inputs.gpu.product", "NVIDIA-H200", "inputs are immutable", base=ENGINE, where="spec.inputs"),
    bad(
        "spec.inputs.storage.persistentVolumeClaim.claimName",
        "b",
        "inputs are immutable",
        base=MODEL,
        where="spec.inputs",
    ),
]

GOOD_CHANGES = [
    bad("spec.policy.maxAttempts", 9, "", base=ENGINE),
    bad("spec.policy", ABSENT, "", base=ENGINE),
    bad("metadata.annotations", {"llmengine.dev/retry": "1"}, "", base=ENGINE),
]


def field_in_message(case: Bad) -> str:
    """The path as the API server writes it: `spec.targets[0].name`."""
    if case.where is not None:
        return case.where
    parts = [f"[{p}]" if p.isdigit() else f".{p}" for p in case.path.split(".")]
    return "".join(parts).removeprefix(".")


@pytest.mark.parametrize("name", GOOD)
def test_a_good_object_is_accepted(kubectl: Kubectl, name: str) -> None:
    kubectl.ok("apply", "--dry-run=server", "-f", "-", given=GOOD[name])


@pytest.mark.parametrize("name", GOOD)
def test_what_the_models_write_is_accepted_and_loses_nothing(kubectl: Kubectl, name: str) -> None:
    obj = GOOD[name]
    model: type[Object] = LLMEngineSpec if obj["kind"] == "LLMEngine" else EngineArtifactSpec
    written = model.model_validate(obj["spec"]).dump()
    assert dict(paths_and_values(obj["spec"])).items() <= dict(paths_and_values(written)).items()
    kubectl.ok("apply", "--dry-run=server", "-f", "-", given={**obj, "spec": written})


@pytest.mark.parametrize("case", [*BAD_ENGINES, *BAD_ARTIFACTS], ids=str)
def test_a_bad_object_is_refused_with_the_reason_and_the_field(kubectl: Kubectl, case: Bad) -> None:
    said = kubectl.refused("apply", "--dry-run=server", "-f", "-", given=changed(case.base, case.path, case.value))
    assert case.said in said
    assert field_in_message(case) in said, "the message does not name the field"


@pytest.mark.parametrize("case", BAD_CHANGES, ids=str)
def test_what_an_artifact_is_made_from_never_changes(kubectl: Kubectl, case: Bad) -> None:
    kubectl.ok("create", "-f", "-", given=case.base)
    said = kubectl.refused("replace", "-f", "-", given=changed(case.base, case.path, case.value))
    assert case.said in said
    assert field_in_message(case) in said


@pytest.mark.parametrize("case", GOOD_CHANGES, ids=str)
def test_how_an_artifact_is_made_may_change(kubectl: Kubectl, case: Bad) -> None:
    kubectl.ok("create", "-f", "-", given=case.base)
    kubectl.ok("replace", "-f", "-", given=changed(case.base, case.path, case.value))


def test_every_mistake_is_said_at_once(kubectl: Kubectl) -> None:
    engine = copy.deepcopy(FULL_ENGINE)
    engine["spec"]["budgets"]["maxInputLen"] = 4096
    engine["spec"]["parallelism"] = {"tensor": 64, "pipeline": 64}
    engine["spec"]["model"] = {}
    said = kubectl.refused("apply", "--dry-run=server", "-f", "-", given=engine)
    for message in ("maxInputLen must be less", "tensor x pipeline must be", "give exactly one of"):
        assert message in said


def test_every_rule_has_an_object_that_breaks_it() -> None:
    tried = {case.said for case in [*BAD_ENGINES, *BAD_ARTIFACTS, *BAD_CHANGES]}
    rules = {rule["message"] for made in crd.crds().values() for rule in rules_of(made)}
    assert len(rules) > 15
    assert {message for message in rules if not any(said in message for said in tried)} == set()


@pytest.mark.parametrize("kind", ["LLMEngine", "EngineArtifact"])
def test_the_good_objects_say_everything_that_can_be_said(kind: str) -> None:
    """So every rule has been evaluated on an object that keeps it."""
    (made,) = (c for c in crd.crds().values() if c["spec"]["names"]["kind"] == kind)
    possible = set(fields_of(made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec"))
    said = {path for obj in GOOD.values() if obj["kind"] == kind for path in paths_of(obj["spec"], "spec")}
    assert possible - said == set()


def rules_of(node: Any) -> Iterator[dict[str, Any]]:
    children: list[Any] = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
    if isinstance(node, dict):
        yield from node.get("x-kubernetes-validations", [])
    for child in children:
        yield from rules_of(child)


def fields_of(schema: Obj, path: str) -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from fields_of(child, f"{path}.{name}")
    if "items" in schema:
        yield from fields_of(schema["items"], path)


def paths_and_values(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every scalar with its path; numbers and their words are the same, as in quantities."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    if isinstance(value, str | int):
        yield path, str(value)
    for name, child in children:
        yield from paths_and_values(child, f"{path}.{name}")


def paths_of(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, child in value.items():
            yield f"{path}.{name}"
            yield from paths_of(child, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for child in value:
            yield from paths_of(child, path)
