"""What a cluster is made of: the nodes file, as models that refuse what they do not know."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import yaml
from pydantic import Field
from pydantic.alias_generators import to_camel

from testbed.cluster.errors import ClusterError

DEFAULT_NODES_FILE = Path(__file__).with_name("nodes.yaml")
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=DNS_LABEL)]
Cidr = ipaddress.IPv4Network


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


class Mig(Model):
    """The same MIG profile on every GPU of the node."""

    strategy: Literal["single", "mixed"]
    profile: Annotated[str, Field(pattern=r"^\d+g\.\d+gb(\+me)?$", description="such as 1g.10gb")]
    instances: Annotated[int, Field(ge=1, le=7, description="instances on each GPU")]
    memory_mib: Annotated[int, Field(alias="memoryMiB", gt=0, description="of one instance")]


class Sharing(Model):
    """Several containers on one GPU, without a renamed resource."""

    strategy: Literal["time-slicing", "mps"]
    replicas: Annotated[int, Field(ge=2)]


class Gpu(Model):
    """The GPUs of a node, all of one model."""

    name: Annotated[str, Field(description="as nvidia-smi prints it: NVIDIA H100 80GB HBM3")]
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d$")]
    memory_mib: Annotated[int, Field(alias="memoryMiB", gt=0, description="memory.total of one GPU")]
    # 616 is what one H200 with driver 580.159.04 reserved; other models differ by some hundred MiB.
    memory_reserved_mib: Annotated[int, Field(alias="memoryReservedMiB", ge=0)] = 616
    count: Annotated[int, Field(ge=1)]
    driver: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")]
    cuda: Annotated[str, Field(pattern=r"^\d+\.\d+$", description="the newest CUDA the driver supports")]
    mig: Mig | None = None
    sharing: Sharing | None = None


class Taint(Model):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Node(Model):
    name: Name
    gpu: Gpu | None = None
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    allocatable_memory_mib: Annotated[
        int | None,
        Field(alias="allocatableMemoryMiB", gt=0, description="what Pods may ask for; without it, all the machine has"),
    ] = None


class Network(Model):
    """Addresses, by default from ranges set aside for benchmarks and documentation."""

    pods: Cidr = Cidr("198.18.0.0/16")
    services: Cidr = Cidr("198.51.100.0/24")
    link: Annotated[Cidr, Field(description="four addresses: host and cluster are its second and third")] = Cidr(
        "198.19.0.0/30"
    )

    @property
    def host_address(self) -> str:
        return str(self.link[1])

    @property
    def cluster_address(self) -> str:
        """Where the API server, the kubelets and DNS listen: the address of every node."""
        return str(self.link[2])

    @property
    def bridge_address(self) -> str:
        return str(self.pods[1])

    @property
    def kubernetes_service_address(self) -> str:
        return str(self.services[1])

    @property
    def dns_service_address(self) -> str:
        return str(self.services[10])


class Cluster(Model):
    nodes: tuple[Node, ...]
    network: Network = Network()

    @pydantic.model_validator(mode="after")
    def _names_differ(self) -> Cluster:
        names = [node.name for node in self.nodes]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"several nodes are called {', '.join(twice)}")
        return self


def load(path: Path) -> Cluster:
    """Reads a nodes file; ClusterError says which field of which file is wrong."""
    try:
        return Cluster.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise ClusterError(f"cannot read the nodes file {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ClusterError(f"{path} is not YAML: {error}") from error
    except pydantic.ValidationError as error:
        raise ClusterError(f"{path}: {describe(error)}") from error


def describe(error: pydantic.ValidationError) -> str:
    """One line for all that a model refused."""
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'the file'}: {item['msg']}" for item in error.errors()
    )
