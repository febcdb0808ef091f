"""The pinned requirements: complete, hashed, one version of each package, no address of an index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.images.build import ROOT
from testbed.images.wheels import applicable

FILES = sorted((ROOT / "requirements").glob("*.txt"))


def pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", path.read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_entry_is_pinned_and_hashed_and_nothing_names_a_place(path: Path) -> None:
    for entry in path.read_text().replace("\\\n", " ").splitlines():
        assert "==" in entry, f"not pinned: {entry[:80]}"
        assert "--hash=sha256:" in entry, f"without a hash: {entry[:80]}"
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|/work|/root|/opt", path.read_text())


def test_what_is_tested_is_what_the_images_carry() -> None:
    tested = pins(ROOT / "requirements/dev.txt")
    for name in ("operator", "hub", "toolchain-standin"):
        shipped = pins(ROOT / f"requirements/{name}.txt")
        common = shipped.keys() & tested.keys()
        assert {package: shipped[package] for package in common} == {package: tested[package] for package in common}


def test_the_operators_image_talks_to_kubernetes_without_its_big_client() -> None:
    operator = pins(ROOT / "requirements/operator.txt")
    assert "kubernetes" not in operator
    assert {"kopf", "aiohttp", "pydantic", "huggingface-hub"} <= operator.keys()


def test_entries_for_other_platforms_and_pythons_are_not_downloaded() -> None:
    text = (
        "always==1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "windows==2 ; sys_platform == 'win32' \\\n    --hash=sha256:cc\n"
        "old==3 ; python_full_version < '3.12' \\\n    --hash=sha256:dd\n"
        "new==4 ; python_full_version >= '3.12' \\\n    --hash=sha256:ee\n"
    )
    assert applicable(text) == "always==1 --hash=sha256:aa --hash=sha256:bb\nold==3 --hash=sha256:dd\n"
