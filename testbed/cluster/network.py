"""The cluster's network namespace: everything of the cluster is in it, and nothing gets out of it.

A veth pair joins host and namespace, so that the host reaches the API server, Pods and Services; new connections from
Pods to the host are dropped. The namespace's default route ends in a second veth pair that leads nowhere: Pods and
kube-proxy need one, and no packet may leave.
"""

from __future__ import annotations

import ipaddress
import json

from testbed.cluster.config import Network
from testbed.cluster.errors import ClusterError
from testbed.cluster.mounts import mounted, unmount_below
from testbed.cluster.paths import STATE
from testbed.cluster.processes import Argument, run

NAMESPACE = STATE / "netns"
HOST_LINK = "llme-host"
INNER_LINK = "llme-node"
BRIDGE = "cni0"
FIREWALL = f"""
table inet llmengine {{
  chain forward {{
    type filter hook forward priority filter; policy accept;
    oifname "{INNER_LINK}" ct state new drop
  }}
}}
"""


def inside(*command: Argument) -> list[Argument]:
    """A command as it runs in the namespace. (`ip netns exec` would remount /sys and hide the cgroups.)"""
    return ["nsenter", f"--net={NAMESPACE}", *command]


def exists() -> bool:
    return mounted(NAMESPACE)


def create(network: Network) -> None:
    """Makes namespace, links, addresses, routes and the Pods' bridge."""
    clash = clashing(network, json.loads(run("ip", "-json", "-4", "route", "show", "table", "all")))
    if clash:
        raise ClusterError(clash)
    NAMESPACE.touch()
    run("unshare", f"--net={NAMESPACE}", "true")
    run("ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", INNER_LINK, "netns", NAMESPACE)
    prefix = network.link.prefixlen
    run("ip", "address", "add", f"{network.host_address}/{prefix}", "dev", HOST_LINK)
    run("ip", "link", "set", HOST_LINK, "up")
    for destination in (network.pods, network.services):
        run("ip", "route", "add", str(destination), "via", network.cluster_address, "dev", HOST_LINK, "onlink")
    # The bridge is made here once: nodes that make it at the same moment leave Pods without a gateway.
    batch = f"""
link set lo up
address add {network.cluster_address}/{prefix} dev {INNER_LINK}
link set {INNER_LINK} up
link add sink0 type veth peer name sink1
link set sink0 up
link set sink1 up
route add default dev sink0
link add {BRIDGE} type bridge
address add {network.bridge_address}/{network.pods.prefixlen} dev {BRIDGE}
link set {BRIDGE} up
"""
    run(*inside("ip", "-batch", "-"), given=batch)
    run(*inside("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.route_localnet=1"))
    run(*inside("nft", "-f", "-"), given=FIREWALL)


def delete() -> None:
    """Removes what `create` made, however far it got. The namespace goes with its last process."""
    links = json.loads(run("ip", "-json", "link", "show", "type", "veth") or "[]")
    if any(link.get("ifname") == HOST_LINK for link in links):
        run("ip", "link", "delete", HOST_LINK)
    unmount_below(NAMESPACE)
    NAMESPACE.unlink(missing_ok=True)


def clashing(network: Network, routes: list[dict[str, str]]) -> str | None:
    """What says which of the machine's routes (as `ip -json route` lists them) covers an address we need. Pure."""
    for route in routes:
        destination, device = route.get("dst", "default"), route.get("dev", "")
        if destination == "default" or device == HOST_LINK:
            continue
        taken = ipaddress.ip_network(destination, strict=False)
        for purpose, wanted in (("Pods", network.pods), ("Services", network.services), ("link", network.link)):
            if taken.overlaps(wanted):
                return (
                    f"the cluster's {purpose} need {wanted}, but this machine reaches {taken} through {device}; "
                    f"name another range under `network: {{{purpose.lower()}: ...}}` in the nodes file"
                )
    return None
