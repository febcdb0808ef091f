"""`why-rebuild`: artifacts and LLMEngines of a cluster and of files, as the simulation's operator has made them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.unit.engines.simulation import NAMESPACE, World, engine
from trtllm_operator.cli import cluster, rebuild_cluster
from trtllm_operator.cli.errors import UNREACHABLE, CliError
from trtllm_operator.cli.main import app
from trtllm_operator.kube.resource import NODE, Obj, Resource
from trtllm_operator.objects import label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT

H100 = {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "replicas": 1}
LONGER = {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 4096, "maxNumTokens": 2048}
Write = Callable[[Obj], str]


class FakeCluster:
    """The simulation's API server."""

    namespace = NAMESPACE

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[str] = []

    def objects(self, resource: Resource, namespace: str = "", label_selector: str = "") -> list[Obj]:
        self.asked.append(resource.plural)
        found = self.world.find(resource) if namespace in ("", NAMESPACE) else []
        key, _, value = label_selector.partition("=")
        return [o for o in found if not key or label(o, key) == value]


@pytest.fixture
def world() -> World:
    made = World()
    made.put(engine())
    made.run_everything()
    return made


@pytest.fixture
def fake(world: World, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    found = FakeCluster(world)
    monkeypatch.setattr(rebuild_cluster, "Cluster", lambda: found)
    return found


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(document: Obj) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return to_file


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["why-rebuild", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def compared(*arguments: str) -> dict[tuple[str, str], dict[str, Any]]:
    code, out, err = run(*arguments, "-o", "json")
    assert code == 0, err
    return {(a["type"], ",".join(a["targets"])): a for a in json.loads(out)["artifacts"]}


def names(world: World) -> set[str]:
    return {a["metadata"]["name"] for a in world.find(ENGINE_ARTIFACT)}


def test_the_same_spec_rebuilds_nothing(fake: FakeCluster, write: Write) -> None:
    code, out, _ = run(write(engine()), "llmengine/smol")
    assert code == 0
    assert out.splitlines()[0].endswith(": nothing is built")
    assert out.count("the same") == 4, "one model, one checkpoint and two engines"


@pytest.mark.parametrize("kind", ["llmengine", "llmengines", "llme", "llmengine.llmengine.dev"])
def test_a_changed_limit_rebuilds_the_engines_under_the_very_names_that_the_operator_gives_them(
    world: World, fake: FakeCluster, write: Write, kind: str
) -> None:
    before = names(world)
    found = compared(write(engine(budgets=LONGER)), f"{kind}/smol")
    assert [key for key, a in found.items() if a["rebuild"]] == [("Engine", "a100"), ("Engine", "h100")]
    changed = found["Engine", "h100"]
    assert changed["differences"] == [{"input": "--max_seq_len", "before": "2048", "after": "4096"}]
    world.put(engine(budgets=LONGER))
    world.run_everything()
    assert {a["after"] for a in found.values() if a["rebuild"]} == names(world) - before
    assert fake.asked.count(NODE.plural) == 0, "which takes a right that not everybody has"


def test_the_order_of_manifest_and_cluster_does_not_matter(fake: FakeCluster, write: Write) -> None:
    manifest = write(engine(budgets=LONGER))
    assert run("llmengine/smol", manifest) == run(manifest, "llmengine/smol")
    code, out, _ = run(manifest, "llmengine/smol")
    assert (code, out.splitlines()[0]) == (0, f"llmengine/smol -> {manifest}: 2 artifacts are built")
    assert any(line.split() == ["--max_seq_len", "2048", "4096"] for line in out.splitlines())


def test_the_page_shows_what_is_printed(
    world: World, fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(engine("smollm2"))
    world.run_everything()
    (tmp_path / "engine.yaml").write_text(yaml.safe_dump(engine("smollm2", budgets=LONGER)))
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    printed = run("engine.yaml", "llmengine/smollm2")[1]
    shown = textwrap.indent(printed, "    ", lambda line: bool(line.strip()))
    assert f"    $ llmengine why-rebuild engine.yaml llmengine/smollm2\n{shown}\n" in page


def test_what_an_engine_does_not_depend_on_rebuilds_nothing(fake: FakeCluster, write: Write) -> None:
    found = compared(write(engine(serving={"maxQueueSize": 5})), "llmengine/smol")
    assert not any(a["rebuild"] for a in found.values())


def test_what_is_in_the_store_already_is_not_built_again(world: World, fake: FakeCluster, write: Write) -> None:
    world.put(engine(budgets=LONGER))
    world.run_everything()
    out = run(write(engine()), "llmengine/smol")[1]
    assert out.splitlines()[0].endswith(": nothing is built")
    assert out.count(", is there") == 2


def test_targets_that_come_and_go(fake: FakeCluster, write: Write) -> None:
    l40s = {"name": "l40s", "gpu": {"product": "NVIDIA-L40S"}}
    found = compared(write(engine(targets=[H100, l40s])), "llmengine/smol")
    assert found["Engine", "l40s"]["before"] is None
    assert found["Engine", "l40s"]["rebuild"]
    assert found["Engine", "a100"]["after"] is None
    assert not found["Engine", "a100"]["rebuild"]
    assert not found["Engine", "h100"]["rebuild"]


def test_targets_for_every_gpu_ask_for_the_nodes(fake: FakeCluster, write: Write) -> None:
    found = compared(write(engine(targets=[{"name": "all", "gpu": {"any": {}}}])), "llmengine/smol")
    assert NODE.plural in fake.asked
    assert [a["targets"] for a in found.values() if a["type"] == "Engine" and a["rebuild"]] == []
    there = [a for a in found.values() if a["type"] == "Engine" and a["after"]]
    assert len(there) == 2, "other targets, and the engines that are there"


def test_texts_that_are_not_inspected_yet_leave_the_name_open(world: World, fake: FakeCluster, write: Write) -> None:
    def calibrated(path: str) -> Obj:
        dataset = {"persistentVolumeClaim": {"claimName": "texts", "path": path}}
        return engine(targets=[H100], precision={"quantization": "fp8", "calibration": {"dataset": dataset}})

    world.put(calibrated("chat"))
    world.run_everything()
    assert not any(a["rebuild"] for a in compared(write(calibrated("chat")), "llmengine/smol").values())
    code, out, _ = run(write(calibrated("news")), "llmengine/smol")
    assert code == 0
    (checkpoint,) = [line for line in out.splitlines() if line.startswith("  Checkpoint")]
    assert checkpoint.endswith("not known yet")
    assert any(line.split()[:3] == ["calibration.path", "chat", "news"] for line in out.splitlines())


def test_a_manifest_that_is_refused_exits_1(fake: FakeCluster, write: Write) -> None:
    manifest = write(engine(parallelism={"tensor": 2}))
    code, _, err = run(manifest, "llmengine/smol")
    assert code == 1
    assert err == f"llmengine: {manifest} is refused for a100, h100: llmengine plan -f {manifest} says why\n"


def test_artifacts_of_the_cluster(world: World, fake: FakeCluster, write: Write) -> None:
    first, second = sorted(n for n in names(world) if n.startswith("engine-"))
    code, out, _ = run(f"eart/{first}", f"engineartifact.llmengine.dev/{second}", "-n", NAMESPACE)
    assert code == 0
    assert out.splitlines()[0] == f"{first} -> {second}"
    assert "gpu.product" in out
    stored = next(a for a in world.find(ENGINE_ARTIFACT) if a["metadata"]["name"] == first)
    assert run(write(stored), f"eart/{first}")[1] == f"the same artifact: {first}\n"


def test_two_engines_of_the_cluster(world: World, fake: FakeCluster) -> None:
    world.put(engine("longer", budgets=LONGER))
    world.run_everything()
    code, out, _ = run("llmengine/smol", "llmengine/longer")
    assert code == 0
    assert out.splitlines()[0] == "llmengine/smol -> llmengine/longer: nothing is built"
    assert out.count("--max_seq_len") == 1, "said once for both targets"


def test_two_manifests_need_no_cluster(
    monkeypatch: pytest.MonkeyPatch, write: Write, tmp_path: Path, world: World
) -> None:
    from trtllm_operator.cli import rebuild_applied
    from trtllm_operator.cli.judged import Model
    from trtllm_operator.planning.model import ModelFacts
    from trtllm_operator.reconcile.watches import LLM_ENGINE

    def no_cluster() -> Any:
        raise AssertionError("a cluster was asked")

    monkeypatch.setattr(cluster, "Cluster", no_cluster)
    monkeypatch.setattr(rebuild_cluster, "Cluster", no_cluster)
    status = world.find(LLM_ENGINE)[0]["status"]["model"]
    facts = Model(ModelFacts.from_facts(status["facts"]), "c" * 40)
    monkeypatch.setattr(rebuild_applied, "model_of", lambda *_: facts)
    before, after = write(engine()), write(engine(budgets=LONGER))
    code, out, _ = run(before, after)
    assert code == 0
    assert out.splitlines()[0] == f"{before} -> {after}: 2 artifacts are built"
    (model,) = [line for line in out.splitlines() if line.startswith("  Model")]
    assert model.split()[3] in names(world)
    assert "not known yet" in out, "without the toolchain image's digest"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("eart/engine-0", "eart/engine-1"), "namespace team has no EngineArtifact engine-0; it has checkpoint-"),
        (("llmengine/none", "llmengine/smol"), "namespace team has no LLMEngine none; it has smol"),
        (("pod/smol", "llmengine/smol"), "pod/smol can't be read"),
        (("llmengine/new", "llmengine/smol"), "LLMEngine new has no artifacts yet (the operator has not looked at it)"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_exit_3(
    world: World, fake: FakeCluster, words: tuple[str, str], says: str
) -> None:
    if "llmengine/new" in words:
        world.put(engine("new"))
    code, _, err = run(*words)
    assert code == 3
    assert says in err
    assert err.count("\n") == 1


def test_an_artifact_and_an_engine_are_not_compared(world: World, fake: FakeCluster) -> None:
    name = sorted(names(world))[0]
    code, _, err = run(f"eart/{name}", "llmengine/smol")
    assert code == 3
    assert f"eart/{name} is an artifact and llmengine/smol is an LLMEngine: compare two" in err


def test_a_cluster_that_cannot_be_reached_exits_4(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> Any:
        raise CliError("no cluster: no configuration", UNREACHABLE)

    monkeypatch.setattr(rebuild_cluster, "Cluster", unreachable)
    assert run("llmengine/a", "llmengine/b") == (4, "", "llmengine: no cluster: no configuration\n")
