"""What several LLMEngines ask for is built once, as one of them says, and no other's mistakes are in the way."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_operator.kube.resource import JOB, Obj
from trtllm_operator.objects import ARTIFACT, ATTEMPT, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE

from .simulation import REFUSED, World, engine

H100 = [{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1}]
NOWHERE = {"nodeSelector": {"pool": "nowhere"}}


def asking(name: str, **spec: Any) -> dict[str, Any]:
    return engine(name, targets=H100, **spec)


def gated(secret: str) -> dict[str, Any]:
    return {"huggingFace": {"repo": "meta-llama/Llama-3.2-1B", "revision": "main", "tokenSecretRef": {"name": secret}}}


def newest(world: World, kind: str) -> Obj:
    """The last attempt at the artifact of a kind."""
    made = [j for j in world.find(JOB) if (label(j, ARTIFACT) or "").startswith(kind) and label(j, ATTEMPT)]
    return max(made, key=lambda j: int(label(j, ATTEMPT) or 0))


def selector(job: Obj) -> dict[str, str]:
    found: dict[str, str] = job["spec"]["template"]["spec"].get("nodeSelector") or {}
    return found


def secrets(job: Obj) -> set[str]:
    return {v["secret"]["secretName"] for v in job["spec"]["template"]["spec"]["volumes"] if "secret" in v}


def artifact(world: World, kind: str) -> Obj:
    return next(a for a in world.find(ENGINE_ARTIFACT) if a["metadata"]["name"].startswith(kind))


def is_ready(world: World, name: str) -> bool:
    found = world.get(LLM_ENGINE, name)
    assert found is not None
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"]["conditions"])


def inspected(world: World) -> None:
    """The inspections have ended, and the model's first attempt is made."""
    for _ in range(2):
        world.settle()
        world.start_jobs()
        for job in world.unfinished_jobs():
            if not label(job, ATTEMPT):
                world.finish(job)
    world.settle()


@pytest.mark.parametrize("bad", ["a", "z"])
def test_a_selector_that_no_node_has_keeps_nobody_else_waiting(bad: str) -> None:
    world = World()
    world.put(asking("m"))
    world.put(asking(bad, build=NOWHERE))
    inspected(world)
    assert selector(newest(world, "model")) == {}, "the attempt is made as the one says that can run"
    assert artifact(world, "model")["status"]["builtFor"] == "m"
    world.run_everything()
    assert is_ready(world, "m")
    assert is_ready(world, bad), "what is built once serves both"


def test_what_an_engine_said_goes_with_it() -> None:
    world = World()
    bad = world.put(asking("bad", build=NOWHERE))
    inspected(world)
    world.start_jobs()
    assert selector(newest(world, "model")) == NOWHERE["nodeSelector"]
    for pod in world.pods_of(newest(world, "model")):
        world.put({**pod, "spec": {k: v for k, v in pod["spec"].items() if k != "nodeName"}})
    world.put(asking("good"))
    inspected(world)
    world.settle()
    assert selector(newest(world, "model")) == {}, "what waits makes way for what can run"
    world.delete(bad)
    world.run_everything()
    assert is_ready(world, "good")
    for found in world.find(ENGINE_ARTIFACT):
        assert "policy" not in found["spec"]
        assert "nodeSelector" not in found["status"]["cleanup"]


def test_an_attempt_that_runs_is_left_to_end() -> None:
    world = World()
    world.put(asking("m"))
    inspected(world)
    world.start_jobs()
    running = newest(world, "model")
    world.put(asking("a", build={"maxAttempts": 7}))
    inspected(world)
    assert newest(world, "model")["metadata"]["uid"] == running["metadata"]["uid"]
    assert artifact(world, "model")["status"]["builtFor"] == "m"


def test_a_secret_that_the_source_refuses_is_followed_by_another_s() -> None:
    world = World()
    for name in ("a", "b"):
        world.put(asking(name, model=gated(f"token-{name}")))
    inspected(world)
    world.start_jobs()
    first = newest(world, "model")
    assert secrets(first) == {"token-a"}
    world.fail(first, REFUSED)
    for _ in range(3):
        world.settle()
        world.pass_time(31)
    second = newest(world, "model")
    assert secrets(second) == {"token-b"}, "one tenant's token does not decide another's build"
    world.start_jobs()
    world.fail(second, REFUSED)
    for _ in range(5):
        world.settle()
        world.pass_time(31)
    assert newest(world, "model")["metadata"]["name"] == second["metadata"]["name"], "and nobody's is tried twice"
    assert artifact(world, "model")["status"]["phase"] == "Failed"

    world.change_secret("token-a")
    for _ in range(3):
        world.settle()
        world.pass_time(31)
    third = newest(world, "model")
    assert (secrets(third), third["metadata"]["uid"] != first["metadata"]["uid"]) == ({"token-a"}, True)
    world.run_everything()
    assert is_ready(world, "a")
    assert is_ready(world, "b")


def test_a_secret_that_is_missing_is_not_waited_for_where_another_s_is_there() -> None:
    world = World()
    world.put(asking("a", model=gated("token-a")))
    world.put(asking("b", model=gated("token-b")))
    inspected(world)
    world.delete(newest(world, "model"))
    made = artifact(world, "model")
    world.set_status(made, {"observedGeneration": 1})
    world.missing_secrets.add("token-a")
    world.settle()
    assert secrets(newest(world, "model")) == {"token-b"}


def test_what_nobody_needs_is_removed_as_the_last_one_had_it_built() -> None:
    world = World()
    bucket = {"s3": {"bucket": "engines", "credentialsSecretRef": {"name": "bucket"}}}
    taint = [{"key": "builds", "operator": "Exists"}]
    made = world.put(asking("m", storage=bucket, build={"tolerations": taint}))
    world.run_everything()
    world.delete(made)
    world.settle()
    world.pass_time(4000)
    world.settle()
    removing = [j for j in world.find(JOB) if j["metadata"]["name"].endswith("-collect")]
    assert removing
    for job in removing:
        assert secrets(job) == {"bucket"}
        assert {"key": "builds", "operator": "Exists"} in job["spec"]["template"]["spec"]["tolerations"]


def test_at_rest_many_who_share_write_nothing() -> None:
    world = World()
    for number in range(6):
        world.put(asking(f"e{number}", build={"maxAttempts": number + 1}))
    world.run_everything()
    assert world.reconcile() == 0
    world.pass_time(60)
    assert world.reconcile() == 0
