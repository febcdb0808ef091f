"""The CRDs as the API server takes them, and the resources as kubectl shows them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from testbed.cluster.apiserver import ApiServer
from tests.integration.api.kubectl import Kubectl
from tests.integration.api.objects import ENGINE, FULL_ENGINE, GOOD, MINIMAL_ENGINE, Obj, changed

pytestmark = pytest.mark.apiserver

CRD_NAMES = ["llmengines.llmengine.dev", "engineartifacts.llmengine.dev"]
NOW = "2026-11-29T00:00:00Z"


def condition(type_: str, status: str, reason: str, message: str = "") -> Obj:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": NOW,
        "observedGeneration": 1,
    }


def write_status(kubectl: Kubectl, obj: Obj, status: Obj, *, manager: str = "operator") -> None:
    """As the operator writes it: server-side apply of the status alone."""
    given = {key: obj[key] for key in ("apiVersion", "kind")}
    given |= {"metadata": {"name": obj["metadata"]["name"]}, "status": status}
    kubectl.ok("apply", "--server-side", "--subresource=status", f"--field-manager={manager}", "-f", "-", given=given)


def table(text: str) -> list[dict[str, str]]:
    """Rows of kubectl's table by the heads of its columns, which three spaces or more keep apart."""
    head, *rows = text.splitlines()
    starts = [match.start() for match in re.finditer(r"(?<!\S )\S+( \S+)*", head)]
    bounds = list(zip(starts, [*starts[1:], None], strict=True))
    return [{head[a:b].strip(): row[a:b].strip() for a, b in bounds} for row in rows]


@pytest.mark.parametrize("name", CRD_NAMES)
def test_the_api_server_has_no_complaint(installed: ApiServer, name: str) -> None:
    found = Kubectl(installed.kubeconfig, "default").get("crd", name)
    conditions = {c["type"]: c for c in found["status"]["conditions"]}
    assert conditions["Established"]["status"] == "True"
    assert conditions["NamesAccepted"]["status"] == "True"
    assert "NonStructuralSchema" not in conditions, conditions["NonStructuralSchema"]["message"]


def test_what_is_stored_is_what_was_written(kubectl: Kubectl) -> None:
    """No default gets into the spec, or the difference shows as drift from Git for ever."""
    for obj in GOOD.values():
        kubectl.ok("create", "-f", "-", given=obj)
        assert kubectl.get(obj["kind"], obj["metadata"]["name"])["spec"] == obj["spec"]
        kubectl.ok("delete", obj["kind"], obj["metadata"]["name"], "--wait=false")


def kstatus(obj: Obj) -> str:
    """The rules of sigs.k8s.io/cli-utils/pkg/kstatus for objects of kinds it does not know, in their order."""
    meta, status = obj["metadata"], obj.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
    if "deletionTimestamp" in meta:
        return "Terminating"
    if status.get("observedGeneration", meta["generation"]) != meta["generation"]:
        return "InProgress"
    if conditions.get("Reconciling") == "True":
        return "InProgress"
    if conditions.get("Stalled") == "True":
        return "Failed"
    return "InProgress" if conditions.get("Ready") in ("False", "Unknown") else "Current"


@pytest.mark.parametrize("obj", [FULL_ENGINE, ENGINE], ids=["LLMEngine", "EngineArtifact"])
def test_tools_that_wait_see_progress_before_the_operator_has_looked(kubectl: Kubectl, obj: Obj) -> None:
    kubectl.ok("create", "-f", "-", given=obj)
    ref = (obj["kind"], obj["metadata"]["name"])
    assert kstatus(kubectl.get(*ref)) == "InProgress", "a new object is taken for finished"

    ready = {"observedGeneration": 1, "conditions": [condition("Ready", "True", "Serving")]}
    write_status(kubectl, obj, ready)
    assert kstatus(kubectl.get(*ref)) == "Current"

    change = {"spec": {"serving": {"maxQueueSize": 7}} if obj is FULL_ENGINE else {"policy": {"maxAttempts": 9}}}
    kubectl.ok("patch", *ref, "--type=merge", f"--patch={change}".replace("'", '"'))
    assert kstatus(kubectl.get(*ref)) == "InProgress", "a change the operator has not seen is taken for finished"


def test_the_status_is_written_apart_from_the_spec(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given={**MINIMAL_ENGINE, "status": {"reason": "Forged"}})
    assert kubectl.get("llmengine", "smollm2")["status"] == {"observedGeneration": -1}


