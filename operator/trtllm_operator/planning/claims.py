"""Whether the claim that is the store can be mounted by everything that uses it at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..api.llmengine import LLMEngineSpec
from ..objects import Obj
from .expansion import ConcreteTarget
from .gpu_nodes import GpuNode
from .overrides import effective_spec

MANY, ONCE, ONE_POD = "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"
"""Access modes (kubernetes.io/docs/concepts/storage/persistent-volumes)."""
_LISTED = 4
_ONE_NODE = "is ReadWriteOnce, which one node at a time can mount"
_OTHERWISE = "use a ReadWriteMany claim, or a bucket"


@dataclass(frozen=True)
class ClaimVerdict:
    refused: str = ""
    """Why it cannot work, and what would."""
    warning: str = ""
    """What may make Pods wait."""


def judge_claim(
    claim: Obj, spec: LLMEngineSpec, targets: Iterable[ConcreteTarget], nodes: Sequence[GpuNode]
) -> ClaimVerdict:
    """By the claim's access modes and the nodes that servers and builds may use."""
    name, modes = claim["metadata"]["name"], tuple((claim.get("spec") or {}).get("accessModes") or ())
    if not modes or MANY in modes:
        return ClaimVerdict()
    if ONCE not in modes and ONE_POD in modes:
        why = f"claim {name} is {ONE_POD}: one Pod at a time can mount it, and a server and a build do at once"
        return ClaimVerdict(refused=f"{why}; {_OTHERWISE}")
    if ONCE not in modes:
        return ClaimVerdict(refused=f"claim {name} is {', '.join(modes)}, and builds write to it; {_OTHERWISE}")
    wanted = tuple(targets)
    hosts = {t.name: found for t in wanted if (found := _hosts(t, spec, nodes))}
    if not hosts:
        return ClaimVerdict()
    everywhere, common = set[str]().union(*hosts.values()), set.intersection(*hosts.values())
    servers = sum(t.target.replicas for t in wanted if t.name in hosts)
    if not common:
        return ClaimVerdict(
            refused=f"claim {name} {_ONE_NODE}, and no node is for all targets: {_each(hosts)}; {_OTHERWISE}"
        )
    pin = "name one node (kubernetes.io/hostname) in spec.build.nodeSelector and spec.serving.nodeSelector"
    if len(everywhere) > 1 and servers > 1:
        why = f"and its {servers} servers may go to {len(everywhere)} nodes ({_listed(everywhere)})"
        return ClaimVerdict(refused=f"claim {name} {_ONE_NODE}, {why}; {_OTHERWISE}, or {pin}")
    steps = {n.name for n in nodes if n.closed_to(spec.build) is None}
    if len(everywhere | steps) > 1:
        return ClaimVerdict(
            warning=f"claim {name} {_ONE_NODE}: Pods on another wait until it is free; {_OTHERWISE}, or {pin}"
        )
    return ClaimVerdict()


def _hosts(target: ConcreteTarget, spec: LLMEngineSpec, nodes: Sequence[GpuNode]) -> set[str]:
    """Names of the nodes that the target's servers may use."""
    placement = effective_spec(spec, target.target).serving
    return {
        node.name
        for node in nodes
        if any(offer.gpu == target.gpu_class for offer in node.offers) and node.closed_to(placement) is None
    }


def _each(hosts: Mapping[str, set[str]]) -> str:
    return "; ".join(f"{target} on {_listed(names)}" for target, names in hosts.items())


def _listed(names: set[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(sorted(names)[:_LISTED]) + more
