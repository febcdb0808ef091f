"""Why no node takes a Pod, node by node: from the nodes, what the Pod asks for, and the scheduler's own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..objects import Obj
from ..pods import is_over

LISTED_NODES = 4
"""Names of nodes given for one obstacle; of more their number is said."""
_GPU_PREFIX = "nvidia.com/"
_DECIMAL = {suffix: 10 ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)}
_BINARY = {f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", 1)}
_SUFFIXES: Mapping[str, Decimal] = {
    "m": Decimal("0.001"),
    **{suffix: Decimal(size) for suffix, size in (_DECIMAL | _BINARY).items()},
}


@dataclass(frozen=True)
class Obstacles:
    reason: str
    """Unschedulable: no node could ever take it. WaitingFor...: some could, and are full."""
    message: str


def obstacles(pod: Obj, nodes: Iterable[Obj], scheduler_says: str) -> Obstacles:
    """The first obstacle at each node: cordon, selector and affinity, taints, then what it has in all."""
    asked = requests(pod)
    by_obstacle: dict[str, list[str]] = {}
    for node in nodes:
        by_obstacle.setdefault(_first_of(pod, node, asked) or "", []).append(str(node["metadata"]["name"]))
    fitting = by_obstacle.pop("", [])
    why = "; ".join(f"{_listed(names)}: {obstacle}" for obstacle, names in sorted(by_obstacle.items()))
    said = f" (the scheduler says: {scheduler_says})" if scheduler_says else ""
    if not fitting:
        return Obstacles("Unschedulable", f"no node can take the Pod: {why or 'there is none'}{said}")
    gpu = next((name for name in asked if name.startswith(_GPU_PREFIX)), None)
    reason = "WaitingForGpu" if gpu and f"Insufficient {gpu}" in scheduler_says else "WaitingForResources"
    wanted = _amount(gpu, asked[gpu]) if gpu and reason == "WaitingForGpu" else "what the Pod asks for"
    others = f"; {why}" if why else ""
    return Obstacles(reason, f"waits for {wanted} on {_listed(fitting)}, taken now{others}{said}")


def requests(pod: Obj) -> dict[str, Decimal]:
    """What a Pod asks of a node: of each resource the larger of the sum over containers and any one init container."""
    spec = pod["spec"]
    out: dict[str, Decimal] = {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    names = {n for c in containers for part in (c.get("resources") or {}).values() for n in part}
    for name in sorted(names, key=lambda n: (not n.startswith(_GPU_PREFIX), n)):
        running = sum((_request(c, name) for c in spec.get("containers") or ()), Decimal(0))
        largest = max((_request(c, name) for c in spec.get("initContainers") or ()), default=Decimal(0))
        if asked := max(running, largest):
            out[name] = asked
    return out


def ending_on(pods: Iterable[Obj], node: str | None) -> Obj | None:
    """A Pod with GPUs that was told to end and still runs on the node: it may hold their memory."""
    return next(
        (
            p
            for p in pods
            if "deletionTimestamp" in p["metadata"]
            and not is_over(p)
            and p["spec"].get("nodeName") == node
            and any(name.startswith(_GPU_PREFIX) for name in requests(p))
        ),
        None,
    )


def quantity(text: object) -> Decimal:
    """A Kubernetes quantity as a number: `1500m` is 1.5, `2Gi` is 2147483648."""
    words = str(text)
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if words.endswith(suffix):
            return Decimal(words.removesuffix(suffix)) * _SUFFIXES[suffix]
    return Decimal(words)


def _request(container: Obj, resource: str) -> Decimal:
    """A limit without a request is also the request."""
    given = container.get("resources") or {}
    found = (given.get("requests") or {}).get(resource, (given.get("limits") or {}).get(resource))
    return Decimal(0) if found is None else quantity(found)


def _first_of(pod: Obj, node: Obj, asked: Mapping[str, Decimal]) -> str | None:
    """Of a node that is not described as nodes are, that: it must not keep the others from being told."""
    try:
        return _first(pod, node, asked)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return "its labels or its status cannot be read"


def _first(pod: Obj, node: Obj, asked: Mapping[str, Decimal]) -> str | None:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    spec = node.get("spec") or {}
    tolerations = tuple(pod["spec"].get("tolerations") or ())
    return (
        _selector(pod, labels)
        or _affinity(pod, labels)
        or ("it is cordoned" if spec.get("unschedulable") else None)
        or _taints(spec.get("taints") or (), tolerations)
        or _capacity((node.get("status") or {}).get("allocatable"), asked)
    )


def _selector(pod: Obj, labels: Mapping[str, str]) -> str | None:
    selector: Mapping[str, str] = pod["spec"].get("nodeSelector") or {}
    return next((_label_differs(k, labels.get(k), [v]) for k, v in selector.items() if labels.get(k) != v), None)


def _label_differs(key: str, found: str | None, wanted: list[str]) -> str:
    has = f"is {found}" if found is not None else "is not there"
    return f"label {key} {has}, {' or '.join(wanted)} is wanted"


def _affinity(pod: Obj, labels: Mapping[str, str]) -> str | None:
    """Of the required terms, which are alternatives, the obstacle of the last."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    obstacle: str | None = None
    for term in required.get("nodeSelectorTerms") or ():
        obstacle = next((o for e in term.get("matchExpressions") or () if (o := _expression(e, labels))), None)
        if obstacle is None:
            return None
    return obstacle


def _expression(expression: Obj, labels: Mapping[str, str]) -> str | None:
    key, operator, values = expression["key"], expression["operator"], list(expression.get("values") or ())
    found = labels.get(key)
    match operator:
        case "In":
            return None if found in values else _label_differs(key, found, values)
        case "NotIn":
            return f"label {key} is {found}" if found in values else None
        case "Exists":
            return f"label {key} is not there" if found is None else None
        case "DoesNotExist":
            return f"label {key} is there" if found is not None else None
        case _:
            return None


def _taints(taints: Iterable[Obj], tolerations: tuple[Obj, ...]) -> str | None:
    for taint in taints:
        if taint.get("effect") == "PreferNoSchedule" or any(_tolerates(t, taint) for t in tolerations):
            continue
        value = f"={taint['value']}" if taint.get("value") else ""
        return f"taint {taint['key']}{value}:{taint.get('effect')} is not tolerated"
    return None


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")


def _capacity(allocatable: Mapping[str, Any] | None, asked: Mapping[str, Decimal]) -> str | None:
    if allocatable is None:
        return None
    for resource, wanted in asked.items():
        has = quantity(allocatable.get(resource, 0))
        if has < wanted:
            return f"it has {_amount(resource, has)} in all, {_amount(resource, wanted)} is asked for"
    return None


def _amount(resource: str, value: Decimal) -> str:
    if resource in ("memory", "ephemeral-storage"):
        return f"{value / 2**30:.1f} GiB {resource}"
    return f"{value.normalize():f} {resource}"


def _listed(names: list[str]) -> str:
    shown = sorted(names)[:LISTED_NODES]
    more = f" and {len(names) - LISTED_NODES} more" if len(names) > LISTED_NODES else ""
    return ", ".join(shown) + more
