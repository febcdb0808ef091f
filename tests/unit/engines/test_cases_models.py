"""Public reports about tokenizers and Triton's configuration, by their number: what the operator makes of a spec."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from pydantic import ValidationError

from trtllm_operator.api.llmengine import LLMEngineSpec
from trtllm_operator.artifacts.placement import quantity
from trtllm_operator.kube.resource import DEPLOYMENT, JOB, POD, Obj
from trtllm_operator.objects import ARTIFACT, CHECK, TARGET, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT, LLM_ENGINE
from trtllm_operator.serving.triton import shared_memory_bytes

from . import simulation
from .simulation import CATALOG, World, engine

MIB = 1 << 20
QWEN = {
    "endTokens": {"generation_config.json": [151645, 151643], "config.json": [151643]},
    "endToken": ["<|im_end|>", 151645],
}
CODE = {"code": ["tokenizer_config.json", "tokenization_x.XTokenizer"]}


class Cluster(World):
    """One whose checks take away unread what they are told to."""

    def finish(self, job: Obj) -> None:
        if label(job, CHECK) and '"unfit"' in str(job["spec"]["template"]["spec"]["containers"][0]["command"]):
            self.damaged.add(str(label(job, ARTIFACT)))
        super().finish(job)


def state(world: World) -> Obj:
    found = world.get(LLM_ENGINE, "smol")
    assert found is not None
    return found


def condition(world: World, type_: str) -> dict[str, Any]:
    return next(dict(c) for c in state(world)["status"]["conditions"] if c["type"] == type_)


def made(text: dict[str, Any] | None = None, **changes: Any) -> World:
    """A cluster with one LLMEngine, of a model whose small files say `text`."""
    world = Cluster()
    with pytest.MonkeyPatch.context() as patch:
        if text is not None:
            patch.setitem(simulation.REPORT, "text", text)
        world.put(engine(**changes))
        world.run_everything()
    return world


def container(world: World) -> dict[str, Any]:
    (found,) = world.find(DEPLOYMENT)[0]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def server(world: World) -> dict[str, Any]:
    """The arguments of a server's runner."""
    command = container(world)["command"]
    return dict(json.loads(command[command.index("--spec") + 1]))


def models(world: World) -> dict[str, dict[str, str]]:
    return dict(server(world)["models"])


def artifacts(world: World) -> set[str]:
    return {a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT)}


@pytest.mark.parametrize(
    "storage",
    [
        {"persistentVolumeClaim": {"claimName": "engines"}},
        {"s3": {"bucket": "engines", "endpoint": "https://s3:9000", "credentialsSecretRef": {"name": "store-key"}}},
    ],
)
def test_c66_the_tokenizer_s_path_is_absolute_and_in_a_mounted_volume(storage: dict[str, Any]) -> None:
    world = made(storage=storage)
    paths = {values["tokenizer_dir"] for name, values in models(world).items() if "tokenizer_dir" in values}
    assert len(paths) == 1, "pre- and postprocessing read the same"
    path = PurePosixPath(paths.pop())
    assert path.is_absolute()
    mounted = [PurePosixPath(mount["mountPath"]) for mount in container(world)["volumeMounts"]]
    assert any(path.is_relative_to(directory) for directory in mounted)
    assert path.name.startswith("model-"), "beside the engine, as published with size and checksum of every file"
    assert server(world)["tokenizer"] == str(path), "what the runner verifies before Triton starts"


def test_c67_a_model_that_needs_code_is_refused_by_its_name_before_anything_is_made() -> None:
    world = made(CODE)
    validated = condition(world, "Validated")
    assert (validated["status"], validated["reason"]) == ("False", "Refused")
    assert "auto_map of tokenizer_config.json names tokenization_x.XTokenizer" in validated["message"]
    assert condition(world, "Stalled")["status"] == "True"
    assert artifacts(world) == set()


