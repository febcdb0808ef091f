"""The endpoint comes with the model, follows what is served, and never stands in the way of anything."""

from __future__ import annotations

from typing import Any

from trtllm_operator.front.cluster_state import routes_of
from trtllm_operator.kube.resource import (
    DEPLOYMENT,
    POD_DISRUPTION_BUDGET,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Obj,
)
from trtllm_operator.objects import FRONT, label
from trtllm_operator.reconcile.watches import LLM_ENGINE

from .simulation import World, engine

KINDS = (SERVICE_ACCOUNT, ROLE_BINDING, DEPLOYMENT, SERVICE, POD_DISRUPTION_BUDGET)


def front_of(world: World) -> dict[str, Obj]:
    found = [o for kind in KINDS for o in world.find(kind) if label(o, FRONT)]
    return {o["kind"]: o for o in found}


def run(world: World) -> None:
    """Everything goes well, the endpoint's Pods included."""
    for _ in range(3):
        world.run_everything()
        for deployment in world.find(DEPLOYMENT):
            if label(deployment, FRONT):
                world.roll_out(deployment)
        world.settle()


def status_of(world: World) -> dict[str, Any]:
    found = world.get(LLM_ENGINE, "smol")
    assert found is not None
    status: dict[str, Any] = found["status"]
    return status


def change(world: World, **fields: Any) -> None:
    found = world.get(LLM_ENGINE, "smol")
    assert found is not None
    world.put({**found, "spec": {**found["spec"], **fields}})


def served(**fields: Any) -> World:
    world = World()
    world.put(engine(front={"replicas": 1}, **fields))
    run(world)
    return world


def test_an_llmengine_has_an_endpoint_unless_it_says_no() -> None:
    world = World()
    made = engine()
    del made["spec"]["front"]
    world.put(made)
    run(world)
    assert set(front_of(world)) == {"ServiceAccount", "RoleBinding", "Deployment", "Service"}
    assert status_of(world)["endpoint"] == "http://smol.team.svc/v1"


def test_it_is_there_before_the_engines_are() -> None:
    world = World()
    world.put(engine(front={}))
    world.run_jobs(3)
    assert not [d for d in world.find(DEPLOYMENT) if not label(d, FRONT)], "an engine serves already"
    assert "Deployment" in front_of(world)


def test_what_status_says_is_what_the_endpoint_reads() -> None:
    world = served()
    addresses = {"a100": "10.0.0.1", "h100": "10.0.0.2"}
    slices = [
        {
            "metadata": {"name": target["service"], "labels": {"kubernetes.io/service-name": target["service"]}},
            "ports": [{"name": "grpc", "port": 8001}],
            "endpoints": [
                {
                    "addresses": [addresses[target["name"]]],
                    "conditions": {"ready": True},
                    "targetRef": {"name": f"{target['servedRevision']}-6d4c-x"},
                }
            ],
        }
        for target in status_of(world)["targets"]
    ]
    routes = routes_of(world.get(LLM_ENGINE, "smol"), slices)
    assert {b.address for b in routes.backends} == {"10.0.0.1:8001", "10.0.0.2:8001"}
    assert {(b.limits.max_batch_size, b.limits.max_input_len, b.limits.max_seq_len) for b in routes.backends} == {
        (8, 1024, 2048)
    }
    (model,) = {b.model for b in routes.backends}
    assert model.startswith("model-")


def test_during_a_rebuild_status_keeps_the_limits_of_what_serves() -> None:
    world = served()
    budgets = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 1536, "maxNumTokens": 2048}
    change(world, budgets=budgets)
    world.reconcile()
    assert {t["maxSeqLen"] for t in status_of(world)["targets"]} == {2048}
    run(world)
    assert {t["maxSeqLen"] for t in status_of(world)["targets"]} == {1536}


def test_a_change_of_the_endpoint_touches_no_server_and_no_engine() -> None:
    world = served()
    servers = [d for d in world.find(DEPLOYMENT) if not label(d, FRONT)]
    builds = dict(world.builds)
    change(
        world,
        front={"replicas": 2, "requestLog": True},
        targets=[{**t, "weight": 3} for t in engine()["spec"]["targets"]],
    )
    run(world)
    assert [d for d in world.find(DEPLOYMENT) if not label(d, FRONT)] == servers
    assert dict(world.builds) == builds
    assert front_of(world)["Deployment"]["spec"]["replicas"] == 2
    assert "PodDisruptionBudget" in front_of(world)
    assert {t["weight"] for t in status_of(world)["targets"]} == {3}


def test_zero_replicas_take_it_away_and_nothing_else() -> None:
    world = served()
    change(world, front={"replicas": 0})
    run(world)
    assert front_of(world) == {}
    assert "endpoint" not in status_of(world)
    assert not [c for c in status_of(world)["conditions"] if c["type"] == "FrontAvailable"]
    assert {d["status"]["availableReplicas"] for d in world.find(DEPLOYMENT)} == {1}


def test_any_of_its_objects_that_is_deleted_is_back() -> None:
    world = served()
    for kind in (SERVICE_ACCOUNT, ROLE_BINDING, DEPLOYMENT, SERVICE):
        (one,) = (o for o in world.find(kind) if label(o, FRONT))
        world.delete(one)
        world.settle()
        assert [o for o in world.find(kind) if label(o, FRONT)], f"the {kind.kind} is not back"


def test_its_condition_says_whether_it_answers_and_holds_nothing_up() -> None:
    world = World()
    world.put(engine(front={}))
    world.run_everything()
    conditions = {c["type"]: c for c in status_of(world)["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert conditions["FrontAvailable"]["status"] == "False"
    assert "0 of 1" in conditions["FrontAvailable"]["message"]
    run(world)
    conditions = {c["type"]: c for c in status_of(world)["conditions"]}
    assert conditions["FrontAvailable"]["status"] == "True"


def test_at_rest_nothing_is_written() -> None:
    world = served()
    assert world.reconcile() == 0
