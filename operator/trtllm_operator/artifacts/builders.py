"""Whose policy an artifact is built with: that of one of the LLMEngines that need it now, as a whole.

An artifact is named after its inputs and shared by everybody who asks for the same. How it is built (node selector,
tolerations, resources, Secrets, limits) is in nobody's name, so no two policies are mixed. The rule:

1. The policy of an attempt that runs stays until the attempt ends.
2. Else the first LLMEngine by name whose Secrets exist and for whose policy there is a node; the first by name where
   there is none. An attempt that waits keeps its policy while that can run.
3. Where an attempt cannot go on without a person, the next LLMEngine's policy is tried. One that was given up comes
   into question again when it, a Secret that it names, or the retry annotation changes.

What an LLMEngine says goes with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..api.engineartifact import EngineArtifactSpec, EngineArtifactStatus, Expectation, Policy
from ..objects import Obj
from ..planning.gpu_nodes import GpuNode, read_node
from .jobs import policy_hash
from .secrets import UNKNOWN, Secrets

MOST = 16
"""LLMEngines whose policies are looked at; an artifact may be shared by thousands."""
KEPT = 32
"""Policies that are remembered as given up."""


@dataclass(frozen=True)
class Builder:
    """An LLMEngine that needs the artifact, and how it has it built."""

    engine: str
    policy: Policy
    expected: Expectation | None = None
    """As the LLMEngine's own revision says it, whatever is in the shared object."""
    secrets: Secrets = UNKNOWN

    def spec(self, shared: EngineArtifactSpec) -> EngineArtifactSpec:
        """The artifact's spec with this policy."""
        return shared.model_copy(update={"policy": self.policy, "expected": self.expected or shared.expected})

    def key(self, artifact: Obj) -> str:
        """Of what would have to change for an attempt to end otherwise."""
        return f"{policy_hash(artifact, self.policy)}/{self.secrets.named or ''}"


def considered(given_up: Collection[str], attempted: str | None) -> set[str | None]:
    """Hashes of the policies that a status speaks of."""
    return {attempted, *(key.partition("/")[0] for key in given_up)}


def without_builders(spec: EngineArtifactSpec, status: EngineArtifactStatus) -> EngineArtifactSpec:
    """The spec of an artifact that nobody needs, with what its removal takes."""
    cleanup = status.cleanup
    return spec.model_copy(update={"policy": Policy(**cleanup.model_dump())}) if cleanup else spec


def in_turn(
    builders: Sequence[Builder],
    artifact: Obj,
    spec: EngineArtifactSpec,
    nodes: Sequence[Obj],
    *,
    attempted: str | None,
    running: bool,
    given_up: Collection[str],
) -> list[Builder]:
    """The builders in the order in which they come into question; `attempted` is the hash of the policy of the last
    attempt, and `running` whether that has a node. Where all were given up, the one of the last attempt alone."""
    read = [read_node(node) for node in nodes]

    def is_attempted(builder: Builder) -> bool:
        return policy_hash(artifact, builder.policy) == attempted

    left = [builder for builder in builders if builder.key(artifact) not in given_up]
    if running:
        left = sorted(left, key=lambda b: not is_attempted(b))
    else:
        left = sorted(left, key=lambda b: (not _can_run(b, spec, read), not is_attempted(b)))
    if running and left and is_attempted(left[0]):
        return left[:1]
    last = next((b for b in builders if is_attempted(b)), builders[0])
    return left or [last]


def _can_run(builder: Builder, spec: EngineArtifactSpec, nodes: Sequence[GpuNode]) -> bool:
    policy, gpu = builder.policy, spec.inputs.gpu
    if builder.secrets.missing:
        return False
    if policy.scale_from_zero:
        return True
    open_ = (node for node in nodes if node.closed_to(policy) is None)
    if gpu is not None:
        return any(offer.gpu == gpu for node in open_ for offer in node.offers)
    if policy.gpus and policy.gpu_product:
        return any(offer.gpu.product == policy.gpu_product for node in open_ for offer in node.offers)
    return any(True for _ in open_)
