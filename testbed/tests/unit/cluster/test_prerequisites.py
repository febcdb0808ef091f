"""What is missing is said in one line, with what to do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from testbed.cluster import Cluster, ClusterError, local, prerequisites


def test_without_root_there_is_the_way_with_an_existing_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match=r"need root.* set KUBECONFIG"):
        prerequisites.check_machine()


def test_without_namespaces_there_is_the_way_with_an_existing_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_command: object, **_options: object) -> str:
        raise ClusterError("unshare failed: Operation not permitted")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prerequisites, "ensure_commands", lambda _packages: None)
    monkeypatch.setattr(prerequisites, "run", refuse)
    with pytest.raises(ClusterError, match=r"namespaces are not allowed here.*set KUBECONFIG") as refused:
        prerequisites.check_machine()
    assert "\n" not in str(refused.value)


def test_missing_commands_are_named_by_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _command: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="install nftables runc "):
        prerequisites.ensure_commands({"nft": "nftables", "runc": "runc"})


def test_kubeconfig_must_name_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="is no file"):
        Cluster.connect()


def test_an_existing_cluster_is_used_and_not_handled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    existing = tmp_path / "config"
    existing.touch()
    monkeypatch.setenv("KUBECONFIG", str(existing))
    cluster = Cluster.connect()
    assert (cluster.kubeconfig, cluster.local) == (existing, False)
    for action in (cluster.down, lambda: cluster.node("a100"), lambda: cluster.import_images(existing)):
        with pytest.raises(ClusterError, match="is an existing cluster"):
            action()


def test_no_cluster_says_how_to_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(local, "is_up", lambda: False)
    with pytest.raises(ClusterError, match="make cluster-up"):
        Cluster.connect()
