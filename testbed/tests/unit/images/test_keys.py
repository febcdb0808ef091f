"""What makes an image be built again, and what does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.images import content
from testbed.images.build import ROOT, select
from testbed.images.definitions import IMAGES, ImageDefinition
from testbed.images.errors import BuildError
from testbed.images.keys import base_key, image_key, model_key

OPERATOR = next(image for image in IMAGES if image.name == "operator")
HUB = next(image for image in IMAGES if image.name == "hub")
BASE = "sha256:" + "0" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of what the images are built from, free to be changed."""
    copy = tmp_path / "repository"
    content.stage(content.files_of(ROOT, ("images", "testbed", "requirements", "operator/trtllm_operator")), copy)
    return copy


def append(path: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        with (root / path).open("a") as file:
            file.write("\n# changed\n")

    return change


def add_source(root: Path) -> None:
    (root / "operator/trtllm_operator/added.py").write_text("")


def make_executable(root: Path) -> None:
    (root / "operator/trtllm_operator/__init__.py").chmod(0o755)


@pytest.mark.parametrize(
    "change",
    [
        append("operator/trtllm_operator/__init__.py"),
        append("images/operator/Containerfile"),
        append("requirements/operator.txt"),
        append("testbed/images/buildah.py"),
        add_source,
        make_executable,
    ],
)
def test_what_goes_into_the_operators_image_changes_its_key(root: Path, change: Callable[[Path], None]) -> None:
    before = image_key(root, OPERATOR, BASE)
    change(root)
    assert image_key(root, OPERATOR, BASE) != before


def test_another_base_changes_the_key(root: Path) -> None:
    assert image_key(root, OPERATOR, BASE) != image_key(root, OPERATOR, "sha256:" + "1" * 64)


def test_what_does_not_go_into_it_leaves_the_key(root: Path) -> None:
    before = image_key(root, OPERATOR, BASE)
    append("testbed/hub/server.py")(root)
    append("requirements/hub.txt")(root)
    (root / "operator/trtllm_operator/__pycache__").mkdir(exist_ok=True)
    (root / "operator/trtllm_operator/__pycache__/x.pyc").write_bytes(b"compiled")
    os.utime(root / "operator/trtllm_operator/__init__.py", (1, 1))
    (root / "operator/trtllm_operator/__init__.py").chmod(0o600)
    assert image_key(root, OPERATOR, BASE) == before


def test_a_changed_conversion_makes_the_hubs_image_new_and_no_other(root: Path) -> None:
    operator, hub, model = image_key(root, OPERATOR, BASE), image_key(root, HUB, BASE), model_key(root)
    append("testbed/smollm2/tokenizer.py")(root)
    assert model_key(root) != model
    assert image_key(root, HUB, BASE) != hub
    assert image_key(root, OPERATOR, BASE) == operator


def test_the_bases_key_covers_its_recipe(root: Path) -> None:
    before = base_key(root)
    append("operator/trtllm_operator/__init__.py")(root)
    assert base_key(root) == before
    append("testbed/images/base.py")(root)
    assert base_key(root) != before


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_each_containerfile_copies_only_what_its_key_covers(image: ImageDefinition) -> None:
    covered = (image.requirements, *image.sources, *((image.model_directory,) if image.model_directory else ()))
    for line in (ROOT / image.containerfile).read_text().splitlines():
        if line.startswith("COPY"):
            source = line.split()[1].removesuffix("/*.py")
            assert any(entry == source or entry.startswith(f"{source}/") for entry in covered), line


def test_a_missing_source_is_named(root: Path) -> None:
    shutil.rmtree(root / "operator")
    with pytest.raises(BuildError, match="operator/trtllm_operator is missing"):
        image_key(root, OPERATOR, BASE)


def test_an_unknown_image_is_refused_with_those_there_are() -> None:
    with pytest.raises(BuildError, match="no image is called tritn; there are operator, toolchain-standin, hub"):
        select(["tritn"])
    assert [image.name for image in select(["hub"])] == ["hub"]
    assert select([]) == list(IMAGES)
