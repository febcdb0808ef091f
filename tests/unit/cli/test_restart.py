"""`llmengine restart`: one annotation, and where to watch."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from trtllm_operator.cli import restart as module
from trtllm_operator.cli.main import app
from trtllm_operator.serving.restart import RESTART, restart_annotations, restart_of


class Remembering:
    """A cluster that remembers what it was asked to change."""

    namespace = "team"
    asked: tuple[Any, ...] = ()

    def annotate(self, resource: Any, namespace: str, name: str, annotations: dict[str, str]) -> None:
        Remembering.asked = (resource.kind, namespace, name, annotations)


@pytest.mark.parametrize(("options", "key"), [([], RESTART), (["--target", "h100"], restart_of("h100"))])
def test_it_annotates_the_llmengine_and_says_where_to_watch(
    monkeypatch: pytest.MonkeyPatch, options: list[str], key: str
) -> None:
    monkeypatch.setattr(module, "Cluster", Remembering)
    done = CliRunner().invoke(app, ["restart", "smol", *options])
    assert done.exit_code == 0, done.output
    assert "llmengine why smol -n team" in done.output
    kind, namespace, name, annotations = Remembering.asked
    assert (kind, namespace, name) == ("LLMEngine", "team", "smol")
    assert restart_annotations({"metadata": {"annotations": annotations}}, "h100", None) == annotations
    assert set(annotations) == {key}
