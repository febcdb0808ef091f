"""docs/cli.md shows what the commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.unit.planning.build import SMOLLM2
from trtllm_operator.cli.main import app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- plan: (\{.*\}) -->\n\n((?:    .*\n|\n)+)", PAGE)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize(("changes", "shown"), EXAMPLES)
def test_every_line_of_an_example_is_printed(tmp_path: Path, changes: str, shown: str) -> None:
    """`...` at the end of a line stands for its rest."""
    sample = (ROOT / "manifests" / "samples" / "smollm2.yaml").read_text(encoding="utf-8")
    engine: dict[str, Any] = next(d for d in yaml.safe_load_all(sample) if d["kind"] == "LLMEngine")
    engine["spec"] |= json.loads(changes)
    (tmp_path / "engine.yaml").write_text(yaml.safe_dump(engine))
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    arguments = ["plan", "-f", str(tmp_path / "engine.yaml"), "--model", str(tmp_path)]
    printed = [line.rstrip() for line in CliRunner().invoke(app, arguments).stdout.splitlines()]
    for line in (text[4:].rstrip() for text in shown.splitlines() if text.strip() and "$ llmengine" not in text):
        start = line.removesuffix("...").rstrip()
        assert any(p == line or (start != line and p.startswith(start)) for p in printed), line


def test_every_command_is_on_the_page() -> None:
    commands = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    for name in commands:
        assert f"`{name}" in PAGE, f"{name} is missing in docs/cli.md"
