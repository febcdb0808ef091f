from __future__ import annotations

import ast
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trtllm_operator import runner
from trtllm_operator.runner import package
from trtllm_operator.runner.package import build_zipapp

SOURCES = sorted(Path(runner.__file__).parent.glob("*.py"))
MAX_CONFIG_MAP_BYTES = 1 << 20


def test_the_same_sources_give_the_same_bytes_wherever_and_whenever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_zipapp()
    for source in SOURCES:
        copy = tmp_path / source.name
        shutil.copyfile(source, copy)
        os.utime(copy, (1, 1))
        copy.chmod(0o600)
    monkeypatch.setattr(package, "__file__", str(tmp_path / "package.py"))
    assert build_zipapp() == first, "the runner's digest must depend on its sources alone: it is part of every revision"


def test_it_fits_a_config_map_as_base64() -> None:
    assert len(build_zipapp()) * 4 / 3 < MAX_CONFIG_MAP_BYTES / 2


def test_it_does_not_carry_its_own_builder() -> None:
    names = zipfile.ZipFile(io.BytesIO(build_zipapp())).namelist()
    assert "llmengine_runner/serve.py" in names
    assert "llmengine_runner/package.py" not in names


def test_it_runs_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    path = tmp_path / "runner.pyz"
    path.write_bytes(build_zipapp())
    answer = subprocess.run([sys.executable, "-I", "-S", path, "--help"], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "convert" in answer.stdout


def test_it_imports_only_the_standard_library_and_parses_as_python_3_10() -> None:
    for source in SOURCES:
        tree = ast.parse(source.read_text(), feature_version=(3, 10))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            foreign = [name for name in names if name.split(".")[0] not in sys.stdlib_module_names]
            assert not foreign, f"{source.name} imports {foreign}, which the toolchain image need not have"
