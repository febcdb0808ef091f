"""Where the API server is and how to prove who we are: from inside a Pod, or from a kubeconfig."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trtllm_operator.kube.errors import ConfigError

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class ClusterConfig:
    """One API server: its URL, how to trust it, and the token of the moment ("" where a certificate speaks for us)."""

    server: str
    ssl_context: ssl.SSLContext | bool
    token: Callable[[], str]
    #: The namespace of the Pod or of the kubeconfig's context.
    namespace: str = "default"


class TokenFile:
    """A token in a file that is replaced from time to time, as the kubelet does with projected tokens."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = ""

    def __call__(self) -> str:
        """The token in the file now."""
        try:
            stat = self._path.stat()
            if self._seen != (stat.st_mtime_ns, stat.st_ino):
                self._token = self._path.read_text().strip()
                self._seen = (stat.st_mtime_ns, stat.st_ino)
        except OSError as error:
            if not self._token:
                raise ConfigError(f"the token file {self._path} cannot be read: {error.strerror}") from error
        return self._token


def load_config(environ: Mapping[str, str] = os.environ) -> ClusterConfig:
    """KUBECONFIG where it is set, else the Pod's service account, else ~/.kube/config."""
    if path := environ.get("KUBECONFIG"):
        return from_kubeconfig(Path(path))
    if "KUBERNETES_SERVICE_HOST" in environ:
        return in_cluster(environ)
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return from_kubeconfig(default)
    raise ConfigError("no cluster: KUBECONFIG is not set, this is no Pod, and ~/.kube/config does not exist")


def in_cluster(environ: Mapping[str, str] = os.environ, directory: Path = _SERVICE_ACCOUNT) -> ClusterConfig:
    """The configuration of a Pod's service account; its token is read again when the kubelet renews it."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    authority = directory / "ca.crt"
    if not authority.exists():
        raise ConfigError(f"{authority} is missing: does the Pod set automountServiceAccountToken: false?")
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ssl_context=ssl.create_default_context(cafile=str(authority)),
        token=TokenFile(directory / "token"),
        namespace=(directory / "namespace").read_text().strip(),
    )


def from_kubeconfig(path: Path, context: str = "") -> ClusterConfig:
    """The named context of a kubeconfig file, or its current one: bearer tokens and client certificates."""
    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as a kubeconfig: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path} is not a kubeconfig")
    context = context or config.get("current-context") or ""
    chosen = _named(path, config, "contexts", "context", context)
    cluster = _named(path, config, "clusters", "cluster", chosen.get("cluster", ""))
    user = _named(path, config, "users", "user", chosen.get("user", "")) if chosen.get("user") else {}
    if unsupported := {"exec", "auth-provider", "username"} & user.keys():
        raise ConfigError(
            f"{path}: the user of context {context!r} authenticates by {', '.join(sorted(unsupported))}, which is not "
            "supported: use a token, a token file or a client certificate (`kubectl create token` makes a token)"
        )
    return ClusterConfig(
        server=cluster["server"].rstrip("/"),
        ssl_context=_ssl_context(path.parent, cluster, user) if cluster["server"].startswith("https:") else True,
        token=_token(path.parent, user),
        namespace=chosen.get("namespace") or "default",
    )


def _named(path: Path, config: dict[str, Any], plural: str, singular: str, name: str) -> dict[str, Any]:
    for entry in config.get(plural) or ():
        if entry.get("name") == name:
            return entry.get(singular) or {}
    raise ConfigError(f"{path} has no {singular} named {name!r}")


def _token(directory: Path, user: dict[str, Any]) -> Callable[[], str]:
    if token := user.get("token"):
        return lambda: str(token)
    if file := user.get("tokenFile"):
        return TokenFile(directory / file)
    return lambda: ""


def _ssl_context(directory: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    authority = _pem(directory, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _pem(directory, user, "client-certificate"), _pem(directory, user, "client-key")
    if certificate and key:
        # OpenSSL reads a certificate and its key from a file only; the file is private and gone at once.
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _pem(directory: Path, entry: dict[str, Any], field: str) -> bytes | None:
    """The content of `field`-data, or of the file that `field` names (relative to the kubeconfig)."""
    if data := entry.get(f"{field}-data"):
        return base64.b64decode(data)
    if file := entry.get(field):
        try:
            return (directory / str(file)).read_bytes()
        except OSError as error:
            raise ConfigError(f"{field} {file} cannot be read: {error.strerror}") from error
    return None
