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


class PersistentVolumeClaimDirectory(Object):
    """A directory on a claim in the same namespace."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""
    path: Annotated[
        str,
        Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._/-]*$"),
        Cel("!self.contains('..')", message="path must not contain '..'"),
    ]
    """The directory, relative to the root of the volume."""


class PersistentVolumeClaimModel(PersistentVolumeClaimDirectory):
    """A model directory on a claim in the same namespace: config.json, tokenizer files, safetensors."""


class PersistentVolumeClaimStore(Object):
    """A claim in the same namespace that build and serving Pods mount at once (ReadWriteMany across nodes)."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""


class SecretReference(Object):
    """A Secret in the same namespace."""

    name: Name
    """Name of the Secret."""


class S3Location(Object):
    """A place in a bucket of an S3-compatible server."""

    bucket: Annotated[str, Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")]
    """Name of the bucket."""
    prefix: Annotated[
        str,
        Field(max_length=256, pattern=r"^([A-Za-z0-9_][A-Za-z0-9._=/-]*[A-Za-z0-9_=-]|[A-Za-z0-9_]?)$"),
        Cel("!self.contains('..') && !self.contains('//')", message="prefix must contain neither '..' nor '//'"),
    ] = ""
    """What the keys begin with, without a slash at the end; empty is the whole bucket."""
    endpoint: Annotated[str | None, Field(max_length=256, pattern=r"^https?://[A-Za-z0-9.\[\]:-]+$")] = None
    """Address of the server, for example https://minio.storage:9000; absent is Amazon S3."""
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")] = "us-east-1"
    """Region of the bucket; other servers than Amazon's mostly take us-east-1."""


class S3Model(S3Location):
    """A model whose config.json, tokenizer files and safetensors are objects directly below the prefix."""

    credentials_secret_ref: SecretReference | None = None
    """Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and where they are needed AWS_SESSION_TOKEN and ca.crt;
    absent is a public bucket. Files where the model is inspected and fetched, and nowhere else."""


class S3Store(S3Location):
    """Objects of a bucket. Servers download what they serve into their nodes' ephemeral storage as they start."""

    credentials_secret_ref: SecretReference
    """Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and where they are needed AWS_SESSION_TOKEN and ca.crt.
    Files in containers of the operator's own image, and nowhere else."""


@Cel(
    "(has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.s3) ? 1 : 0) == 1",
    message="give exactly one of persistentVolumeClaim and s3",
)
class StoreLocation(Object):
    """Which store: part of what an artifact is."""

    persistent_volume_claim: PersistentVolumeClaimStore | None = None
    """A shared volume."""
    s3: S3Location | None = None
    """A bucket."""


@Cel(
    "(has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.s3) ? 1 : 0) == 1",
    message="name exactly one store: persistentVolumeClaim or s3",
)
class Storage(Object):
    """Where engines are kept: exactly one store."""

    persistent_volume_claim: PersistentVolumeClaimStore | None = None
    """A shared volume."""
    s3: S3Store | None = None
    """A bucket of an S3-compatible server."""

    @property
    def location(self) -> StoreLocation:
        """The store without what opens it."""
        s3 = S3Location(**self.s3.model_dump(exclude={"credentials_secret_ref"})) if self.s3 else None
        return StoreLocation(persistent_volume_claim=self.persistent_volume_claim, s3=s3)


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
