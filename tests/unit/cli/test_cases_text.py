"""Public reports about a model's small files, by their number: what `llmengine plan` says of a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.unit.planning.build import SMOLLM2

from .test_cli import SPEC, run


def planned(directory: Path, *options: str, **files: Any) -> tuple[int, str]:
    """Exit code and output, of a model whose files are given by name, with _ for the dot before json."""
    model = directory / "model"
    model.mkdir()
    contents = {"config.json": SMOLLM2, "tokenizer.json": {}} | {
        k.replace("_json", ".json"): v for k, v in files.items()
    }
    for name, content in contents.items():
        (model / name).write_text(json.dumps(content))
    manifest = directory / "engine.yaml"
    head = {"apiVersion": "llmengine.dev/v1alpha1", "kind": "LLMEngine", "metadata": {"name": "smol"}}
    manifest.write_text(yaml.safe_dump(head | {"spec": SPEC}))
    code, out, _ = run("plan", "-f", str(manifest), "--model", str(model), *options)
    return code, out


def test_c67_a_model_that_needs_code_is_refused_by_its_name(tmp_path: Path) -> None:
    code, out = planned(tmp_path, tokenizer_config_json={"auto_map": {"AutoTokenizer": ["tokenization_x.X", None]}})
    assert code == 1
    assert "auto_map of tokenizer_config.json names tokenization_x.X" in out
    assert "nothing is built" in out


def test_c70_end_tokens_are_in_the_plan_and_a_conflict_is_a_warning(tmp_path: Path) -> None:
    files = {
        "config_json": SMOLLM2 | {"eos_token_id": 151643},
        "generation_config_json": {"eos_token_id": [151645, 151643]},
        "tokenizer_config_json": {"eos_token": "<|im_end|>"},
    }
    code, out = planned(tmp_path, "-o", "json", **files)
    plan = json.loads(out)
    assert code == 0
    assert plan["model"]["facts"]["end_token_ids"] == "151645 151643"
    (check,) = (c for c in plan["targets"][0]["checks"] if c["id"] == "end-tokens")
    assert (check["ok"], check["severity"]) == (False, "warning")
    assert "where config.json says 151643" in check["message"]
