"""Reads a cluster: the nodes for `--server`, and what there is of one namespace for `why`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from ..kube.resource import NODE, Obj, Resource
from .errors import UNREACHABLE, CliError

TIMEOUT_SECONDS = 10


class Cluster:
    """The cluster that the kubeconfig names, or the Pod's own. Every failure is a CliError."""

    def __init__(self) -> None:
        try:
            import kubernetes
            import urllib3
        except ImportError:
            raise CliError(
                "reading a cluster takes the package kubernetes: pip install 'llmengine-operator[cli]'", UNREACHABLE
            ) from None
        try:
            _load_config(kubernetes.config)
        except (kubernetes.config.ConfigException, OSError, ValueError) as error:
            raise CliError(f"no cluster: {error}", UNREACHABLE) from None
        configuration: Any = kubernetes.client.Configuration.get_default_copy()
        configuration.retries = urllib3.Retry(1)
        self._client: Any = kubernetes.client.ApiClient(configuration)
        self._errors = (urllib3.exceptions.HTTPError, kubernetes.client.ApiException, OSError)
        self._kubernetes: Any = kubernetes

    @property
    def namespace(self) -> str:
        """That of the kubeconfig's context."""
        try:
            _, context = self._kubernetes.config.list_kube_config_contexts()
        except self._kubernetes.config.ConfigException:
            return "default"
        return str((context.get("context") or {}).get("namespace") or "default")

    def objects(self, resource: Resource, namespace: str = "", label_selector: str = "") -> list[Obj]:
        """All objects of a kind, as the API server has them."""
        query = [("labelSelector", label_selector)] if label_selector else []
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [head | item for item in self._get(resource, resource.path(namespace), query)["items"]]

    def annotate(self, resource: Resource, namespace: str, name: str, annotations: dict[str, str]) -> None:
        """Set annotations of one object. Raises CliError."""
        path, body = resource.path(namespace, name), {"metadata": {"annotations": annotations}}
        header = {"Content-Type": "application/merge-patch+json"}
        try:
            request = self._client.param_serialize(
                "PATCH", path, header_params=header, body=body, auth_settings=["BearerToken"]
            )
            answer = self._client.call_api(*request, _request_timeout=TIMEOUT_SECONDS)
            answer.read()
        except self._errors as error:
            raise CliError(f"the cluster can't be reached: {error}", UNREACHABLE) from None
        if answer.status == 404:
            raise CliError(f"there is no {resource.kind} {name} in namespace {namespace}")
        if answer.status >= 400:
            why = f"HTTP {answer.status} {answer.reason}"
            raise CliError(f"the cluster refuses to change {resource.kind} {name}: {why}", UNREACHABLE)

    def _get(self, resource: Resource, path: str, query: list[tuple[str, str]]) -> Obj:
        try:
            request = self._client.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
            answer = self._client.call_api(*request, _request_timeout=TIMEOUT_SECONDS)
            body = answer.read()
        except self._errors as error:
            raise CliError(f"the cluster can't be reached: {error}", UNREACHABLE) from None
        if answer.status == 404:
            raise CliError(f"the cluster knows no {resource}: is the operator installed?", UNREACHABLE)
        if answer.status >= 400:
            why = f"HTTP {answer.status} {answer.reason}"
            raise CliError(f"the cluster refuses the list of {resource}: {why}", UNREACHABLE)
        found: Obj = json.loads(body)
        return found


def _load_config(config: Any) -> None:
    """The kubeconfig, or else the Pod's own. The client's `load_config` prints to standard output, and takes a
    KUBECONFIG of several files for none."""
    if os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().exists():
        try:
            config.load_kube_config()
        except (yaml.YAMLError, AttributeError, TypeError, KeyError) as error:  # what it does with another file
            what = " ".join(str(error).split())
            raise config.ConfigException(f"the kubeconfig can't be read: {what}") from None
    elif os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config()
    else:
        raise config.ConfigException("KUBECONFIG is not set and there is no ~/.kube/config")


def nodes() -> list[Obj]:
    """Every node of the cluster. Raises CliError."""
    return Cluster().objects(NODE)
