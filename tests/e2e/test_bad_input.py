"""Every mistake ends in a condition that says what is wrong, with numbers and what would fix it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.kubectl import Kubectl, condition, wait_for
from demo.stack import Stack, install_operator

from .smollm2 import A100, H100, answer, delete, get, llmengine, wait_condition, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def nothing_left(namespace: Kubectl) -> Iterator[None]:
    yield
    for engine in namespace.items("llmengines"):
        if engine["metadata"]["name"] != "smollm2":
            delete(namespace, engine["metadata"]["name"])


def gpu_jobs(kubectl: Kubectl) -> list[str]:
    return [j["metadata"]["name"] for j in kubectl.items("jobs") if j["metadata"]["name"].startswith("engine-")]


def test_tensor_parallelism_that_does_not_divide_the_heads(namespace: Kubectl) -> None:
    namespace.apply(llmengine("tp2", parallelism={"tensor": 2}))
    validated = wait_condition(namespace, "Validated", "False", "tp2")
    for word in ("9", "2", "1, 3"):
        assert word in validated["message"], "heads, the value given, and values that divide them"
    assert condition(get(namespace, "tp2"), "Stalled")["status"] == "True"
    assert gpu_jobs(namespace) == []


def test_a_precision_the_gpu_lacks(namespace: Kubectl) -> None:
    namespace.apply(llmengine("fp8", precision={"quantization": "fp8"}, targets=[A100, H100]))
    validated = wait_condition(namespace, "Validated", "False", "fp8")
    assert "a100" in validated["message"]
    assert "8.0" in validated["message"], "what the GPU has"
    assert "8.9" in validated["message"], "what FP8 needs"
    assert gpu_jobs(namespace) == []


def test_a_wrong_token(namespace: Kubectl) -> None:
    namespace.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong"}, "stringData": {"token": "hf_wrong"}}
    )
    wrong = llmengine("token")
    wrong["spec"]["model"]["huggingFace"]["tokenSecretRef"]["name"] = "wrong"
    namespace.apply(wrong)
    stalled = wait_condition(namespace, "Stalled", "True", "token")
    assert "401" in stalled["message"]
    assert "token" in stalled["message"].lower()
    assert "hf_wrong" not in stalled["message"], "a secret is never shown"


def test_a_missing_token_secret_is_named(namespace: Kubectl) -> None:
    wrong = llmengine("nosecret")
    wrong["spec"]["model"]["huggingFace"]["tokenSecretRef"]["name"] = "not-there"
    namespace.apply(wrong)

    def named() -> str | None:
        ready = condition(get(namespace, "nosecret"), "Ready")
        return None if "not-there" in ready.get("message", "") else f"Ready says {ready}"

    wait_for("the Secret that is missing, by name", named, limit_seconds=60)


def test_an_image_that_cannot_be_pulled(namespace: Kubectl, stack: Stack) -> None:
    nowhere = "docker.io/llmengine/nowhere@sha256:" + "0" * 64
    values = {"1.2.1": f"{_toolchain(stack)}", "1.0.0": nowhere}
    install_operator(stack, toolchainImages=values)
    try:
        namespace.apply(llmengine("image", release="1.0.0"))
        stalled = wait_condition(namespace, "Stalled", "True", "image", reason="ImagePullFailed")
        assert nowhere in stalled["message"]
    finally:
        delete(namespace, "image")
        install_operator(stack)


def _toolchain(stack: Stack) -> str:
    from demo.stack import reference

    return reference(stack.images["toolchain-standin"])


def test_a_build_killed_for_memory_by_a_real_limit_and_what_served_goes_on(namespace: Kubectl) -> None:
    namespace.apply(llmengine())
    wait_ready(namespace)
    small = {"limits": {"memory": "96Mi"}, "requests": {"memory": "96Mi"}}
    budgets = {"maxBatchSize": 4, "maxInputLen": 512, "maxSeqLen": 1024, "maxNumTokens": 1024}
    namespace.apply(llmengine(build={"resources": small}, budgets=budgets))
    stalled = wait_condition(namespace, "Stalled", "True", reason="HostMemoryExhausted")
    assert "96Mi" in stalled["message"]
    assert "spec.build.resources" in stalled["message"], "what to change"
    assert condition(get(namespace), "Available")["status"] == "True"
    assert "Paris" in answer(namespace)
    enough = {"limits": {"memory": "4Gi"}, "requests": {"memory": "1Gi"}}
    namespace.apply(llmengine(build={"resources": enough}, budgets=budgets))
    wait_ready(namespace)
    delete(namespace)


def test_a_gpu_that_no_node_has_is_waiting(namespace: Kubectl) -> None:
    h200 = {"name": "h200", "gpu": {"product": "NVIDIA-H200"}}
    namespace.apply(llmengine("h200", targets=[h200]))
    ready = wait_condition(namespace, "Ready", "False", "h200", reason="NoMatchingNode")
    for word in ("NVIDIA-H200", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"):
        assert word in ready["message"]
    assert condition(get(namespace, "h200"), "Stalled") == {}
