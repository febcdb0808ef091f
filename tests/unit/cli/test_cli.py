"""The command line: verdicts, exit codes, and one clear line for everything that can't be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.unit.artifacts.world import CONFIG, node
from tests.unit.engines.simulation import REPORT, World, engine
from tests.unit.planning.build import SMOLLM2
from trtllm_operator.cli import cluster
from trtllm_operator.cli.errors import UNREACHABLE, CliError
from trtllm_operator.cli.main import app
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT

SPEC: dict[str, Any] = {
    "model": {"huggingFace": {"repo": "org/model"}},
    "release": "1.2.1",
    "budgets": {"maxBatchSize": 8, "maxInputLen": 1024, "maxSeqLen": 2048, "maxNumTokens": 2048},
    "targets": [{"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}],
    "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
}

ENGINE = "kind: LLMEngine\napiVersion: llmengine.dev/v1alpha1"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(SMOLLM2))
    return directory


@pytest.fixture
def manifest(tmp_path: Path) -> Any:
    def write(text: str | None = None, **spec: Any) -> str:
        document = {"apiVersion": "llmengine.dev/v1alpha1", "kind": "LLMEngine", "metadata": {"name": "smol"}}
        path = tmp_path / "engine.yaml"
        path.write_text(text if text is not None else yaml.safe_dump(document | {"spec": SPEC | spec}))
        return str(path)

    return write


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_spec_that_works_says_what_is_built_and_exits_0(model: Path, manifest: Any) -> None:
    code, out, _ = run("plan", "-f", manifest(), "--model", str(model))
    assert code == 0
    assert "target h100 on NVIDIA-H100-80GB-HBM3 (9.0): works" in out
    assert "convert_checkpoint.py --model_dir {parent}" in out
    assert "kv_cache_bytes_per_token" in out
    assert "concurrent_requests_at_limit  8 requests" in out
    assert "names follow from the model's commit (spec.model.huggingFace.revision) and the toolchain image" in out
    assert "\x1b[" not in out, "no color where no terminal is"


def test_a_spec_that_does_not_work_lists_every_failing_check_and_exits_1(model: Path, manifest: Any) -> None:
    spec = {"parallelism": {"tensor": 2}, "precision": {"quantization": "nvfp4"}}
    code, out, _ = run("plan", "-f", manifest(**spec), "--model", str(model))
    assert code == 1
    assert "9 attention heads do not divide by 2" in out
    assert "nvfp4 does not work on NVIDIA-H100-80GB-HBM3" in out
    assert "passes with precision.quantization none and parallelism.tensor" in out
    assert "nothing is built" in out


def test_artifacts_are_named_as_the_operator_names_them(model: Path, manifest: Any) -> None:
    """The simulation's operator makes these very names of this spec, commit and image."""
    world = World()
    made = engine()
    world.put(made)
    world.run_everything()
    hub = made["spec"]["model"]["huggingFace"] | {"revision": "c" * 40}
    spec = made["spec"] | {"model": {"huggingFace": hub}}
    (model / "config.json").write_text(json.dumps(REPORT["config"]))
    image = CONFIG.toolchain_images["1.2.1"]
    code, out, _ = run("plan", "-f", manifest(**spec), "--model", str(model), "--image", image, "-o", "json")
    assert code == 0
    planned = {a["name"]: a for a in json.loads(out)["artifacts"]}
    live = {a["metadata"]["name"]: a for a in world.find(ENGINE_ARTIFACT)}
    assert set(planned) == set(live)
    for name, artifact in planned.items():
        (builder, *_) = world.observe(live[name]).builders or ()
        planned_for = builder.policy.planned
        assert artifact["timeoutSeconds"] == builder.policy.timeout_seconds
        if artifact["type"] != "Model":
            assert planned_for is not None
            assert artifact["hostMemoryBytes"] == planned_for.host_memory_bytes
            assert artifact["scratchBytes"] == planned_for.ephemeral_storage_bytes
    shared = next(a for a in planned.values() if a["type"] == "Checkpoint")
    assert shared["targets"] == ["a100", "h100"]


def test_a_target_of_its_own_precision_is_judged_by_it(model: Path, manifest: Any) -> None:
    targets = [
        {"name": "a100", "gpu": {"product": "NVIDIA-A100-SXM4-80GB"}},
        {"name": "h100", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "precision": {"quantization": "fp8"}},
    ]
    code, out, _ = run("plan", "-f", manifest(targets=targets), "--model", str(model))
    assert code == 0, "the A100, which has no FP8, is not asked for it"
    assert "bfloat16, quantization fp8, KV cache auto" in out
    assert "bfloat16, quantization none, KV cache auto" in out


