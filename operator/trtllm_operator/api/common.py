"""Parts that both resources use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .markers import LABEL_VALUE_PATTERN, Cel, DnsLabel, Name, Object, Quantity

ResourceList = Annotated[
    dict[str, Quantity],
    Field(max_length=3),
    Cel(
        "self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",
        message="only cpu, memory and ephemeral-storage may be set: GPUs and shared memory are the operator's to set",
    ),
]


@Cel(
    "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || "
    "!isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || "
    "quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
    message="no request may be more than the limit of the same resource",
)
class ResourceRequirements(Object):
    """CPU, memory and ephemeral storage of a container, as in a Pod. GPUs are the operator's to set."""

    requests: ResourceList | None = None
    """What a node must have free, by resource: cpu, memory, ephemeral-storage."""
    limits: ResourceList | None = None
    """What the container may use at most, by resource: cpu, memory, ephemeral-storage."""


@Cel(
    "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
    message="tolerationSeconds needs effect NoExecute",
)
@Cel(
    "has(self.operator) && self.operator == 'Exists' ? !has(self.value) : has(self.key)",
    message="operator Exists takes no value, and Equal (the default) needs a key",
)
class Toleration(Object):
    """A Pod toleration."""

    key: Annotated[str | None, Field(max_length=316)] = None
    """Key of the taint; absent with operator Exists tolerates every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """How the key relates to the value; absent is Equal."""
    value: Annotated[str | None, Field(max_length=63)] = None
    """Value of the taint, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; absent is every effect."""
    toleration_seconds: Annotated[int | None, Field(ge=0)] = None
    """How long a NoExecute taint is tolerated; absent is for ever."""


class SecretKeyReference(Object):
    """One key of a Secret in the same namespace."""

    name: Name
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = "token"
    """Key in the Secret whose value is the token."""


class PersistentVolumeClaimModel(Object):
    """A model directory on a claim in the same namespace: config.json, tokenizer files, safetensors."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""
    path: Annotated[
        str,
        Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._/-]*$"),
        Cel("!self.contains('..')", message="path must not contain '..'"),
    ]
    """Directory of the model, relative to the root of the volume."""


class PersistentVolumeClaimStore(Object):
    """A claim in the same namespace that build and serving Pods mount at once (ReadWriteMany across nodes)."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""


@Cel("has(self.persistentVolumeClaim)", message="name a store: persistentVolumeClaim")
class Storage(Object):
    """Where engines are kept."""

    persistent_volume_claim: PersistentVolumeClaimStore | None = None
    """A shared volume."""


class NodePlacement(Object):
    """Where Pods may run, beside what the operator itself demands of the node."""

    node_selector: Annotated[
        dict[str, Annotated[str, Field(max_length=63, pattern=LABEL_VALUE_PATTERN)]] | None,
        Field(max_length=16),
        Cel(
            "self.all(k, !format.qualifiedName().validate(k).hasValue())",
            message="a key must be a label's name, such as kubernetes.io/hostname",
        ),
    ] = None
    """Labels that the node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Taints of nodes that the Pods tolerate."""


TargetName = Annotated[DnsLabel, Field(max_length=16)]
