"""Kinds of Kubernetes objects as data, and the few facts every object carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

#: A Kubernetes object as its JSON says. What comes out of the cache is shared: read it, never change it.
Obj = dict[str, Any]


class ObjectKey(NamedTuple):
    """Where an object is within its resource; `namespace` is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Resource:
    """One kind of objects as the API server serves it; `group` is empty for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What objects of this resource carry as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of an object's subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join(part for part in (*parts, self.plural, name, subresource) if part)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


POD = Resource("", "v1", "pods", "Pod")
NODE = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACE = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICE = Resource("", "v1", "services", "Service")
POD_DISRUPTION_BUDGET = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
SECRET = Resource("", "v1", "secrets", "Secret")
PERSISTENT_VOLUME_CLAIM = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
SERVICE_ACCOUNT = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLE_BINDING = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
POD_DISRUPTION_BUDGET = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
EVENT = Resource("", "v1", "events", "Event")
DEPLOYMENT = Resource("apps", "v1", "deployments", "Deployment")
CONTROLLER_REVISION = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
JOB = Resource("batch", "v1", "jobs", "Job")
ENDPOINT_SLICE = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITION = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


def key_of(obj: Obj) -> ObjectKey:
    """The object's namespace and name."""
    meta = obj["metadata"]
    return ObjectKey(meta.get("namespace", ""), meta["name"])


def version_of(obj: Obj) -> int:
    """The object's resourceVersion as a number; Kubernetes 1.35 and later promise that it can be compared."""
    return int(obj["metadata"]["resourceVersion"])


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference marked `controller`, if there is one."""
    return next((ref for ref in obj["metadata"].get("ownerReferences", ()) if ref.get("controller")), None)