def test_the_median_counts_requests(model: Path, manifest: Any) -> None:
    budgets = SPEC["budgets"] | {"maxBatchSize": 60_000, "maxSeqLen": 8192}
    command = ["plan", "-f", manifest(budgets=budgets), "--model", str(model), "-o", "json"]

    def at_p50(*more: str) -> int:
        numbers = json.loads(run(*command, *more)[1])["targets"][0]["numbers"]
        return int(next(n["value"] for n in numbers if n["name"] == "concurrent_requests_at_p50"))

    assert at_p50("--p50", "4096") == at_p50(), "half of maxSeqLen for want of a measured one"
    assert at_p50("--p50", "512") == pytest.approx(8 * at_p50(), abs=8)


@pytest.mark.parametrize(("output", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_plan_for_programs(model: Path, manifest: Any, output: str, load: Any) -> None:
    code, out, _ = run("plan", "-f", manifest(), "--model", str(model), "-o", output)
    assert code == 0
    plan = load(out)
    assert plan["ok"] is True
    numbers = {n["name"]: n for n in plan["targets"][0]["numbers"]}
    assert numbers["kv_cache_bytes_per_token"]["value"] == 23_040
    assert numbers["kv_cache_bytes_per_token"]["unit"] == "B"
    assert [a["type"] for a in plan["artifacts"]] == ["Model", "Checkpoint", "Engine"]


def test_texts_on_a_claim_leave_the_names_open_that_depend_on_them(model: Path, manifest: Any) -> None:
    dataset = {"persistentVolumeClaim": {"claimName": "texts", "path": "chat"}}
    spec = {
        "model": {"huggingFace": {"repo": "org/model", "revision": "c" * 40}},
        "precision": {"quantization": "fp8", "calibration": {"dataset": dataset}},
    }
    asked = ("plan", "-f", manifest(**spec), "--model", str(model), "--image", CONFIG.toolchain_images["1.2.1"])
    code, out, _ = run(*asked)
    assert code == 0
    said = "the digest of the texts in chat on claim texts, which the operator reads before it builds"
    assert f"names follow from {said}\n" in out
    code, out, _ = run(*asked, "-o", "json")
    assert [a["name"] is None for a in json.loads(out)["artifacts"]] == [False, True, True]
    code, out, _ = run("plan", "-f", manifest(**spec | {"model": SPEC["model"]}), "--model", str(model))
    assert f"(spec.model.huggingFace.revision), the toolchain image's digest (--image) and {said}\n" in out


@pytest.mark.parametrize("name", ["smollm2", "llama-3.1-8b"])
def test_the_samples_can_be_planned(model: Path, name: str) -> None:
    """smollm2.yaml holds a claim beside its LLMEngine."""
    sample = Path(__file__).parents[3] / "manifests" / "samples" / f"{name}.yaml"
    code, out, err = run("plan", "-f", str(sample), "--model", str(model))
    assert code == 0, out + err


def test_explain_derives_one_number(model: Path, manifest: Any) -> None:
    code, out, _ = run("explain", "-f", manifest(), "kv_cache_bytes_per_token", "--model", str(model))
    assert code == 0
    assert "2 (K and V) x 30 layers x 3 KV heads x 64 x 2 B" in out
    code, _, err = run("explain", "-f", manifest(), "kv_cache", "--model", str(model))
    assert code == 3
    assert "no number is called kv_cache; there are activation_bytes" in err


def test_fits_shows_what_works(model: Path) -> None:
    code, out, _ = run("fits", str(model), "--gpu", "NVIDIA-L4", "--gpu", "NVIDIA-B200", "-o", "json")
    assert code == 0
    rows = json.loads(out)
    assert {(r["gpu"], r["tensorParallel"]) for r in rows} == {
        ("NVIDIA-L4", 1), ("NVIDIA-L4", 3), ("NVIDIA-B200", 1), ("NVIDIA-B200", 3)
    }  # fmt: skip
    assert {r["quantization"] for r in rows if r["gpu"] == "NVIDIA-B200"} >= {"none", "fp8"}
    assert all(r["ok"] and r["longestSequence"] == 8192 for r in rows)


def test_fits_says_why_nothing_works(model: Path) -> None:
    code, out, _ = run("fits", str(model), "--gpu", "Tesla-T4")
    assert code == 1
    assert "works with none of these GPUs" in out
    assert "does not support compute capability 7.5" in out


def test_fits_says_once_what_no_combination_of_a_gpu_passes(model: Path) -> None:
    """GPT-2's 1,024 positions are a table: 2,048 tokens work with no precision and no number of GPUs."""
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
        "n_layer": 12, "n_positions": 1024, "vocab_size": 50257,
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(config))
    code, out, _ = run("fits", str(model), "--gpu", "NVIDIA-L4", "--gpu", "NVIDIA-L40S")
    assert code == 1
    assert [row.partition(":")[0] for row in out.splitlines()[1:]] == ["NVIDIA-L4", "NVIDIA-L40S"]
    assert out.count("above the model's 1,024 positions") == 2
    code, out, _ = run("fits", str(model), "--gpu", "NVIDIA-L4", "--tokens", "1024")
    assert code == 0


def test_fits_does_not_know_the_cache_of_a_gpu_of_unknown_memory(model: Path) -> None:
    code, out, _ = run("fits", str(model), "--gpu", "NVIDIA-L20")
    assert code == 0
    assert out.splitlines()[1].split()[-3:] == ["unknown"] * 3
    row = json.loads(run("fits", str(model), "--gpu", "NVIDIA-L20", "-o", "json")[1])[0]
    assert row["kvCacheTokens"] is row["longestSequence"] is row["concurrentRequests"] is None


def test_fits_takes_no_more_tokens_than_a_spec(model: Path) -> None:
    assert run("fits", str(model), "--gpu", "NVIDIA-L4", "--tokens", "16777217")[0] == 2
    assert run("fits", str(model), "--gpu", "NVIDIA-L4", "--tokens", "16777216")[0] in (0, 1)


def test_fits_keeps_to_what_a_family_allows(model: Path) -> None:
    """Gemma 2 of 16 heads, 8 of them K and V: no more ranks than those, and no more tokens than its README allows."""
    config = {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "num_hidden_layers": 42, "head_dim": 256,
        "num_attention_heads": 16, "num_key_value_heads": 8, "hidden_size": 3584, "intermediate_size": 14336,
        "vocab_size": 256000, "max_position_embeddings": 8192, "sliding_window": 4096, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(config))
    code, out, _ = run("fits", str(model), "--gpu", "NVIDIA-H100-80GB-HBM3", "-o", "json")
    assert code == 0
    rows = json.loads(out)
    assert {r["tensorParallel"] for r in rows} == {1, 2, 4, 8}
    assert {r["longestSequence"] for r in rows} == {4096}
    assert {r["kvCache"] for r in rows if r["quantization"] == "none"} == {"auto"}
    code, out, _ = run("fits", str(model), "--gpu", "NVIDIA-H100-80GB-HBM3", "--tokens", "8192")
    assert code == 1
    assert "maxSeqLen 8,192 is above the 4,096 tokens that the release allows gemma2 models" in out


def artifact(tmp_path: Path, name: str, **changes: Any) -> str:
    inputs = {
        "parent": "checkpoint-0123456789abcdef0123",
        "command": ["trtllm-build", "--max_seq_len", "2048", "--workers", "1"],
        "storage": {"persistentVolumeClaim": {"claimName": "engines"}},
    }
    path = tmp_path / name
    path.write_text(yaml.safe_dump({"spec": {"type": "Engine", "inputs": inputs | changes}}))
    return str(path)


def test_why_rebuild_names_the_inputs_that_differ(tmp_path: Path) -> None:
    before = artifact(tmp_path, "a.yaml")
    command = ["trtllm-build", "--max_seq_len", "4096", "--workers", "1", "--fast_build"]
    after = artifact(tmp_path, "b.yaml", command=command, parent="checkpoint-ffffffffffffffffffff")
    code, out, _ = run("why-rebuild", before, after, "-o", "json")
    assert code == 0
    assert json.loads(out)["differences"] == [
        {"input": "parent", "before": "checkpoint-0123456789abcdef0123", "after": "checkpoint-ffffffffffffffffffff"},
        {"input": "--max_seq_len", "before": "2048", "after": "4096"},
        {"input": "--fast_build", "before": "(absent)", "after": "(given)"},
    ]
    assert "the same artifact" in run("why-rebuild", before, before)[1]


def test_what_the_catalog_knows(tmp_path: Path) -> None:
    assert "1.2.1" in run("releases")[1]
    assert "H100-80GB-HBM3" in run("gpus")[1]
    flags = {f["name"]: f for f in json.loads(run("flags", "1.2.1", "trtllm-build", "-o", "json")[1])["flags"]}
    assert flags["--tokens_per_block"]["default"] == 32
    code, _, err = run("flags", "1.3.0", "trtllm-build")
    assert code == 3
    assert "no command trtllm-build; it has none" in err
    more = tmp_path / "configmap.yaml"
    data = {"gpus.yaml": "gpus: [{name: L20, memory_mib: 46068}]"}
    more.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": data}))
    listed = {g["name"]: g for g in json.loads(run("gpus", "--catalog", str(more), "-o", "json")[1])}
    assert listed["L20"]["memory_mib"] == 46068


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: b: c", "is not YAML"),
        ("", "holds nothing; give one llmengine.dev/v1alpha1 LLMEngine"),
        ("a: 1\n---\nkind: Pod", "holds an object without apiVersion and kind, Pod; give one llmengine.dev/v1alpha1"),
        (f"{ENGINE}\n---\n{ENGINE}", "LLMEngine, llmengine.dev/v1alpha1 LLMEngine; give one"),
        ("[1, 2]", "holds list, not an object"),
        ("[" * 20_000, "is not YAML"),
        ("kind: Pod\napiVersion: v1", "holds v1 Pod; give one llmengine.dev/v1alpha1 LLMEngine"),
        ("kind: LLMEngine\napiVersion: llmengine.dev/v1alpha1", "is no valid LLMEngine: spec"),
    ],
)
def test_a_file_that_is_no_manifest_is_one_line_and_exit_3(manifest: Any, text: str, says: str) -> None:
    code, _, err = run("plan", "-f", manifest(text))
    assert code == 3
    assert says in err
    assert err.count("\n") == 1, "one line"
    assert err.startswith("llmengine: ")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"release": "1.2.7"}, "release '1.2.7' is not in the catalog; it has"),
        ({"targets": [{"name": "x", "gpu": {"product": "RTX-9090"}}]}, "GPU RTX-9090 is not in the catalog"),
        (
            {"targets": [{"name": "x", "gpu": {"product": "H100"}}]},
            "GPU H100 is not in the catalog; it has NVIDIA-H100-80GB-HBM3, NVIDIA-H100-PCIe, NVIDIA-H100-NVL",
        ),
        ({"parallelism": {"tensor": -1}, "release": ""}, "spec.release: String should have"),
        ({"parallelism": {"tensor": -1}, "release": ""}, "spec.parallelism.tensor: Input should be greater"),
        ({"model": {}}, "takes exactly one of huggingFace and persistentVolumeClaim"),
        ({"color": "red"}, "spec.color: Extra inputs"),
        ({"targets": "h100"}, "spec.targets: Input should be a list"),
        ({"budgets": 8}, "spec.budgets: Input should be an object"),
        ({"budgets": SPEC["budgets"] | {"maxBatchSize": "8"}}, "spec.budgets.maxBatchSize: Input should be a valid"),
        ({"build": {"scaleFromZero": "true"}}, "spec.build.scaleFromZero: Input should be a valid boolean"),
    ],
)
def test_a_spec_that_is_wrong_is_one_line_and_exit_3(
    model: Path, manifest: Any, spec: dict[str, Any], says: str
) -> None:
    code, _, err = run("plan", "-f", manifest(**spec), "--model", str(model))
    assert code == 3
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "has no config.json"),
        ("{", "config.json is not JSON"),
        ("[]", "config.json is not a JSON object"),
        (json.dumps(SMOLLM2 | {"num_attention_heads": 0}), "num_attention_heads is 0"),
        (json.dumps(SMOLLM2 | {"num_hidden_layers": 10**12}), "num_hidden_layers is 1000000000000"),
        (json.dumps(SMOLLM2 | {"hidden_size": "576"}), "hidden_size is '576', not a whole number"),
        (json.dumps(SMOLLM2).replace("576", "NaN"), "no hidden_size"),
        (json.dumps(SMOLLM2 | {"vocab_size": None}), "no vocab_size at any known place"),
        ('{"a":' * 100_000, "config.json is not JSON: maximum recursion depth"),
        ('{"hidden_size": 1' + "0" * 5000 + "}", "config.json is not JSON: Exceeds the limit"),
    ],
)
def test_a_model_that_can_not_be_read_is_one_line_and_exit_3(
    tmp_path: Path, manifest: Any, content: str | None, says: str
) -> None:
    directory = tmp_path / "bad"
    directory.mkdir()
    if content is not None:
        (directory / "config.json").write_text(content)
    code, _, err = run("plan", "-f", manifest(), "--model", str(directory))
    assert code == 3
    assert says in err
    assert err.count("\n") == 1


