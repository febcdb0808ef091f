"""The control plane's certificates and command lines: the one place that knows the components' flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.cluster import pki

# Users and groups are Kubernetes' own (its bootstrap RBAC roles are bound to them), except the last two.
USERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("kubernetes-admin", ("system:masters",)),
    "controller-manager": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
    "proxy": ("system:kube-proxy", ()),
    "dns": ("system:coredns", ()),
}
KUBELET_CLIENT_USER = "kube-apiserver-kubelet-client"
DNS_READY_PORT = 8181


@dataclass(frozen=True)
class ControlPlane:
    """Where one control plane lives and listens."""

    directory: Path
    """Holds pki/, etcd/ and the kubeconfigs."""
    address: str
    """The IPv4 address the API server is reached at."""
    secure_port: int
    etcd_client_port: int
    etcd_peer_port: int
    service_cidr: str
    service_address: str
    """The ClusterIP of the Service `kubernetes`: the first address of `service_cidr`."""

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.secure_port}"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of a key of `USERS`."""
        return self.directory / f"{user}.kubeconfig"


def write_credentials(plane: ControlPlane) -> None:
    """Creates both authorities, every component's certificate and the kubeconfigs of `USERS`."""
    plane.pki.mkdir(parents=True, exist_ok=True)
    plane.directory.chmod(0o755)
    cluster = pki.Authority.create("kubernetes-ca")
    etcd = pki.Authority.create("etcd-ca")
    cluster.pair.write(plane.pki, "ca")
    etcd.pair.write(plane.pki, "etcd-ca")
    pki.create_service_account_key(plane.pki)

    local = ("127.0.0.1",)
    etcd.issue("etcd", dns_names=("localhost",), addresses=local).write(plane.pki, "etcd")
    etcd.issue("kube-apiserver-etcd-client").write(plane.pki, "apiserver-etcd-client")
    cluster.issue(
        "kube-apiserver",
        dns_names=(
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ),
        addresses=tuple(dict.fromkeys((*local, plane.address, plane.service_address))),
    ).write(plane.pki, "apiserver")
    cluster.issue(KUBELET_CLIENT_USER).write(plane.pki, "apiserver-kubelet-client")
    for name, (user, groups) in USERS.items():
        config = pki.kubeconfig(plane.url, cluster, user, cluster.issue(user, organizations=groups))
        pki.write_secret(plane.kubeconfig(name), config.encode())


def etcd_flags(plane: ControlPlane) -> list[str]:
    client = f"https://127.0.0.1:{plane.etcd_client_port}"
    peer = f"https://127.0.0.1:{plane.etcd_peer_port}"
    return [
        f"--data-dir={plane.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--client-cert-auth",
        f"--trusted-ca-file={plane.pki / 'etcd-ca.crt'}",
        f"--cert-file={plane.pki / 'etcd.crt'}",
        f"--key-file={plane.pki / 'etcd.key'}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={plane.pki / 'etcd-ca.crt'}",
        f"--peer-cert-file={plane.pki / 'etcd.crt'}",
        f"--peer-key-file={plane.pki / 'etcd.key'}",
        # The cluster does not outlive the machine's next start, so waiting for the disk buys nothing.
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


def apiserver_flags(plane: ControlPlane) -> list[str]:
    return [
        f"--etcd-servers=https://127.0.0.1:{plane.etcd_client_port}",
        f"--etcd-cafile={plane.pki / 'etcd-ca.crt'}",
        f"--etcd-certfile={plane.pki / 'apiserver-etcd-client.crt'}",
        f"--etcd-keyfile={plane.pki / 'apiserver-etcd-client.key'}",
        f"--secure-port={plane.secure_port}",
        f"--bind-address={plane.address}",
        f"--advertise-address={plane.address}",
        f"--tls-cert-file={plane.pki / 'apiserver.crt'}",
        f"--tls-private-key-file={plane.pki / 'apiserver.key'}",
        f"--client-ca-file={plane.pki / 'ca.crt'}",
        f"--kubelet-certificate-authority={plane.pki / 'ca.crt'}",
        f"--kubelet-client-certificate={plane.pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={plane.pki / 'apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={plane.pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={plane.pki / 'service-account.key'}",
        f"--service-cluster-ip-range={plane.service_cidr}",
        "--authorization-mode=Node,RBAC",
        # PodSecurity and ServiceAccount are on by default.
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        # Pods leave a lost node after half a minute, where Kubernetes' default is five.
        "--default-not-ready-toleration-seconds=30",
        "--default-unreachable-toleration-seconds=30",
    ]


def controller_manager_flags(plane: ControlPlane) -> list[str]:
    config = plane.kubeconfig("controller-manager")
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--service-account-private-key-file={plane.pki / 'service-account.key'}",
        f"--root-ca-file={plane.pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={plane.pki / 'ca.crt'}",
        f"--cluster-signing-key-file={plane.pki / 'ca.key'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        # Kubelets report every 4 s (testbed.cluster.node), so five in a row are missing.
        "--node-monitor-grace-period=20s",
        "--secure-port=0",
    ]


def scheduler_flags(plane: ControlPlane) -> list[str]:
    config = plane.kubeconfig("scheduler")
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def proxy_flags(plane: ControlPlane, *, node: str, pods: str) -> list[str]:
    return [
        f"--kubeconfig={plane.kubeconfig('proxy')}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={pods}",
        # It waits half a minute for a node of this name; any will do, as all nodes have one address and one proxy.
        f"--hostname-override={node}",
        f"--bind-address={plane.address}",
        f"--healthz-bind-address={plane.address}:10256",
        "--metrics-bind-address=127.0.0.1:10249",
        # A namespace may not change what the machine tracks.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]


def corefile(plane: ControlPlane) -> str:
    """CoreDNS's configuration: Services and Pods of the cluster, and nothing else."""
    return f""".:53 {{
  errors
  ready {plane.address}:{DNS_READY_PORT}
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {plane.kubeconfig("dns")}
    pods insecure
  }}
}}
"""
