"""Parts that both resources use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .markers import Cel, DnsLabel, Name, Object, Quantity

ResourceList = dict[str, Quantity]


class ResourceRequirements(Object):
    """CPU, memory and ephemeral storage of a container, as in a Pod. GPUs are the operator's to set."""

    requests: Annotated[ResourceList | None, Field(max_length=8)] = None
    limits: Annotated[ResourceList | None, Field(max_length=8)] = None


class Toleration(Object):
    """A Pod toleration."""

    key: Annotated[str | None, Field(max_length=316)] = None
    operator: Literal["Exists", "Equal"] | None = None
    value: Annotated[str | None, Field(max_length=63)] = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class SecretKeyReference(Object):
    """One key of a Secret in the same namespace."""

    name: Name
    key: Annotated[str, Field(min_length=1, max_length=253)] = "token"


class PersistentVolumeClaimStore(Object):
    claim_name: Name
    """A PersistentVolumeClaim in the same namespace, mountable by build and serving Pods at once."""


@Cel("has(self.persistentVolumeClaim)", message="name a store: persistentVolumeClaim")
class Storage(Object):
    """Where engines are kept."""

    persistent_volume_claim: PersistentVolumeClaimStore | None = None


class NodePlacement(Object):
    """Where Pods may run, beside what the operator itself demands of the node."""

    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]] | None, Field(max_length=16)] = None
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()


TargetName = Annotated[DnsLabel, Field(max_length=16)]
