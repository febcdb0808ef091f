"""What the Containerfiles promise to whoever runs the images."""

from __future__ import annotations

import pytest

from testbed.images.build import ROOT
from testbed.images.definitions import IMAGES, ImageDefinition


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_the_base_is_an_argument_with_a_public_default(image: ImageDefinition) -> None:
    lines = (ROOT / image.containerfile).read_text().splitlines()
    instructions = [line for line in lines if line and not line.startswith("#")]
    assert instructions[0].startswith("ARG BASE=docker.io/library/python:3.1")
    assert instructions[1] == "FROM ${BASE}"


@pytest.mark.parametrize("name", ["toolchain-standin", "hub"])
def test_a_stand_in_says_so_where_a_person_sees_it(name: str) -> None:
    image = next(image for image in IMAGES if image.name == name)
    text = (ROOT / image.containerfile).read_text()
    assert "standin" in image.reference
    assert "STAND-IN" in text.splitlines()[0]
    description = next(line for line in text.splitlines() if "image.description=" in line)
    assert "Stand-in for" in description


def test_the_operator_runs_as_a_numbered_user_that_is_not_root() -> None:
    """A number, so that a kubelet can check runAsNonRoot."""
    assert "USER 65532:65532" in (ROOT / "images/operator/Containerfile").read_text().splitlines()
