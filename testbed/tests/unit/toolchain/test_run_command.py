"""run.py: what the runner relies on when it tries a finished engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from trtllm_standin.run_command import main

from testbed.tests.unit.toolchain.standin import gpu

Engine = Callable[..., Path]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    directory = tmp_path / "tokenizer"
    directory.mkdir()
    words = Tokenizer(WordLevel({f"w{number}": number for number in range(50)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    words.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    return directory


def run(engine: Path, tokenizer: Path, *more: str) -> int:
    words = ["--engine_dir", str(engine), "--tokenizer_dir", str(tokenizer), "--max_output_len", "1", *more]
    return main([*words, "--input_text", "w7 w8"])


def test_one_token_is_generated_and_printed(
    engine: Engine, tokenizer: Path, h100: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(engine(), tokenizer) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 'Input [Text 0]: "w7 w8"' in lines
    (generated,) = [line for line in lines if line.startswith("Output [Text 0 Beam 0]: ")]
    assert generated.removeprefix("Output [Text 0 Beam 0]: ").strip('"').startswith("w")


def test_an_engine_that_does_not_load_ends_with_the_runtime_s_words(
    engine: Engine, tokenizer: Path, h100: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = engine()
    monkeypatch.setenv("LLMENGINE_STANDIN_GPUS", json.dumps([gpu("NVIDIA A100-SXM4-80GB", "8.0")]))
    assert run(built, tokenizer) == 1
    assert "expecting compute 8.0 got compute 9.0" in capsys.readouterr().err


def test_without_a_gpu_it_fails(engine: Engine, tokenizer: Path, h100: None, monkeypatch: pytest.MonkeyPatch) -> None:
    built = engine()
    monkeypatch.delenv("LLMENGINE_STANDIN_GPUS")
    assert run(built, tokenizer) == 1


def test_tokens_go_to_a_file_where_one_is_named(engine: Engine, tokenizer: Path, tmp_path: Path, h100: None) -> None:
    assert run(engine(), tokenizer, "--output_csv", str(tmp_path / "out.csv")) == 0
    first, second, generated = (tmp_path / "out.csv").read_text().strip().split(",")
    assert (first, second) == ("7", "8")
    assert 0 <= int(generated) < 50
