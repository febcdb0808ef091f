"""Servers compare what they read with what was published, and are not rolled for it."""

from __future__ import annotations

import json
from typing import Any

from trtllm_operator.kube.resource import DEPLOYMENT, JOB, Obj
from trtllm_operator.objects import ARTIFACT, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT

from .simulation import World, engine

DIGEST = "ab" * 32
H100 = [{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1}]
BUCKET = {"s3": {"bucket": "engines", "credentialsSecretRef": {"name": "bucket"}}}


def served(**spec: Any) -> World:
    world = World()
    world.put(engine(targets=H100, **spec))
    world.run_everything()
    return world


def deployment(world: World) -> Obj:
    return world.find(DEPLOYMENT)[0]


def digests(world: World, container: str = "containers") -> dict[str, str]:
    found = deployment(world)["spec"]["template"]["spec"][container][0]
    return dict(json.loads(found["command"][-1])["digests"])


def republished(world: World, name: str, digest: str) -> None:
    """The engine was damaged and is built again."""
    live = world.get(ENGINE_ARTIFACT, name)
    assert live is not None
    world.set_status(live, {**live["status"], "manifestDigest": digest})


def read_by_server(world: World) -> set[str]:
    return {a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] != "Checkpoint"}


def test_a_server_is_told_what_was_published() -> None:
    world = served()
    assert digests(world) == dict.fromkeys(read_by_server(world), DIGEST)


def test_of_a_bucket_the_step_before_the_server_is_told() -> None:
    world = served(storage=BUCKET)
    assert digests(world, "initContainers") == dict.fromkeys(read_by_server(world), DIGEST)


def test_a_build_is_told_what_was_published_of_all_that_it_reads() -> None:
    world = served()
    for job in world.find(JOB):
        made = label(job, ARTIFACT) or ""
        if made.startswith("engine-"):
            stage, build = job["spec"]["template"]["spec"]["initContainers"]
            told = [json.loads(c["command"][-1])["digests"] for c in (stage, build)]
            assert told[0] == told[1]
            assert {name.partition("-")[0] for name in told[0]} == {"checkpoint", "model"}
            assert set(told[0].values()) == {DIGEST}


def test_servers_that_answer_stay_when_their_engine_is_built_again() -> None:
    world = served()
    before = deployment(world)["spec"]["template"]
    engine_name = next(n for n in read_by_server(world) if n.startswith("engine-"))
    republished(world, engine_name, "cd" * 32)
    world.settle()
    assert deployment(world)["spec"]["template"] == before

    world.roll_out(deployment(world), ready=False)
    world.settle()
    assert digests(world)[engine_name] == "cd" * 32, "the next start reads what is published now"
    assert world.reconcile() == 0


def test_a_template_that_somebody_edited_stops_nobody() -> None:
    world = served()
    live = deployment(world)
    for command in (["sh"], [], ["sh", "-c", "{"], ["sh", "-c", "[1]"]):
        template = json.loads(json.dumps(live["spec"]["template"]))
        template["spec"]["containers"][0]["command"] = command
        world.put({**live, "spec": {**live["spec"], "template": template}})
        world.settle()
        assert deployment(world)["spec"]["template"]["spec"]["containers"][0]["command"][:2] == [
            "python3",
            "/opt/llmengine/runner.pyz",
        ]
