"""The local cluster comes and goes, from any state, and leaves nothing behind.

It must be down before these tests, as it is where `make test` runs them: nobody's cluster is taken away.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster, build, local, mounts, network, node
from testbed.cluster.cgroups import CLUSTER
from testbed.cluster.paths import STATE
from testbed.cluster.prerequisites import existing_kubeconfig
from testbed.cluster.processes import run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_cluster() -> Iterator[None]:
    if existing_kubeconfig() is not None:
        pytest.skip("KUBECONFIG names an existing cluster, which is nobody's to take down")
    if local.is_up():
        pytest.skip("the local cluster is up: `make cluster-down` first, to test how it comes and goes")
    build.programs()
    yield
    local.down()


def traces() -> list[str]:
    """What is there of the cluster outside the cache."""
    found = [f"process {pid}" for pid in CLUSTER.pids()]
    found += [f"mount {point}" for point in mounts.points() if point.is_relative_to(STATE)]
    found += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob("**/llmengine")]
    links = json.loads(run("ip", "-json", "link"))
    found += [f"link {link['ifname']}" for link in links if link["ifname"] == network.HOST_LINK]
    routes = json.loads(run("ip", "-json", "route"))
    found += [f"route to {route['dst']}" for route in routes if route["dst"].startswith(("198.18.", "198.51.100."))]
    return found + [f"file {STATE}"] * STATE.exists()


def test_up_twice_and_down_twice() -> None:
    directories = [path for path in node.MOUNT_POINTS if Path(path).exists()]
    first = Cluster.up()
    before = set(CLUSTER.pids())
    started = time.monotonic()
    Cluster.up()
    assert time.monotonic() - started < 30
    assert before <= set(CLUSTER.pids()), "up restarted what was running"
    assert set(local.status().values()) == {"running"}

    first.down()
    assert traces() == []
    assert [path for path in node.MOUNT_POINTS if Path(path).exists()] == directories
    local.down()
    assert traces() == []


@pytest.mark.parametrize("seconds", [0.8, 2, 5, 9])
def test_up_that_was_killed_leaves_what_down_removes(seconds: float) -> None:
    killed_up(seconds)
    local.down()
    assert traces() == []


def test_up_that_was_killed_is_made_good_by_up() -> None:
    killed_up(5)
    cluster = Cluster.up()
    assert set(local.status().values()) == {"running"}
    # A component that died meanwhile is started again; what the cluster stores is kept.
    local.component_group("apiserver").kill()
    Cluster.up()
    assert set(local.status().values()) == {"running"}
    cluster.down()
    assert traces() == []


def killed_up(seconds: float) -> None:
    """Starts `up` and kills it after a while: a real time, as it is about being interrupted anywhere."""
    process = subprocess.Popen([sys.executable, "-m", "testbed.cluster", "up"], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    process.wait()
