"""An LLMEngine's life on a real cluster: built, served, changed, rebuilt, deleted."""

from __future__ import annotations

import json

import pytest

from demo import client
from demo.follow import until_drained
from demo.kubectl import Kubectl, wait_for
from demo.questions import by_grpc
from demo.stack import GRACE_SECONDS, OPERATOR, OPERATOR_NAMESPACE, Stack, operator_metrics, reference

from .smollm2 import A100, H100, answer, delete, get, llmengine, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def served(namespace: Kubectl) -> Kubectl:
    """One LLMEngine that serves on two GPU generations."""
    namespace.apply(llmengine(targets=[A100, H100]))
    wait_ready(namespace)
    return namespace


def versions(kubectl: Kubectl) -> dict[str, str]:
    """resourceVersion of everything the operator writes in the namespace."""
    kinds = "llmengines,engineartifacts,jobs,deployments,services,controllerrevisions,configmaps"
    return {f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for o in kubectl.items(kinds)}


def builds(kubectl: Kubectl) -> set[str]:
    return {a["metadata"]["uid"] for a in kubectl.items("engineartifacts")}


def test_each_generation_answers_with_an_engine_built_on_a_node_of_its_own(served: Kubectl) -> None:
    for target, node in (("a100", "a100"), ("h100", "h100")):
        assert "Paris" in answer(served, target)
        (pod,) = served.items("pods", "-l", f"llmengine.dev/engine=smollm2,llmengine.dev/target={target}")
        assert pod["spec"]["nodeName"] == node
    built = {a["spec"]["type"]: 0 for a in served.items("engineartifacts")}
    for artifact in served.items("engineartifacts"):
        built[artifact["spec"]["type"]] += 1
        gpu = artifact["spec"]["inputs"].get("gpu", {}).get("product")
        if gpu:
            assert gpu.lower().startswith(f"nvidia-{artifact['status']['nodeName']}"), "built on a node of its GPU"
    assert built == {"Model": 1, "Checkpoint": 1, "Engine": 2}


def test_grpc_streams_the_answer_too(served: Kubectl) -> None:
    with served.port_forward("service/smollm2--h100", 8001) as port:
        pieces = list(by_grpc(port, "What is the capital of France?"))
    assert len(pieces) > 1, "the answer comes in pieces"
    assert "Paris" in "".join(pieces)


def test_the_model_is_pinned_to_the_commit_that_the_branch_named(served: Kubectl, stack: Stack) -> None:
    revision = get(served)["status"]["model"]["revision"]
    assert len(revision) == 40
    (model,) = [a for a in served.items("engineartifacts") if a["spec"]["type"] == "Model"]
    assert model["spec"]["inputs"]["model"]["huggingFace"]["commit"] == revision


def test_published_engines_carry_a_manifest_of_all_their_files(served: Kubectl, stack: Stack) -> None:
    root = stack.cluster.host_root(served.namespace, "engines")
    for artifact in served.items("engineartifacts"):
        directory = root / artifact["metadata"]["name"]
        listed = {f["path"]: f["size"] for f in json.loads((directory / "manifest.json").read_text())["files"]}
        there = {str(p.relative_to(directory)): p.stat().st_size for p in directory.rglob("*") if p.is_file()}
        there.pop("manifest.json")
        assert listed == there
    assert [p.name for p in (root / ".staging").glob("*")] == []


def test_nothing_is_written_at_rest_nor_by_a_restarted_operator(served: Kubectl, stack: Stack) -> None:
    before = versions(served)
    operator = stack.kubectl(OPERATOR_NAMESPACE)
    operator("rollout", "restart", f"deployment/{OPERATOR}")
    operator("rollout", "status", f"deployment/{OPERATOR}", "--timeout=120s", timeout_seconds=130)

    def leading() -> str | None:
        logs = operator("logs", f"deployment/{OPERATOR}")
        return None if "holding the lease" in logs else "the new operator has no Lease yet"

    wait_for("the restarted operator at work", leading, limit_seconds=60)
    wait_for("a full pass over every key", lambda: _passed(stack), limit_seconds=60)
    assert versions(served) == before


def _passed(stack: Stack) -> str | None:
    """The operator's own count: every object looked at once, nothing waiting, and no write but the Lease's."""
    metrics = operator_metrics(stack)
    done = sum(v for k, v in metrics.items() if k.startswith("llmengine_operator_passes_total"))
    depth = sum(v for k, v in metrics.items() if k.startswith("llmengine_operator_queue_depth"))
    return None if done >= 5 and depth == 0 else f"{done} passes, {depth} keys waiting"


def test_replicas_and_the_kv_cache_share_never_rebuild(served: Kubectl) -> None:
    before = builds(served)
    served.apply(llmengine(targets=[A100, {**H100, "replicas": 2}], serving={"kvCacheFreeGpuMemoryPercent": 50}))
    wait_ready(served)
    assert builds(served) == before
    assert len(served.items("pods", "-l", "llmengine.dev/target=h100", "--field-selector=status.phase=Running")) >= 2
    assert "Paris" in answer(served, "h100")


def test_a_changed_budget_rebuilds_and_switches_without_a_failed_request(served: Kubectl, stack: Stack) -> None:
    client.start(served, reference(stack.images["operator"]), ["smollm2--a100", "smollm2--h100"])
    before = {t["name"]: t["servedArtifact"] for t in get(served)["status"]["targets"]}
    budgets = {"maxBatchSize": 8, "maxInputLen": 512, "maxSeqLen": 1024, "maxNumTokens": 2048}
    served.apply(llmengine(targets=[A100, H100], budgets=budgets))
    wait_ready(served)
    after = {t["name"]: t["servedArtifact"] for t in get(served)["status"]["targets"]}
    assert all(after[t] != before[t] for t in before)

    until_drained(served, "smollm2")
    counted = client.counts(served)
    client.stop(served)
    for service, counts in counted.items():
        assert counts["failed"] == 0, f"{service}: {counts}"
        assert counts["answered"] > 0


def test_deleting_it_removes_what_it_made_files_and_all(served: Kubectl, stack: Stack) -> None:
    root = stack.cluster.host_root(served.namespace, "engines")
    delete(served)

    def left() -> str | None:
        kinds = "engineartifacts,jobs,deployments,services,controllerrevisions,pods"
        objects = [f"{o['kind']}/{o['metadata']['name']}" for o in served.items(kinds)]
        configs = [c["metadata"]["name"] for c in served.items("configmaps", "-l", "llmengine.dev/managed=true")]
        files = [p.name for p in root.iterdir() if not p.name.startswith(".")]
        rest = objects + configs + files
        return f"{rest} left" if rest else None

    wait_for("nothing left of it", left, limit_seconds=GRACE_SECONDS + 150)
