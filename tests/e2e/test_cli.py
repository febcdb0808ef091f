"""`llmengine` beside a real operator: `plan` foretells what it builds, `why` shows where it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demo.kubectl import Kubectl, wait_for
from demo.stack import Stack, reference

from .smollm2 import H100, get, llmengine, wait_condition, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "hidden_size": 576, "intermediate_size": 1536, "vocab_size": 49152,
    "max_position_embeddings": 8192, "tie_word_embeddings": True, "torch_dtype": "float16",
}  # fmt: skip
"""What decides the commands of SmolLM2; the type is the one that the hub's copy has."""


def command(kubectl: Kubectl, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trtllm_operator.cli.main", *arguments],
        env=os.environ | {"KUBECONFIG": str(kubectl.kubeconfig), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def why(kubectl: Kubectl, name: str) -> dict[str, Any]:
    done = command(kubectl, "why", name, "-n", kubectl.namespace, "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ready"] is (done.returncode == 0)
    return found


def test_the_way_to_an_engine_is_shown_while_it_is_gone(namespace: Kubectl) -> None:
    namespace.apply(llmengine())
    seen: list[str] = []

    def missing() -> str | None:
        found = why(namespace, "smollm2")
        steps = [s for way in found["ways"] for s in way["steps"]]
        seen.extend(f"{s['what']} {s['state']} {s['where']}" for s in steps)
        return None if found["ready"] else str(found["block"])

    wait_for("why says that it is ready", missing, limit_seconds=240)
    engine = next((said for said in seen if said.startswith("Engine Running")), "")
    assert "Job engine-" in engine, f"the running build names its Job: {sorted(set(seen))}"
    assert "Pod engine-" in engine
    assert "on h100" in engine
    found = why(namespace, "smollm2")
    assert found["block"] is None
    target = next(way for way in found["ways"] if way["name"] == "target h100")
    assert {s["what"] for s in target["steps"]} == {"Model", "Checkpoint", "Engine", "Servers"}
    artifact = next(s["name"] for s in target["steps"] if s["what"] == "Engine")
    assert why(namespace, artifact)["facts"]["for"] == "smollm2/h100"


def test_plan_names_the_artifacts_that_the_operator_makes(stack: Stack, namespace: Kubectl, tmp_path: Path) -> None:
    wait_ready(namespace)
    pinned = llmengine()
    pinned["spec"]["model"]["huggingFace"]["revision"] = get(namespace)["status"]["model"]["revision"]
    (tmp_path / "engine.json").write_text(json.dumps(pinned))
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    image = reference(stack.images["toolchain-standin"])
    files = ("-f", str(tmp_path / "engine.json"), "--model", str(tmp_path), "--image", image)
    done = command(namespace, "plan", *files, "--server", "-o", "json")
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)
    live = {a["metadata"]["name"] for a in namespace.items("engineartifacts")}
    assert {a["name"] for a in planned["artifacts"]} <= live
    assert planned["targets"][0]["nodes"] == ["h100"]


def test_a_refused_spec_is_refused_alike_by_both_and_why_says_what_passes(namespace: Kubectl, tmp_path: Path) -> None:
    refused = llmengine("refused", parallelism={"tensor": 2}, targets=[H100])
    namespace.apply(refused)
    message = wait_condition(namespace, "Validated", "False", "refused")["message"]
    found = why(namespace, "refused")
    assert found["block"]["message"] == message
    assert "it passes with parallelism.tensor 1" in message
    (tmp_path / "engine.json").write_text(json.dumps(refused))
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    done = command(namespace, "plan", "-f", str(tmp_path / "engine.json"), "--model", str(tmp_path), "-o", "json")
    assert done.returncode == 1
    checks = json.loads(done.stdout)["targets"][0]["checks"]
    for check in (c for c in checks if not c["ok"] and c["severity"] == "error"):
        assert check["message"] in message, "word for word"
