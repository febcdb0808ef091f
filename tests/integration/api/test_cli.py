"""`llmengine why` and `--server` against a real API server, and as a plugin of kubectl."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.cluster.apiserver import ApiServer
from tests.integration.api.kubectl import Kubectl
from tests.integration.api.objects import ENGINE, MINIMAL_ENGINE, changed

pytestmark = pytest.mark.apiserver

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "hidden_size": 576, "intermediate_size": 1536, "vocab_size": 49152,
}  # fmt: skip
PRODUCT = "NVIDIA-Nobody-Knows-It"


def llmengine(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trtllm_operator.cli.main", *arguments],
        env=os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_engine_that_no_operator_has_looked_at(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given=MINIMAL_ENGINE)
    done = llmengine(kubectl.kubeconfig, "why", "smollm2", "-n", kubectl.namespace, "-o", "json")
    assert done.returncode == 1, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["block"]["reason"] == "OperatorSilent"
    assert "does it watch this namespace" in said["block"]["change"]


def test_a_name_that_is_not_there_lists_those_that_are(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given=MINIMAL_ENGINE)
    done = llmengine(kubectl.kubeconfig, "why", "smollm3", "-n", kubectl.namespace)
    assert done.returncode == 3
    assert done.stderr == f"llmengine: namespace {kubectl.namespace} has no LLMEngine smollm3; it has smollm2\n"
    done = llmengine(kubectl.kubeconfig, "why", "engine-0123456789abcdef0123", "-n", kubectl.namespace)
    assert "has no EngineArtifact engine-0123456789abcdef0123; it has none" in done.stderr


def test_artifacts_of_the_cluster_are_compared(kubectl: Kubectl) -> None:
    longer = changed(ENGINE, "spec.inputs.command", ["trtllm-build", "--max_seq_len", "4096"])
    longer["metadata"]["name"] = "engine-ffffffffffffffffffff"
    for obj in (ENGINE, longer, MINIMAL_ENGINE):
        kubectl.ok("create", "-f", "-", given=obj)
    words = (f"eart/{ENGINE['metadata']['name']}", "engineartifacts.llmengine.dev/engine-ffffffffffffffffffff")
    done = llmengine(kubectl.kubeconfig, "why-rebuild", *words, "-n", kubectl.namespace, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert {d["input"] for d in json.loads(done.stdout)["differences"]} == {"--checkpoint_dir", "--max_seq_len"}
    done = llmengine(kubectl.kubeconfig, "why-rebuild", "llmengine/smollm2", words[0], "-n", kubectl.namespace)
    assert done.returncode == 3
    assert done.stderr.startswith("llmengine: LLMEngine smollm2 has no artifacts yet (")
    assert done.stderr.count("\n") == 1


def test_nodes_of_the_cluster_are_planned_for(kubectl: Kubectl, tmp_path: Path) -> None:
    labels = {
        "nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.memory": "24000", "nvidia.com/gpu.count": "2",
    }  # fmt: skip
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": kubectl.namespace, "labels": labels}}
    kubectl.ok("create", "-f", "-", given=node)
    engine = copy.deepcopy(MINIMAL_ENGINE)
    engine["spec"]["targets"] = [{"name": "new", "gpu": {"product": PRODUCT}}]
    (tmp_path / "engine.json").write_text(json.dumps(engine))
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    command = ("plan", "-f", str(tmp_path / "engine.json"), "--model", str(tmp_path), "-o", "json")
    done = llmengine(kubectl.kubeconfig, *command, "--server")
    assert done.returncode == 0, done.stderr
    target = json.loads(done.stdout)["targets"][0]
    assert target["nodes"] == [kubectl.namespace]
    assert next(n["value"] for n in target["numbers"] if n["name"] == "gpu_memory_bytes") == 24000 * 2**20
    alone = llmengine(kubectl.kubeconfig, *command)
    assert alone.returncode == 3
    assert f"GPU {PRODUCT} is not in the catalog" in alone.stderr
    kubectl.run("delete", "node", kubectl.namespace)


def test_a_cluster_that_does_not_answer_is_one_line_and_exit_4(installed: ApiServer, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    text = installed.kubeconfig.read_text()
    server = next(line.split()[1] for line in text.splitlines() if line.strip().startswith("server:"))
    kubeconfig.write_text(text.replace(server, "https://127.0.0.1:9"))
    done = llmengine(kubeconfig, "why", "smollm2")
    assert done.returncode == 4
    assert "the cluster can't be reached" in done.stderr
    assert done.stderr.count("\n") == 1
    done = llmengine(tmp_path / "absent", "why", "smollm2")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr


def test_kubectl_finds_it_as_a_plugin(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", "-", given=MINIMAL_ENGINE)
    beside = Path(sys.executable).parent
    if not (beside / "kubectl-llmengine").exists():
        pytest.skip("the package is not installed, so there is no kubectl-llmengine")
    done = subprocess.run(
        ["kubectl", "llmengine", "why", "smollm2", "-n", kubectl.namespace],
        env=os.environ | {"KUBECONFIG": str(kubectl.kubeconfig), "PATH": f"{beside}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("LLMEngine smollm2: not ready")