def test_weights_that_are_cut_off_are_one_line(model: Path, manifest: Any) -> None:
    (model / "tokenizer.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"\xff" * 20)
    code, _, err = run("plan", "-f", manifest(), "--model", str(model))
    assert code == 3
    assert "model.safetensors is not a safetensors file" in err


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"model.safetensors": b""}, "model.safetensors is not a safetensors file: a file of 0 bytes"),
        ({"model.safetensors": b"\0" * 6 + b"\1\0"}, "a header of 281474976710656 bytes in a file of 8"),
        ({"pytorch_model.bin": b"x"}, "its weights are pickles (pytorch_model.bin)"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "a.safetensors"}}'}, "names a.safetensors, which"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": {}, "b": 1}}'}, "index.json is damaged"),
    ],
)
def test_weights_that_the_operator_refuses_are_one_line(
    model: Path, manifest: Any, files: dict[str, bytes], says: str
) -> None:
    for name, content in {"tokenizer.json": b"{}", **files}.items():
        (model / name).write_bytes(content)
    code, _, err = run("plan", "-f", manifest(), "--model", str(model))
    assert code == 3
    assert says in err
    assert err.count("\n") == 1


def test_weights_without_a_tokenizer_are_refused_as_the_operator_does(model: Path, manifest: Any) -> None:
    (model / "model.safetensors").write_bytes(b"\2" + b"\0" * 7 + b"{}")
    code, _, err = run("plan", "-f", manifest(), "--model", str(model))
    assert code == 3
    assert "the model has no tokenizer: none of tokenizer.json" in err


