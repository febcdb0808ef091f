"""The chart: what it makes of its values, and which values it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.packaging.rendered import CHART, NAMESPACE, RELEASE, ROOT, Refused, chart, helm
from trtllm_operator.main import read_catalog
from trtllm_operator.operator_config import OperatorConfig, load
from trtllm_operator.reconcile.watches import WATCHES

DIGEST = "sha256:" + "ab" * 32
OURS = ("llmengines", "engineartifacts")
TOOLCHAIN = f"registry.example/tritonserver@{DIGEST}"


def deployment(values: dict[str, Any] | None = None) -> dict[str, Any]:
    return chart(values)["Deployment", NAMESPACE, RELEASE]


def container(values: dict[str, Any] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = deployment(values)["spec"]["template"]["spec"]["containers"][0]
    return made


def config(tmp_path: Path, values: dict[str, Any] | None = None) -> OperatorConfig:
    """The configuration as the operator reads it from the ConfigMap."""
    file = tmp_path / "config.yaml"
    file.write_text(chart(values)["ConfigMap", NAMESPACE, RELEASE]["data"]["config.yaml"])
    return load(file)


def test_the_chart_has_nothing_to_complain_of() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_the_defaults_configure_the_operator(tmp_path: Path) -> None:
    assert config(tmp_path) == OperatorConfig(operator_image="llmengine/operator:0.1.0")


def test_every_setting_reaches_the_operator(tmp_path: Path) -> None:
    values = {
        "image": {"repository": "registry.example:5000/operator", "tag": "ignored", "digest": DIGEST},
        "imagePullPolicy": "Never",
        "toolchainImages": {"1.2.1": TOOLCHAIN},
        "hubEndpoint": "http://hub.models:8080",
        "artifactGraceSeconds": 60,
        "watchNamespaces": ["team-a", "team-b"],
    }
    read = config(tmp_path, values)
    assert read == OperatorConfig(
        operator_image=f"registry.example:5000/operator@{DIGEST}",
        toolchain_images={"1.2.1": TOOLCHAIN},
        image_pull_policy="Never",
        hub_endpoint="http://hub.models:8080",
        artifact_grace_seconds=60,
        watch_namespaces=("team-a", "team-b"),
    )
    unset = set(OperatorConfig.model_fields) - read.model_fields_set
    assert unset == set(), "settings of the operator that the chart cannot set"
    made = container(values)
    assert (made["image"], made["imagePullPolicy"]) == (read.operator_image, "Never")


def test_a_correction_of_the_catalog_reaches_the_operator(tmp_path: Path) -> None:
    values = {"catalog": {"ours.yaml": {"gpus": [{"name": "H200", "memory_mib": 99_999}]}}}
    files = chart(values)["ConfigMap", NAMESPACE, f"{RELEASE}-catalog"]["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    h200 = read_catalog(tmp_path).gpu("NVIDIA-H200")
    assert h200 is not None
    assert h200.memory_mib == 99_999
    (mount,) = (m for m in container(values)["volumeMounts"] if m["name"] == "catalog")
    assert mount["mountPath"] == "/etc/llmengine-catalog", "where the operator looks for it"
    assert ("ConfigMap", NAMESPACE, f"{RELEASE}-catalog") not in chart(), "made though there is nothing to correct"


def test_another_configuration_takes_another_pod() -> None:
    def annotations(values: dict[str, Any]) -> Any:
        return deployment(values)["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) == annotations({"replicas": 2})
    assert annotations({}) != annotations({"hubEndpoint": "http://hub"})
    assert annotations({}) != annotations({"catalog": {"ours.yaml": {"gpus": []}}})


def test_scheduling_is_passed_on() -> None:
    values: dict[str, Any] = {
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "cpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "imagePullSecrets": ["registry"],
        "topologySpreadConstraints": [{"maxSkew": 1}],
    }
    pod = deployment(values)["spec"]["template"]["spec"]
    assert {name: pod[name] for name in values} == values | {"imagePullSecrets": [{"name": "registry"}]}


def test_c112_the_crds_are_upgraded_with_the_chart_and_outlive_the_release() -> None:
    for file in (CHART.parents[1] / "crds").glob("*s.yaml"):
        wanted = yaml.safe_load(file.read_text())
        made = chart()["CustomResourceDefinition", "", wanted["metadata"]["name"]]
        assert made["spec"] == wanted["spec"]
        assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    dropped = chart({"crds": {"keep": False}})["CustomResourceDefinition", "", "llmengines.llmengine.dev"]
    assert "annotations" not in dropped["metadata"]
    assert not any(kind == "CustomResourceDefinition" for kind, _, _ in chart({"crds": {"enabled": False}}))


def test_with_named_namespaces_the_rights_are_in_these_alone() -> None:
    made = chart({"watchNamespaces": ["team-a"]})
    everywhere = chart()
    wide, narrow = everywhere["ClusterRole", "", RELEASE]["rules"], made["ClusterRole", "", RELEASE]["rules"]
    assert {r for rule in narrow for r in rule["resources"]} == {"nodes", "customresourcedefinitions"}
    assert narrow + made["Role", "team-a", RELEASE]["rules"] == wide
    assert (
        made["RoleBinding", "team-a", RELEASE]["subjects"] == everywhere["ClusterRoleBinding", "", RELEASE]["subjects"]
    )


def test_no_right_is_given_to_find_secrets_or_to_enter_pods() -> None:
    """`get` takes a name, and who may create Jobs can have a Pod mount the Secret of a name; `list` tells the names."""
    rules = [rule for obj in chart().values() for rule in obj.get("rules", ())]
    given = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert {pair for pair in given if pair[0] == "secrets"} == {("secrets", "get")}
    assert not {pair for pair in given if pair[0] in ("pods/exec", "serviceaccounts/token", "*")}
    assert not {pair for pair in given if pair[1] in ("*", "escalate", "impersonate")}
    (bind,) = (rule for rule in rules if "bind" in rule["verbs"])
    assert bind == {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": [f"{RELEASE}-front"],
        "verbs": ["bind"],
    }
    front = chart()["ClusterRole", "", f"{RELEASE}-front"]["rules"]
    assert {(kind, verb) for rule in front for kind in rule["resources"] for verb in rule["verbs"]} == {
        (kind, verb) for kind in ("llmengines", "endpointslices") for verb in ("list", "watch")
    }
    assert ("pods", "create") not in given


def test_every_right_is_one_that_the_operator_uses() -> None:
    watched = {watch.resource.plural for watch in WATCHES} | {"customresourcedefinitions"}  # kopf looks for kinds
    posted = {"jobs", "configmaps", "controllerrevisions"}  # both are read where the name is taken
    # What does not exist yet takes both verbs.
    applied = {"engineartifacts", "deployments", "services", "serviceaccounts", "rolebindings", "poddisruptionbudgets"}
    used = {
        *((kind, verb) for kind in watched for verb in ("list", "watch")),
        *((kind, verb) for kind in posted for verb in ("create", "get", "delete")),
        *((kind, verb) for kind in applied for verb in ("create", "get", "patch", "delete")),
        *((f"{kind}/{part}", verb) for kind in OURS for part, verb in (("status", "patch"), ("finalizers", "update"))),
        ("engineartifacts", "update"),  # to take its finalizer away
        ("jobs", "patch"),  # to let the removal of its files begin
        ("controllerrevisions", "update"),  # to take an orphan back
        *((kind, "get") for kind in ("pods/log", "secrets", "serviceaccounts")),
        ("events", "list"),
        ("clusterroles", "bind"),  # the one of the endpoints
    }
    rules = chart()["ClusterRole", "", RELEASE]["rules"]
    assert {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]} == used
    files = (ROOT / "manifests/rbac/operator.yaml").read_text()
    assert next(obj for obj in yaml.safe_load_all(files) if obj["kind"] == "ClusterRole")["rules"] == rules


def test_users_read_with_the_role_view_and_write_with_edit() -> None:
    made = chart()
    assert (
        made["ClusterRole", "", f"{RELEASE}-view"]["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"]
        == "true"
    )
    edit = made["ClusterRole", "", f"{RELEASE}-edit"]["metadata"]["labels"]
    assert edit["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert edit["rbac.authorization.k8s.io/aggregate-to-admin"] == "true"


def test_two_releases_keep_out_of_each_others_way() -> None:
    names = {name for _, _, name in chart(release="other", namespace="other")}
    shared = {"llmengines.llmengine.dev", "engineartifacts.llmengine.dev"}
    assert all(name.startswith("other-llmengine-operator") for name in names - shared)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replica": 2}, "replica"),
        ({"image": {"name": "x"}}, "name"),
        ({"image": {"repository": "operator:1.0"}}, "repository"),
        ({"image": {"repository": "operator", "digest": "abc"}}, "digest"),
        ({"imagePullPolicy": "Sometimes"}, "imagePullPolicy"),
        ({"toolchainImages": {"1.2.1": "tritonserver:latest"}}, "toolchainImages"),
        ({"toolchainImages": {"latest": TOOLCHAIN}}, "latest"),
        ({"hubEndpoint": "hub.models"}, "hubEndpoint"),
        ({"watchNamespaces": ["Team A"]}, "watchNamespaces"),
        ({"catalog": {"ours": {}}}, "ours"),
        ({"artifactGraceSeconds": -1}, "artifactGraceSeconds"),
        ({"metrics": {"serviceMonitor": {"enabled": "yes"}}}, "serviceMonitor"),
        ({"resources": {"request": {}}}, "request"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_by_its_name(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        chart(values)


@pytest.mark.parametrize("part", ["serviceMonitor", "prometheusRule"])
def test_monitoring_is_refused_where_nothing_would_read_it(part: str) -> None:
    with pytest.raises(Refused, match="install the Prometheus operator first"):
        chart({"metrics": {part: {"enabled": True}}})


def test_a_service_account_that_is_not_made_has_to_be_named() -> None:
    with pytest.raises(Refused, match=r"serviceAccount\.name must be given"):
        chart({"serviceAccount": {"create": False}})
    named = chart({"serviceAccount": {"create": False, "name": "mine"}})
    assert named["Deployment", NAMESPACE, RELEASE]["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    assert not any(kind == "ServiceAccount" for kind, _, _ in named)


def test_the_schema_knows_every_value() -> None:
    def leaves(values: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        for name, value in values.items():
            assert name in schema["properties"], f"values.yaml has {path}{name}, which values.schema.json does not"
            if isinstance(value, dict) and "properties" in schema["properties"][name]:
                leaves(value, schema["properties"][name], f"{path}{name}.")

    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    leaves(values, schema, "")
    assert set(schema["properties"]) - {"global"} == set(values), "values.yaml does not show every value"
