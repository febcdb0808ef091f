"""Targets that stand for several classes of GPUs: what is built and served as nodes come, change and go."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.kube.resource import CONTROLLER_REVISION, DEPLOYMENT, NODE, SERVICE, Obj
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

from ..artifacts.world import node
from .simulation import World, engine

ANY = {"name": "gpu", "gpu": {"any": {}}}
A100, H100, L40S = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"


@pytest.fixture
def world() -> World:
    return World()


def join(world: World, name: str, product: str, compute: str, mib: int = 81559, /, **labels: str) -> None:
    made = node(name, product, compute, mib)
    made["metadata"]["labels"] |= labels
    world.put({"apiVersion": "v1", "kind": "Node", **made})


def leave(world: World, name: str) -> None:
    found = world.cache.get(NODE, "", name)
    assert found is not None
    world.delete(found)


def lose_servers(world: World, target: str) -> None:
    """The Pods of a target are gone with their node, and no other takes them."""
    for deployment in world.find(DEPLOYMENT):
        if deployment["metadata"]["labels"]["llmengine.dev/target"] == target:
            world.roll_out(deployment, ready=False)


def serve(world: World, *targets: dict[str, Any], **spec: Any) -> None:
    world.put(engine(targets=list(targets), **spec))
    world.run_everything()


def status(world: World) -> Obj:
    found = world.get(LLM_ENGINE, "smol")
    assert found is not None
    return found["status"]  # type: ignore[no-any-return]


def condition(world: World, type_: str) -> dict[str, Any]:
    return next((c for c in status(world)["conditions"] if c["type"] == type_), {"status": "absent", "message": ""})


def targets(world: World) -> dict[str, str]:
    """Reason by target."""
    return {t["name"]: t["reason"] for t in status(world)["targets"]}


def services(world: World) -> set[str]:
    return {service["metadata"]["name"] for service in world.find(SERVICE)}


def test_any_gpu_is_one_target_for_each_class_with_an_engine_of_its_own(world: World) -> None:
    serve(world, ANY)
    assert targets(world) == {"gpu-a100-sxm4-80gb": "Serving", "gpu-h100-80gb-hbm3": "Serving"}
    assert services(world) == {"smol--gpu-a100-sxm4-80gb", "smol--gpu-h100-80gb-hbm3"}
    assert {t["specTarget"] for t in status(world)["targets"]} == {"gpu"}
    types = sorted(a["spec"]["type"] for a in world.find(ENGINE_ARTIFACT))
    assert types == ["Checkpoint", "Engine", "Engine", "Model"], "the checkpoint is shared"
    assert condition(world, "Ready")["status"] == "True"


def test_a_class_is_the_same_artifact_whoever_selects_it(world: World) -> None:
    world.put(engine("by-product"))
    world.run_everything()
    built = dict(world.builds)
    serve(world, ANY)
    assert dict(world.builds) == built
    assert condition(world, "Ready")["status"] == "True"


def test_an_architecture_with_two_products_is_two_targets(world: World) -> None:
    join(world, "h200", "NVIDIA-H200", "9.0", 143771)
    join(world, "pcie", "NVIDIA-H100-PCIe", "9.0")
    serve(world, {"name": "hopper", "gpu": {"architecture": "hopper"}})
    assert set(targets(world)) == {"hopper-h100-80gb-hbm3", "hopper-h100-pcie", "hopper-h200"}


def test_c15_ampere_of_two_compute_capabilities_has_an_engine_for_each(world: World) -> None:
    join(world, "a10", "NVIDIA-A10G", "8.6", 23028)
    serve(world, {"name": "ampere", "gpu": {"architecture": "ampere"}})
    assert {t["gpu"] for t in status(world)["targets"]} == {f"{A100} (8.0)", "NVIDIA-A10G (8.6)"}
    serve(world, {"name": "sm86", "gpu": {"computeCapability": "8.6"}})
    assert set(targets(world)) == {"sm86-a10g"}
    assert services(world) == {"smol--sm86-a10g"}


def test_the_more_exact_target_has_a_class_and_the_rest_is_for_any(world: World) -> None:
    h100 = {"name": "h100", "gpu": {"product": H100}, "replicas": 2}
    join(world, "h200", "NVIDIA-H200", "9.0", 143771)
    serve(world, ANY, {"name": "hop", "gpu": {"architecture": "hopper"}}, h100)
    assert list(targets(world)) == ["gpu-a100-sxm4-80gb", "hop-h200", "h100"]


def test_a_node_of_a_new_generation_is_built_for_and_served_by_itself(world: World) -> None:
    serve(world, ANY)
    before = dict(world.served())
    join(world, "l40s", L40S, "8.9", 46068)
    world.run_everything()
    assert targets(world)["gpu-l40s"] == "Serving"
    assert before.items() <= dict(world.served()).items(), "the others are left alone"
    assert all(count == 1 for count in world.builds.values())


def test_the_last_node_leaving_is_said_and_takes_nothing_away(world: World) -> None:
    serve(world, ANY)
    before = dict(world.served())
    leave(world, "h100")
    lose_servers(world, "gpu-h100-80gb-hbm3")
    world.run_everything(servers=False)
    lost = next(t for t in status(world)["targets"] if t["name"] == "gpu-h100-80gb-hbm3")
    assert lost["reason"] == "NoMatchingNode"
    assert f"no node has nvidia.com/gpu.product={H100}" in lost["message"]
    assert f"the nodes have {A100} (a100)" in lost["message"]
    assert lost["servedRevision"], "what served is kept"
    assert condition(world, "Ready")["reason"] == "NoMatchingNode"
    assert condition(world, "NodesMatch")["status"] == "False"
    assert condition(world, "Stalled")["status"] == "absent"
    assert dict(world.served()) == before
    assert len(world.find(DEPLOYMENT)) == 2
    built = dict(world.builds)
    join(world, "h100-again", H100, "9.0")
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert dict(world.builds) == built, "a node that comes back needs no build"


def test_a_class_that_leaves_while_it_is_rebuilt_goes_on_with_what_served(world: World) -> None:
    serve(world, ANY)
    before = dict(world.served())
    world.put(engine(targets=[ANY], budgets={**engine()["spec"]["budgets"], "maxSeqLen": 1536}))
    world.settle()
    leave(world, "h100")
    world.settle()
    assert dict(world.served()) == before
    assert "gpu-h100-80gb-hbm3" in targets(world)
    assert len(world.find(DEPLOYMENT)) == 2


def test_a_class_without_nodes_goes_over_to_the_target_that_names_its_product(world: World) -> None:
    serve(world, ANY)
    leave(world, "h100")
    world.settle()
    world.put(engine(targets=[ANY, {"name": "h100", "gpu": {"product": H100}}]))
    world.settle()
    assert set(targets(world)) == {"gpu-a100-sxm4-80gb", "h100"}


def test_a_class_that_left_before_its_engine_was_built_is_forgotten(world: World) -> None:
    serve(world, ANY)
    join(world, "l40s", L40S, "8.9", 46068)
    world.settle()
    assert "gpu-l40s" in targets(world)
    leave(world, "l40s")
    world.settle()
    assert "gpu-l40s" not in targets(world)
    assert not [r for r in world.find(CONTROLLER_REVISION) if "l40s" in r["metadata"]["name"]]
    assert condition(world, "Ready")["status"] == "True"


def test_a_class_that_is_gone_for_good_is_let_go_by_deleting_what_remembers_it(world: World) -> None:
    serve(world, ANY)
    leave(world, "h100")
    world.settle()
    for found in world.find(CONTROLLER_REVISION):
        if "h100" in found["metadata"]["name"]:
            world.delete(found)
    world.run_everything()
    assert set(targets(world)) == {"gpu-a100-sxm4-80gb"}
    assert services(world) == {"smol--gpu-a100-sxm4-80gb"}
    assert len(world.find(DEPLOYMENT)) == 1
    assert condition(world, "Ready")["status"] == "True"


def test_nothing_that_matches_is_waited_for_with_what_there_is(world: World) -> None:
    serve(world, {"name": "bw", "gpu": {"architecture": "blackwell"}})
    (waiting,) = status(world)["targets"]
    assert (waiting["name"], waiting["reason"]) == ("bw", "NoMatchingNode")
    assert "no node has a GPU of architecture blackwell" in waiting["message"]
    assert f"{A100} (a100), {H100} (h100)" in waiting["message"]
    assert condition(world, "Stalled")["status"] == "absent"
    join(world, "b200", "NVIDIA-B200", "10.0", 183359)
    world.run_everything()
    assert targets(world) == {"bw-b200": "Serving"}


def test_a_class_that_cannot_run_the_model_keeps_nobody_waiting_and_is_named(world: World) -> None:
    serve(world, ANY, precision={"quantization": "fp8"})
    assert targets(world) == {"gpu-a100-sxm4-80gb": "Unsupported", "gpu-h100-80gb-hbm3": "Serving"}
    assert condition(world, "Ready")["status"] == "True"
    assert "gpu-a100-sxm4-80gb: fp8 does not work on" in condition(world, "Validated")["message"]
    assert services(world) == {"smol--gpu-h100-80gb-hbm3"}


def test_when_no_class_can_run_the_model_the_spec_is_refused(world: World) -> None:
    leave(world, "h100")
    serve(world, ANY, precision={"quantization": "fp8"})
    assert condition(world, "Validated")["status"] == "False"
    assert condition(world, "Stalled")["status"] == "True"


def test_what_serves_on_a_class_that_the_new_spec_excludes_goes_on_and_is_reported(world: World) -> None:
    serve(world, ANY)
    before = dict(world.served())
    serve(world, ANY, precision={"quantization": "fp8"})
    after = dict(world.served())
    a100 = "smol--gpu-a100-sxm4-80gb"
    assert after[a100] == before[a100]
    assert after != before, "the other class has moved on"
    assert condition(world, "Stalled")["reason"] == "Unsupported"
    assert f"delete the Service {a100}" in condition(world, "Stalled")["message"]
    world.delete(next(s for s in world.find(SERVICE) if s["metadata"]["name"] == a100))
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"
    assert [d["metadata"]["labels"]["llmengine.dev/target"] for d in world.find(DEPLOYMENT)] == ["gpu-h100-80gb-hbm3"]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"nvidia.com/gpu.product": f"{H100}-SHARED"}, f"{H100}-SHARED (h100)"),
        ({"nvidia.com/gpu.product": f"{H100}-MIG-1g.10gb"}, f"{H100}-MIG-1g.10gb (h100)"),
        ({"nvidia.com/gpu.product": f"{H100}-MIG-INVALID"}, "its MIG layout is not one"),
        ({"nvidia.com/gpu.product": ""}, "no node has"),
        ({"nvidia.com/mig.config.state": "pending"}, "is changing its MIG layout"),
    ],
)
@pytest.mark.parametrize("target", [{"name": "h100", "gpu": {"product": H100}}, {"name": "h", "gpu": {"any": {}}}])
def test_labels_that_change_under_a_running_server_are_reported_and_it_runs_on(
    world: World, labels: dict[str, str], said: str, target: dict[str, Any]
) -> None:
    leave(world, "a100")
    serve(world, target)
    before = dict(world.served())
    join(world, "h100", H100, "9.0", **labels)
    world.settle()
    assert condition(world, "NodesMatch")["status"] == "False"
    assert said in condition(world, "NodesMatch")["message"]
    assert before.items() <= dict(world.served()).items()
    name = next(iter(before))
    served = next(t for t in status(world)["targets"] if f"smol--{t['name']}" == name)
    assert served["reason"] == "Serving", "its server goes on"


def test_nodes_of_one_class_with_different_drivers_are_remarked(world: World) -> None:
    driver = "nvidia.com/cuda.driver-version.full"
    serve(world, ANY)
    join(world, "h100", H100, "9.0", **{driver: "580.159.04"})
    join(world, "h100-b", H100, "9.0", **{driver: "550.54.15"})
    world.settle()
    assert condition(world, "NodesMatch")["status"] == "True"
    assert "driver 550.54.15 (h100-b), driver 580.159.04 (h100)" in condition(world, "NodesMatch")["message"]


def test_c81_shared_gpus_are_not_used_unless_named(world: World) -> None:
    leave(world, "h100")
    join(world, "a10", "NVIDIA-A10G-SHARED", "8.6", 23028)
    serve(world, ANY)
    assert set(targets(world)) == {"gpu-a100-sxm4-80gb"}
    assert "NVIDIA-A10G-SHARED (a10) is shared between Pods" in condition(world, "NodesMatch")["message"]
    serve(world, {"name": "a10", "gpu": {"product": "NVIDIA-A10G-SHARED"}})
    assert targets(world) == {"a10": "Serving"}


def test_c82_two_shares_are_never_one_server(world: World) -> None:
    join(world, "a10", "NVIDIA-A10G-SHARED", "8.6", 23028)
    shared = {"name": "a10", "gpu": {"product": "NVIDIA-A10G-SHARED"}}
    serve(world, shared, parallelism={"tensor": 3})
    assert "may be one and the same GPU" in condition(world, "Validated")["message"]


def test_c85_nodes_that_the_spec_does_not_tolerate_are_left_alone_until_it_does(world: World) -> None:
    made = node("research", L40S, "8.9", 46068)
    taint = {"key": "team", "value": "research", "effect": "NoSchedule"}
    world.put({"apiVersion": "v1", "kind": "Node", **made, "spec": {"taints": [taint]}})
    serve(world, ANY)
    assert "gpu-l40s" not in targets(world)
    assert "taint team=research:NoSchedule" in condition(world, "NodesMatch")["message"]
    tolerated = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    serve(world, ANY, build=tolerated, serving=tolerated)
    assert targets(world)["gpu-l40s"] == "Serving"


def test_c80_gpus_without_labels_are_named_and_nothing_is_built_for_them(world: World) -> None:
    for name in ("a100", "h100"):
        leave(world, name)
    unlabeled = {"metadata": {"name": "bare", "labels": {}}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    world.put({"apiVersion": "v1", "kind": "Node", **unlabeled})
    serve(world, {"name": "h100", "gpu": {"product": H100}})
    message = condition(world, "Ready")["message"]
    assert "node bare offers 8 nvidia.com/gpu but has no label nvidia.com/gpu.product" in message
    assert world.jobs_of("Engine") == [], "no Job is made that could not be placed"
    join(world, "bare", H100, "9.0")
    world.run_everything()
    assert condition(world, "Ready")["status"] == "True"


def mig(world: World) -> None:
    product = "NVIDIA-A100-SXM4-40GB"
    labels = {
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/gpu.replicas": "0",
        "nvidia.com/mig-3g.20gb.product": f"{product}-MIG-3g.20gb",
        "nvidia.com/mig-3g.20gb.memory": "19968",
    }
    join(world, "sliced", product, "8.0", 40960, **labels)


def test_slices_with_a_resource_of_their_own_are_asked_for_by_it(world: World) -> None:
    mig(world)
    product = "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"
    serve(world, {"name": "slice", "gpu": {"product": product}})
    assert targets(world) == {"slice": "Serving"}
    (deployment,) = world.find(DEPLOYMENT)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-3g.20gb": "1"}
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    wanted = {e["key"]: e["values"] for e in terms[0]["matchExpressions"]}
    assert wanted["nvidia.com/mig-3g.20gb.product"] == [product]
    assert "nvidia.com/gpu.product" not in wanted
    (job,) = world.jobs_of("Engine")
    build = next(c for c in job["spec"]["template"]["spec"]["initContainers"] if c["name"] == "build")
    assert build["resources"]["limits"]["nvidia.com/mig-3g.20gb"] == "1"


def test_c84_a_server_never_spans_slices(world: World) -> None:
    mig(world)
    product = "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"
    serve(world, {"name": "slice", "gpu": {"product": product}}, parallelism={"tensor": 3})
    assert "MIG slices (3g.20gb) can't reach each other" in condition(world, "Validated")["message"]


def test_c87_a_pool_scaled_to_zero_gets_its_job_only_where_that_is_asked_for(world: World) -> None:
    l4 = {"name": "l4", "gpu": {"product": "NVIDIA-L4"}}
    serve(world, l4)
    assert targets(world) == {"l4": "NoMatchingNode"}
    assert world.jobs_of("Engine") == []
    serve(world, l4, build={"scaleFromZero": True, "nodeSelector": {"pool": "l4"}})
    (job,) = world.jobs_of("Engine")
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "l4"}
    assert "NVIDIA-L4" in str(pod["affinity"]), "nothing is built on another GPU"
    assert world.find(DEPLOYMENT), "servers wait for the autoscaler too"


def test_a_node_of_another_cpu_architecture_is_another_class(world: World) -> None:
    join(world, "grace", "NVIDIA-GH200-480GB", "9.0", 97871, **{"kubernetes.io/arch": "arm64"})
    serve(world, {"name": "gh200", "gpu": {"product": "NVIDIA-GH200-480GB"}})
    (deployment,) = world.find(DEPLOYMENT)
    affinity = deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]} in terms[0]["matchExpressions"]


def test_more_gpus_than_any_node_of_the_class_offers_are_refused_with_both_numbers(world: World) -> None:
    for name in ("a", "b"):
        made = node(name, L40S, "8.9", 46068)
        world.put({"apiVersion": "v1", "kind": "Node", **made, "status": {"allocatable": {"nvidia.com/gpu": "2"}}})
    serve(world, {"name": "l40s", "gpu": {"product": L40S}}, parallelism={"tensor": 3})
    message = condition(world, "Validated")["message"]
    assert "TP 3 x PP 1 = 3 GPUs, and one node offers 2" in message


def test_the_longest_names_fit(world: World) -> None:
    target = {"name": "ada-lovelace", "gpu": {"architecture": "ada-lovelace"}}
    join(world, "l40s", "NVIDIA-L40S-with-a-name-that-is-much-too-long-for-a-label", "8.9", 46068)
    world.put(engine("a" * 24, targets=[target]))
    world.run_everything()
    names = [o["metadata"]["name"] for kind in (DEPLOYMENT, SERVICE, CONTROLLER_REVISION) for o in world.find(kind)]
    assert len(names) == 3
    assert max(map(len, names)) <= 63