def test_c70_the_end_tokens_are_in_the_status_and_a_conflict_is_a_warning() -> None:
    status = state(made(QWEN))["status"]
    assert status["model"]["endTokenIds"] == [151645, 151643]
    for target in status["targets"]:
        (warning,) = target["plan"]["warnings"]
        assert "config.json says 151643" in warning
    assert condition(made(QWEN), "Validated")["status"] == "True"


def test_c69_and_c70_what_is_known_of_the_text_changes_no_artifact() -> None:
    assert artifacts(made(QWEN | {"sentencePiece": True})) == artifacts(made())


def test_c71_servers_and_builds_are_offline_and_the_branch_is_resolved_once() -> None:
    world = made()
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in container(world)["env"]
    (model,) = (a for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == "Model")
    assert model["spec"]["inputs"]["model"]["huggingFace"]["commit"] == state(world)["status"]["model"]["revision"]
    fetching = [j for j in world.find(JOB) if label(j, "llmengine.dev/artifact") == model["metadata"]["name"]]
    assert len(fetching) == 1, "two generations, one download"
    assert "huggingFace" not in json.dumps(server(world)), "a server reads the store's copy by its path"
    tools = [
        c
        for job in world.find(JOB)
        for c in job["spec"]["template"]["spec"].get("initContainers", ())
        if c["name"] in ("build", "convert")
    ]
    assert tools
    assert all({"name": "HF_HUB_OFFLINE", "value": "1"} in c["env"] for c in tools)


def test_c72_every_placeholder_that_stands_for_a_bare_value_is_given() -> None:
    """The rest stand in quotes, where the backend takes what is not filled as not given."""
    release = CATALOG.release("1.2.1")
    for name, values in models(made()).items():
        required = {p.name for p in release.templates[name] if p.required}
        assert required <= values.keys(), name
        assert values.keys() <= {p.name for p in release.templates[name]}, name
        assert not any("${" in value for value in values.values())


def test_c74_streaming_is_always_possible() -> None:
    """No field turns it off, so no two models can differ in it."""
    values = models(made())
    assert {v["decoupled_mode"] for v in values.values() if "decoupled_mode" in v} == {"true"}


def test_c75_triton_s_batch_size_is_the_engine_s() -> None:
    """There is one field for both, so that neither is larger than the other."""
    world = made(budgets={"maxBatchSize": 3, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048})
    assert {v["triton_max_batch_size"] for v in models(world).values()} == {"3"}
    (command,) = {
        tuple(a["spec"]["inputs"]["command"]) for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == "Engine"
    }
    assert command[command.index("--max_batch_size") + 1] == "3"


def test_c75_a_batch_of_none_is_refused() -> None:
    spec = engine(budgets={"maxBatchSize": 0, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048})["spec"]
    with pytest.raises(ValidationError, match="maxBatchSize"):
        LLMEngineSpec.model_validate(spec)


def test_c19_an_image_is_its_digest_and_one_image_builds_and_serves() -> None:
    """What a tag says counts for nothing: the version is the built engine's and the library's that serves it."""
    world = made()
    built = {a["spec"]["inputs"]["image"] for a in world.find(ENGINE_ARTIFACT) if a["spec"]["type"] == "Engine"}
    assert {d["spec"]["template"]["spec"]["containers"][0]["image"] for d in world.find(DEPLOYMENT)} == built
    assert all("@sha256:" in image for image in built)
    assert server(world)["release"] == "1.2.1"


