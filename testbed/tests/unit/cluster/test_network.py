"""Whether the machine's own routes leave room for the cluster's addresses."""

from __future__ import annotations

from testbed.cluster import network
from testbed.cluster.config import Network


def test_other_routes_are_no_clash() -> None:
    routes = [
        {"dst": "default", "dev": "eth0"},
        {"dst": "192.0.2.0/24", "dev": "eth0"},
        {"dst": "10.0.0.1", "dev": "x"},
    ]
    assert network.clashing(Network(), routes) is None


def test_a_clash_names_the_range_the_device_and_the_way_out() -> None:
    found = network.clashing(Network(), [{"dst": "198.18.4.0/24", "dev": "vpn0"}])
    assert found is not None
    assert "198.18.0.0/16" in found
    assert "198.18.4.0/24 through vpn0" in found
    assert "network: {pods: ...}" in found


def test_a_single_address_within_a_range_is_a_clash() -> None:
    found = network.clashing(Network(), [{"dst": "198.51.100.7", "dev": "eth1"}])
    assert found is not None
    assert "Services" in found


def test_our_own_link_is_no_clash() -> None:
    assert network.clashing(Network(), [{"dst": "198.19.0.0/30", "dev": network.HOST_LINK}]) is None
