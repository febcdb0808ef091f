"""The catalog as a cluster corrects it: the files of a ConfigMap, good and broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trtllm_operator.catalog import CatalogError
from trtllm_operator.main import read_catalog

GPU = "gpus: [{name: L20, memory_mib: 46068}]"


def mounted(directory: Path, **files: str | bytes) -> Path:
    """Files as the kubelet mounts a ConfigMap: links into a hidden directory."""
    hidden = directory / "..2026_11_29"
    hidden.mkdir()
    (directory / "..data").symlink_to(hidden.name)
    for name, text in files.items():
        content = text.encode() if isinstance(text, str) else text
        (hidden / name).write_bytes(content)
        (directory / name).symlink_to(f"..data/{name}")
    return directory


def test_a_file_corrects_what_it_names_whatever_it_is_called(tmp_path: Path) -> None:
    for name in ("more.yaml", "more.yml", "gpus"):
        (tmp_path / name).mkdir()
        found = read_catalog(mounted(tmp_path / name, **{name: GPU})).gpu("NVIDIA-L20")
        assert found is not None
        assert found.memory_mib == 46068


def test_no_files_are_the_packaged_catalog(tmp_path: Path) -> None:
    assert read_catalog(tmp_path / "absent").release("1.2.1").builds_engines
    assert read_catalog(mounted(tmp_path)).release("1.2.1").builds_engines


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a: b: c", "catalog file bad.yaml is not YAML"),
        ("colors: []", "catalog file bad.yaml: no section 'colors'; there are releases"),
        ("gpus: {}", "section gpus is not a list of entries"),
        ("gpus: [{memory_mib: 1}]", "an entry of gpus has no name"),
        ("gpus: [{name: L20, memory_mib: -1}]", "gpus/L20, memory_mib: Input should be greater than 0"),
        ("gpus: [{name: New}]", "gpus/New, architecture: Field required"),
        ("releases: [{release: 1.2.1, status: fine}]", "releases/1.2.1, status"),
        (b"\xff\xfe\x00", "catalog file bad.yaml cannot be read"),
    ],
)
def test_a_broken_file_is_named_with_the_entry_and_the_field(tmp_path: Path, content: str | bytes, says: str) -> None:
    with pytest.raises(CatalogError) as raised:
        read_catalog(mounted(tmp_path, **{"bad.yaml": content, "good.yaml": "gpus: [{name: T4, memory_mib: 1}]"}))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_operator_says_so_in_one_line_and_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("operatorImage: llmengine/operator")
    (tmp_path / "catalog").mkdir()
    mounted(tmp_path / "catalog", **{"bad.yaml": "gpus: [{name: L20, memory_mib: -1}]"})
    done = subprocess.run(
        [sys.executable, "-m", "trtllm_operator.main"],
        env=os.environ
        | {
            "LLMENGINE_CONFIG": str(tmp_path / "config.yaml"),
            "LLMENGINE_CATALOG": str(tmp_path / "catalog"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "llmengine-operator: catalog entry gpus/L20, memory_mib: Input should be greater than 0\n"
    ), done.stderr
