"""Where the cluster is and how to prove who we are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from trtllm_operator.kube.errors import ConfigError
from trtllm_operator.kube.kubeconfig import TokenFile, from_kubeconfig, in_cluster, load_config


def kubeconfig(path: Path, user: dict[str, object], cluster: dict[str, object] | None = None) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": cluster or {"server": "http://127.0.0.1:1/"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_token_and_namespace_of_a_kubeconfig(tmp_path: Path) -> None:
    config = from_kubeconfig(kubeconfig(tmp_path / "config", {"token": "t"}))
    assert (config.server, config.token(), config.namespace) == ("http://127.0.0.1:1", "t", "team")


def test_a_way_to_log_in_that_is_not_supported_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"exec": {"command": "aws"}})
    with pytest.raises(ConfigError, match="authenticates by exec, which is not supported"):
        from_kubeconfig(path)


def test_a_context_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no context named 'there'"):
        from_kubeconfig(kubeconfig(tmp_path / "config", {}), "there")


@pytest.mark.parametrize("content", ["- a list", "a: [unclosed", None])
def test_what_is_no_kubeconfig_is_said(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="kubeconfig"):
        from_kubeconfig(path)


def test_a_missing_certificate_file_is_named(tmp_path: Path) -> None:
    cluster: dict[str, object] = {"server": "https://127.0.0.1:1", "certificate-authority": "missing.crt"}
    with pytest.raises(ConfigError, match=r"certificate-authority missing.crt cannot be read"):
        from_kubeconfig(kubeconfig(tmp_path / "config", {}, cluster))


def test_a_renewed_token_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    token = TokenFile(path)
    assert token() == "first"
    renewed = tmp_path / "renewed"
    renewed.write_text("second\n")
    renewed.replace(path)
    assert token() == "second"


def test_a_token_that_cannot_be_read_for_a_moment_is_still_used(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    token = TokenFile(path)
    token()
    path.unlink()
    assert token() == "first"


def test_a_pod_without_a_service_account_token_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "203.0.113.1"}, tmp_path)


def test_no_cluster_at_all_says_what_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="KUBECONFIG is not set"):
        load_config({key: value for key, value in os.environ.items() if not key.startswith("KUBE")})
