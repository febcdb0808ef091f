"""The endpoint's objects: restricted Pods that may read two kinds, and what the spec says reaches the process."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.api.common import StoreLocation
from trtllm_operator.api.front import Front
from trtllm_operator.front.settings import ENVIRONMENT, read_settings
from trtllm_operator.operator_config import OperatorConfig
from trtllm_operator.serving.front_objects import endpoint_url, front_objects
from trtllm_operator.storage import Access

OWNER = {
    "kind": "LLMEngine",
    "metadata": {"name": "smol", "namespace": "team", "uid": "11111111-2222-3333-4444-555555555555"},
}
CLAIM = Access(StoreLocation.model_validate({"persistentVolumeClaim": {"claimName": "engines"}}))
BUCKET = Access(
    StoreLocation.model_validate({"s3": {"bucket": "engines", "prefix": "x", "endpoint": "https://s3.example"}}), "keys"
)
CONFIG = OperatorConfig(operator_image="registry/operator@sha256:" + "0" * 64)


def made(store: Access = CLAIM, models: tuple[str, ...] = ("model-1",), **front: Any) -> dict[str, dict[str, Any]]:
    objects = front_objects(OWNER, Front.model_validate(front), models, store, CONFIG)
    assert len({o["kind"] for o in objects}) == len(objects)
    return {o["kind"]: o for o in objects}


def pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return found


def test_the_service_has_the_llmengine_s_name_and_selects_the_front_alone() -> None:
    objects = made()
    assert objects["Service"]["metadata"]["name"] == "smol"
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"].items() <= labels.items()
    assert "llmengine.dev/revision" not in labels
    assert endpoint_url(OWNER) == "http://smol.team.svc/v1"


def test_zero_replicas_and_no_model_make_nothing() -> None:
    assert made(replicas=0) == {}
    assert made(models=()) == {}


def test_two_replicas_have_a_budget() -> None:
    assert "PodDisruptionBudget" not in made()
    assert made(replicas=2)["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_it_may_read_what_the_one_cluster_role_says_and_nothing_else() -> None:
    objects = made()
    binding = objects["RoleBinding"]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", CONFIG.front_cluster_role)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "smol-front", "namespace": "team"}]
    assert pod(objects)["serviceAccountName"] == "smol-front"
    assert objects["ServiceAccount"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("store", [CLAIM, BUCKET])
def test_its_pods_are_restricted_and_read_the_store_only(store: Access) -> None:
    spec = pod(made(store))
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert not any("nvidia.com" in name for name in container["resources"].get("limits", {}))
        mounts = {m["name"]: m for m in container["volumeMounts"]}
        assert mounts.get("store", {}).get("readOnly", True) is True
    assert "store-credentials" not in {m["name"] for m in spec["containers"][0]["volumeMounts"]}


def test_a_bucket_s_tokenizers_are_brought_before_it_starts() -> None:
    (init,) = pod(made(BUCKET, models=("model-2", "model-1")))["initContainers"]
    assert '"models": ["model-1", "model-2"]' in init["command"][-1]
    assert "initContainers" not in pod(made(CLAIM))


def test_what_the_spec_says_reaches_the_process() -> None:
    objects = made(
        modelNames=["gpt-x", "smol"],
        strictMaxTokens=True,
        maxConcurrentRequests=7,
        maxQueuedTokens=5,
        queueTimeoutSeconds=3,
        perCaller={"requestsPerMinute": 9, "tokensPerMinute": 11, "header": "X-Team"},
        apiKeysSecretRef={"name": "keys"},
        guard={"url": "https://guard.example/check", "timeoutSeconds": 4, "failurePolicy": "Ignore"},
        requestLog=True,
    )
    environment = {e["name"]: e["value"] for e in pod(objects)["containers"][0]["env"]}
    settings = read_settings(environment[ENVIRONMENT])
    assert (settings.namespace, settings.name) == ("team", "smol")
    assert settings.model_names == ("gpt-x", "smol")
    assert settings.strict_max_tokens
    assert settings.request_log
    assert settings.caller_header == "X-Team"
    assert settings.limits.max_concurrent_requests == 7
    assert settings.limits.max_queued_tokens == 5
    assert settings.limits.queue_timeout_seconds == 3
    assert (settings.limits.requests_per_minute, settings.limits.tokens_per_minute) == (9, 11)
    assert settings.guard is not None
    assert (settings.guard.timeout_seconds, settings.guard.fail_open) == (4, True)
    mounted = {m["name"]: m["mountPath"] for m in pod(objects)["containers"][0]["volumeMounts"]}
    assert mounted["api-keys"] == str(settings.api_keys_directory)


def test_by_default_the_model_is_called_like_the_llmengine() -> None:
    environment = {e["name"]: e["value"] for e in pod(made())["containers"][0]["env"]}
    settings = read_settings(environment[ENVIRONMENT])
    assert settings.model_names == ("smol",)
    assert settings.limits.queue_timeout_seconds == Front().queue_timeout_seconds
    assert settings.limits.max_queued_tokens == Front().max_queued_tokens
