"""The images, and what each is made of."""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The repository that the hub serves."""


@dataclass(frozen=True)
class ImageDefinition:
    """One image. Paths are relative to the repository's root, which is also the build's context."""

    name: str
    reference: str
    containerfile: str
    requirements: str
    sources: tuple[str, ...]
    """Files and directories that the Containerfile copies, beside the requirements."""
    model_directory: str | None = None
    """Where in the context the Containerfile expects the converted model."""


IMAGES = (
    ImageDefinition(
        name="operator",
        reference="docker.io/llmengine/operator:0.1.0",
        containerfile="images/operator/Containerfile",
        requirements="requirements/operator.txt",
        sources=("operator/trtllm_operator",),
    ),
    ImageDefinition(
        name="toolchain-standin",
        reference="docker.io/llmengine/tensorrtllm-standin:1.2.1",
        containerfile="testbed/toolchain-standin/Containerfile",
        requirements="requirements/toolchain-standin.txt",
        sources=("testbed/toolchain-standin/install-triton.sh", "testbed/toolchain-standin/rootfs"),
    ),
    ImageDefinition(
        name="hub",
        reference="docker.io/llmengine/hub-standin:0.1.0",
        containerfile="testbed/hub/Containerfile",
        requirements="requirements/hub.txt",
        sources=(
            *("testbed/hub/__init__.py", "testbed/hub/access.py", "testbed/hub/repository.py", "testbed/hub/server.py"),
            "testbed/hub/repositories.json",
        ),
        model_directory="build/smollm2",
    ),
)
