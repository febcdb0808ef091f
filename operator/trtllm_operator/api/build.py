"""How the Jobs of an LLMEngine's artifacts run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .common import NodePlacement, ResourceRequirements
from .fields import Ranks
from .markers import ListMap, Name, Object


class ExtraFlag(Object):
    """A flag of trtllm-build that the API has no field for."""

    name: Annotated[str, Field(pattern=r"^--[a-z][a-z0-9_]*$", max_length=64)]
    """The flag, for example --reduce_fusion; `llmengine flags RELEASE trtllm-build` marks those that are allowed."""
    value: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)] = None
    """Its value; absent for a flag that takes none."""


class Build(NodePlacement):
    """How build Jobs run. Nothing here but extraFlags is part of an artifact's key."""

    resources: ResourceRequirements | None = None
    """Of the convert and build containers. What is not given is computed from the model, and grows when it did not
    suffice; what is given is kept to."""
    timeout_seconds: Annotated[int, Field(ge=60, le=604_800)] | None = None
    """Longest run of one attempt, from when a node has taken it; by default computed from the model's size."""
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3
    """Attempts at one artifact before it is given up. A failure that cannot pass is not tried again, and what the
    cluster or the model's source does to an attempt does not count."""
    workers: Ranks = 1
    """Ranks of an engine that are built at once, each on a GPU and with host memory of its own; at most tensor x
    pipeline."""
    calibration_gpus: Ranks | None = None
    """GPUs of a quantization that calibrates; by default computed from the model's size."""
    extra_flags: Annotated[tuple[ExtraFlag, ...], Field(max_length=16), ListMap("name")] = ()
    """Further flags of trtllm-build, of those that the catalog allows; part of the engine's key."""
    scale_from_zero: bool = False
    """Make the Job of an engine although no node has its GPU, so that an autoscaler adds one: its node groups must
    announce the GPU's labels, and nodeSelector may name the pool. For targets by product that the catalog knows."""
    priority_class_name: Name | None = None
    """PriorityClass of the Pods. Lower than that of servers, lest a build takes a server's place."""
    queue_name: Name | None = None
    """Kueue LocalQueue, in this namespace, that admits the Jobs."""