class TestSharedMemory:
    def size_bytes(self, world: World) -> int:
        volumes = world.find(DEPLOYMENT)[0]["spec"]["template"]["spec"]["volumes"]
        (shm,) = (v["emptyDir"] for v in volumes if v["name"] == "shm")
        assert shm["medium"] == "Memory"
        return int(quantity(shm["sizeLimit"]))

    def test_c77_every_python_instance_has_its_share(self) -> None:
        world = made()
        assert {"name": "shm", "mountPath": "/dev/shm"} in container(world)["volumeMounts"]
        instances = sum(int(v) for values in models(world).values() for k, v in values.items() if "instance_count" in k)
        assert instances == 3, "two that tokenize, one that keeps streams in order"
        assert self.size_bytes(world) >= 64 * MIB * instances

    def test_c77_several_ranks_have_room_for_nccl_beside_it(self) -> None:
        world = made(parallelism={"tensor": 3})
        assert server(world)["world_size"] == 3
        assert self.size_bytes(world) >= 64 * MIB * 3 + 1024 * MIB

    def test_c77_it_is_part_of_the_memory_limit(self) -> None:
        world = made(serving={"resources": {"limits": {"memory": "8Gi", "cpu": "4"}, "requests": {"memory": "6Gi"}}})
        resources = container(world)["resources"]
        assert quantity(resources["limits"]["memory"]) == (8 << 30) + self.size_bytes(world)
        assert (resources["limits"]["cpu"], resources["requests"]) == ("4", {"memory": "6Gi"})
        assert "memory" not in container(made())["resources"]["limits"], "no limit is made up"

    @pytest.mark.parametrize(("instances", "mib"), [(3, 192), (2, 128)])
    def test_c77_the_reported_numbers(self, instances: int, mib: int) -> None:
        values = {"preprocessing": {"preprocessing_instance_count": str(instances)}}
        assert shared_memory_bytes(values, world_size=1) == mib * MIB


class TestAnEngineThatIsNotWhatItsRecordSays:
    """Its files are as they were published, so that no checksum finds it."""

    def complain(self, world: World, reason: str = "EngineMismatch") -> str:
        """The servers of one generation start again and cannot load their engine."""
        name: str = next(t["artifact"] for t in state(world)["status"]["targets"] if t["name"] == "h100")
        failure = {"reason": reason, "message": "for 8.9, and the GPU has 9.0", "retryable": True, "artifact": name}
        (pod,) = (p for p in world.find(POD) if label(p, TARGET) == "h100")
        ended = {"exitCode": 75, "message": json.dumps({"failure": failure}), "finishedAt": world.stamp()}
        status = {"name": "triton", "image": "i", "ready": False, "restartCount": 1, "lastState": {"terminated": ended}}
        world.set_status(pod, {"containerStatuses": [status]})
        return name

    def status(self, world: World, name: str) -> dict[str, Any]:
        found = world.get(ENGINE_ARTIFACT, name)
        assert found is not None
        return dict(found["status"])

    @pytest.mark.parametrize("reason", ["EngineMismatch", "VersionMismatch"])
    def test_c16_it_is_put_aside_unread_and_built_again_once(self, reason: str) -> None:
        world = made()
        world.pass_time(60)
        name = self.complain(world, reason)
        assert name in world.published, "it is whole"
        world.run_jobs()
        assert self.status(world, name)["attempt"] == 2
        assert self.status(world, name)["damage"]["unfit"] is True
        assert name in world.published
        others = {a["metadata"]["name"]: a["status"]["attempt"] for a in world.find(ENGINE_ARTIFACT)}
        assert {attempt for other, attempt in others.items() if other != name} == {1}

    def test_c16_a_pod_that_is_older_than_the_new_engine_speaks_of_the_one_before(self) -> None:
        """Its own copy of a bucket's engine stays the old one."""
        world = made()
        world.pass_time(60)
        name = self.complain(world)
        world.run_jobs()
        world.pass_time(600)
        self.complain(world)
        world.run_jobs()
        assert self.status(world, name)["attempt"] == 2

    def test_c16_what_is_so_again_within_a_day_waits_for_a_person(self) -> None:
        world = made()
        world.pass_time(60)
        name = self.complain(world)
        world.run_jobs()
        world.pass_time(600)
        for pod in world.find(POD):
            if label(pod, TARGET) == "h100":
                world.delete(pod)
        for deployment in world.find(DEPLOYMENT):
            world.serve(deployment)
        self.complain(world)
        world.run_jobs()
        assert self.status(world, name)["phase"] == "Failed"
        conditions = {c["type"]: c["status"] for c in self.status(world, name)["conditions"]}
        assert conditions["Stalled"] == "True"