def test_two_managers_own_their_own_targets(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    kubectl.ok(*apply, "--field-manager=platform", given=MINIMAL_ENGINE)
    more = changed(MINIMAL_ENGINE, "spec.targets", [{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}])
    kubectl.ok(*apply, "--field-manager=team", given=more)
    assert [t["name"] for t in kubectl.get("llmengine", "smollm2")["spec"]["targets"]] == ["a100", "h100"]


def test_facts_of_a_model_are_kept_whatever_they_are(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given=MINIMAL_ENGINE)
    facts: dict[str, Any] = {"hidden_size": 576, "tie_word_embeddings": True, "rope": {"factor": 8.5}, "dims": [1, 2]}
    model = {"sourceHash": "ab", "revision": "cd", "architecture": "LlamaForCausalLM", "facts": facts}
    write_status(kubectl, MINIMAL_ENGINE, {"observedGeneration": 1, "model": model})
    assert kubectl.get("llmengine", "smollm2")["status"]["model"]["facts"] == facts


def test_kubectl_get_shows_what_serves_and_why_not(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given=FULL_ENGINE)
    waiting = condition("Ready", "False", "WaitingForGpu", "no node has an NVIDIA-H200")
    found = {"precision": "fp8", "tensorParallel": 8, "reason": "WaitingForGpu"}
    write_status(kubectl, FULL_ENGINE, {"observedGeneration": 1, "conditions": [waiting], **found})
    (row,) = table(kubectl.ok("get", "llme"))
    assert row.pop("AGE")
    assert row == {
        "NAME": FULL_ENGINE["metadata"]["name"],
        "MODEL": "meta-llama/Llama-3.1-8B",
        "RELEASE": "1.2.1",
        "PRECISION": "fp8",
        "TP": "8",
        "READY": "False",
        "REASON": "WaitingForGpu",
    }
    (wide,) = table(kubectl.ok("get", "llme", "-o", "wide"))
    assert wide["MESSAGE"] == "no node has an NVIDIA-H200"
    assert (wide["MAX BATCH"], wide["MAX SEQ"], wide["KV CACHE"]) == ("8", "2048", "fp8")


def test_a_model_on_a_claim_is_shown_by_its_path(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given=GOOD["LLMEngine from a claim"])
    (row,) = table(kubectl.ok("get", "llme"))
    assert row["MODEL"] == "llama/3.1-8b"


def test_kubectl_get_shows_where_an_artifact_was_built(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given=ENGINE)
    status = {
        "observedGeneration": 1,
        "phase": "Ready",
        "reason": "Published",
        "attempt": 2,
        "progress": "4/4",
        "nodeName": "h100-0",
        "durationSeconds": 75,
        "sizeBytes": 538_000_000_000,
        "jobName": "engine-0123456789abcdef0123-2",
    }
    write_status(kubectl, ENGINE, status)
    (row,) = table(kubectl.ok("get", "eart"))
    assert row.pop("AGE")
    assert row == {
        "NAME": "engine-0123456789abcdef0123",
        "TYPE": "Engine",
        "PHASE": "Ready",
        "REASON": "Published",
        "NODE": "h100-0",
        "GPU": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
        "SECONDS": "75",
        "ATTEMPT": "2",
        "PROGRESS": "4/4",
    }
    (wide,) = table(kubectl.ok("get", "eart", "-o", "wide"))
    assert (wide["BYTES"], wide["PARENT"]) == ("538000000000", "checkpoint-0123456789abcdef0123")


def test_both_kinds_are_in_the_category_llm(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given=MINIMAL_ENGINE)
    kubectl.ok("create", "-f", "-", given=ENGINE)
    listed = kubectl.ok("get", "llm", "-o", "name").split()
    assert listed == ["engineartifact.llmengine.dev/engine-0123456789abcdef0123", "llmengine.llmengine.dev/smollm2"]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("llmengine", "LLMEngine is a model served by Triton"),
        ("llmengine.spec.budgets.maxNumTokens", "Tokens processed in one step over all sequences"),
        ("llmengine.spec.precision.quantization", "Default: none."),
        ("llmengine.spec.targets.gpu.product", "nvidia.com/gpu.product"),
        ("engineartifact.spec.inputs.command", "Effective command line"),
        ("engineartifact.status.manifestDigest", "SHA-256 of manifest.json"),
    ],
)
def test_kubectl_explain_says_what_a_field_means(kubectl: Kubectl, field: str, said: str) -> None:
    assert said in " ".join(kubectl.ok("explain", field).split())
