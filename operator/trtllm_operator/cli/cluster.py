"""`--server`: a cluster's nodes."""

from __future__ import annotations

from typing import Any

from .errors import UNREACHABLE, CliError


def nodes() -> list[dict[str, Any]]:
    """Every node of the cluster that the kubeconfig names, as the API server has it. Raises CliError."""
    try:
        import kubernetes
        import urllib3
    except ImportError:
        raise CliError(
            "--server takes the package kubernetes: pip install 'llmengine-operator[cli]'", UNREACHABLE
        ) from None
    try:
        kubernetes.config.load_config()  # type: ignore[no-untyped-call]
        configuration: Any = kubernetes.client.Configuration.get_default_copy()
        configuration.retries = urllib3.Retry(1)
        client: Any = kubernetes.client.ApiClient(configuration)
        listed = kubernetes.client.CoreV1Api(client).list_node(_request_timeout=10).items
        return [client.sanitize_for_serialization(node) for node in listed]
    except kubernetes.config.ConfigException as error:
        raise CliError(f"no cluster: {error}", UNREACHABLE) from None
    except kubernetes.client.ApiException as error:
        raise CliError(
            f"the cluster refuses the list of nodes: HTTP {error.status} {error.reason}", UNREACHABLE
        ) from None
    except urllib3.exceptions.HTTPError as error:
        raise CliError(f"the cluster can't be reached: {error}", UNREACHABLE) from None
