"""Hashes of everything that a build's result depends on."""

from __future__ import annotations

from pathlib import Path

from testbed import smollm2
from testbed.images import base, content
from testbed.images.definitions import ImageDefinition


def base_key(root: Path) -> str:
    """Of what the base image is made from. Debian's packages are those of the day it is bootstrapped."""
    recipe = ("testbed/images/base.py", "testbed/images/oci.py", base.REQUIREMENTS)
    return content.key_of({"files": content.fingerprint(content.files_of(root, recipe))})


def model_key(root: Path) -> str:
    """Of what the model is made from."""
    recipe = ("testbed/smollm2", smollm2.REQUIREMENTS)
    return content.key_of({"files": content.fingerprint(content.files_of(root, recipe))})


def image_key(root: Path, image: ImageDefinition, base_digest: str) -> str:
    """Of everything that goes into `image`, the base's digest included."""
    recipe = content.files_of(root, ("testbed/images/buildah.py", "testbed/images/wheels.py"))
    return content.key_of(
        {
            "reference": image.reference,
            "base": base_digest,
            "files": content.fingerprint(image_files(root, image) | recipe),
            "model": model_key(root) if image.model_directory else None,
        }
    )


def image_files(root: Path, image: ImageDefinition) -> dict[str, Path]:
    """The files of the repository that `image` is built from, by their path in the build's context."""
    return content.files_of(root, (image.containerfile, image.requirements, *image.sources))
