"""A node with other GPUs that joins the local cluster for a while; by default one of a third generation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.cluster.cluster import Node
from testbed.cluster.config import Gpu
from testbed.cluster.config import Node as NodeSpec

from .stack import Stack

TARGET: dict[str, Any] = {"name": "l4", "gpu": {"product": "NVIDIA-L4"}}
"""Of an LLMEngine, for the node's GPU."""
L4_GPU = Gpu(name="NVIDIA L4", compute_capability="8.9", memory_mib=23034, count=1, driver="580.159.04", cuda="13.0")
L4 = NodeSpec(name="l4", gpu=L4_GPU)


@contextmanager
def third_node(stack: Stack, spec: NodeSpec = L4) -> Iterator[Node]:
    """The node with the stack's images on it; it and its Node object are gone afterwards."""
    node = stack.cluster.add_node(spec)
    try:
        stack.cluster.import_images(*(Path(i.archive) for i in stack.images.values()), nodes=[node.name])
        yield node
    finally:
        node.lose()
        stack.kubectl("default")("delete", "node", node.name)