def test_a_model_on_a_claim_needs_its_files(manifest: Any) -> None:
    code, _, err = run("plan", "-f", manifest(model={"persistentVolumeClaim": {"claimName": "c", "path": "m"}}))
    assert code == 3
    assert "give its files or its repository with --model" in err


def test_no_network_is_one_line_and_exit_4(manifest: Any, tmp_path: Path) -> None:
    code = (
        "import os, sys; os.environ['HF_ENDPOINT'] = 'http://127.0.0.1:9'; os.environ['HF_HOME'] = sys.argv[2];"
        "sys.argv = ['llmengine', 'plan', '-f', sys.argv[1]];"
        "from trtllm_operator.cli.main import app; app()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, manifest(), str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 4, found.stderr
    assert "http://127.0.0.1:9 cannot be reached" in found.stderr
    assert found.stderr.count("\n") == 1
    assert "Traceback" not in found.stderr


class Gated(BaseHTTPRequestHandler):
    """A hub that knows every repository and shows none of them."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("X-Error-Message", "Access to model org/model is restricted.")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Not into the test's output."""


def test_a_gated_model_without_a_token_is_one_line_and_exit_4(manifest: Any, tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Gated) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = subprocess.run(
            [sys.executable, "-m", "trtllm_operator.cli.main", "plan", "-f", manifest()],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        server.shutdown()
    assert done.returncode == 4, done.stderr
    assert "org/model" in done.stderr
    assert "token" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_cluster_says_what_its_nodes_have(model: Path, manifest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {
        "nvidia.com/gpu.product": "RTX-9090",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.memory": "2000",
        "nvidia.com/gpu.count": "2",
    }
    monkeypatch.setattr(cluster, "nodes", lambda: [{"metadata": {"name": "n", "labels": labels}}])
    file = manifest(targets=[{"name": "x", "gpu": {"product": "RTX-9090"}}])
    code, out, _ = run("plan", "-f", file, "--model", str(model), "--server", "-o", "json")
    numbers = {n["name"]: n["value"] for n in json.loads(out)["targets"][0]["numbers"]}
    assert numbers["gpu_memory_bytes"] == 2000 * 2**20
    assert code == 0


def planned(out: str) -> dict[str, bool]:
    """Whether each target works, by its name."""
    return {target["name"]: target["ok"] for target in json.loads(out)["targets"]}


def test_a_target_for_several_classes_is_judged_for_each_of_the_catalog(model: Path, manifest: Any) -> None:
    file = manifest(targets=[{"name": "hop", "gpu": {"computeCapability": "9.0"}}])
    code, out, _ = run("plan", "-f", file, "--model", str(model), "-o", "json")
    assert code == 0
    assert {"hop-h100-80gb-hbm3", "hop-h200"} <= planned(out).keys()
    file = manifest(targets=[{"name": "x", "gpu": {"computeCapability": "9.9"}}])
    code, _, err = run("plan", "-f", file, "--model", str(model))
    assert code == 3
    assert "target x: no GPU of the catalog is like that" in err


def test_a_node_selector_says_nothing_of_the_catalog_s_gpus(model: Path, manifest: Any) -> None:
    """Only a cluster's nodes have labels."""
    spec = {"targets": [{"name": "ada", "gpu": {"computeCapability": "8.9"}}]}
    everything = run("plan", "-f", manifest(**spec), "--model", str(model))
    pool = {"nodeSelector": {"example.com/pool": "gpu"}}
    selected = run("plan", "-f", manifest(**spec, build=pool, serving=pool), "--model", str(model))
    assert selected == everything
    assert selected[0] == 0


def test_of_several_classes_of_a_cluster_one_that_works_is_enough(
    model: Path, manifest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [node("a100", "NVIDIA-A100-SXM4-80GB", "8.0", 81920), node("h100", "NVIDIA-H100-80GB-HBM3")]
    monkeypatch.setattr(cluster, "nodes", lambda: there)
    file = manifest(targets=[{"name": "gpu", "gpu": {"any": {}}}], precision={"quantization": "fp8"})
    code, out, _ = run("plan", "-f", file, "--model", str(model), "--server", "-o", "json")
    assert code == 0
    assert planned(out) == {"gpu-a100-sxm4-80gb": False, "gpu-h100-80gb-hbm3": True}
    file = manifest(targets=[{"name": "b", "gpu": {"architecture": "blackwell"}}])
    code, _, err = run("plan", "-f", file, "--model", str(model), "--server")
    assert code == 3
    assert "no node has a GPU of architecture blackwell" in err
    assert "NVIDIA-H100-80GB-HBM3 (h100)" in err


def test_a_cluster_that_is_not_there_is_exit_4(model: Path, manifest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> list[dict[str, Any]]:
        raise CliError("no cluster: no kubeconfig", UNREACHABLE)

    monkeypatch.setattr(cluster, "nodes", nobody)
    code, _, err = run("plan", "-f", manifest(), "--model", str(model), "--server")
    assert code == 4
    assert err == "llmengine: no cluster: no kubeconfig\n"


def test_no_kubeconfig_is_one_line_and_nothing_on_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    says = "llmengine: no cluster: KUBECONFIG is not set and there is no ~/.kube/config\n"
    assert run("why", "smol", "-o", "json") == (4, "", says)


@pytest.mark.parametrize("content", ["a: [b", "- 1", "kind: Config", "text"])
def test_a_file_that_is_no_kubeconfig_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (tmp_path / "config").write_text(content)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    code, out, err = run("why", "smol")
    assert (code, out) == (4, "")
    assert err.startswith("llmengine: no cluster: ")
    assert err.count("\n") == 1


def test_a_wrong_command_line_is_exit_2() -> None:
    assert run("plan")[0] == 2
    assert run("plan", "-f", "x", "-o", "xml")[0] == 2


HEAVY = {"kopf", "aiohttp", "kubernetes", "huggingface_hub", "httpx2", "obstore", "prometheus_client"}
"""What a plan of a local model has no use for, and what would make it slow to start."""


def test_a_plan_of_local_files_loads_nothing_heavy(model: Path, manifest: Any) -> None:
    """benchmarks/plan.py measures the time; this keeps what it depends on."""
    arguments = ["plan", "-f", manifest(), "--model", str(model)]
    program = (
        "import sys; from trtllm_operator.cli.main import app\n"
        f"sys.argv = ['llmengine', *{arguments!r}]\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        "print('loaded', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "works" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    assert loaded & HEAVY == set()
