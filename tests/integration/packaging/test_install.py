"""The chart on a real API server: accepted, kept to `restricted`, with the rights it needs and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.api.kubectl import Kubectl
from tests.integration.packaging.rendered import NAMESPACE, RELEASE, bundle, chart
from trtllm_operator.reconcile.watches import WATCHES

pytestmark = pytest.mark.apiserver

OPERATOR = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"


def test_the_operators_pod_keeps_to_the_restricted_profile(installed: Kubectl) -> None:
    template = chart()["Deployment", NAMESPACE, RELEASE]["spec"]["template"]
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": template["spec"]}
    installed.ok("create", "--dry-run=server", "-f", "-", given=pod)
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "violates PodSecurity" in installed.refused("create", "--dry-run=server", "-f", "-", given=pod)


def test_a_second_apply_changes_nothing(installed: Kubectl) -> None:
    before = installed.get("deployment,service,configmap,role,clusterrole", "-l", f"app.kubernetes.io/name={RELEASE}")
    objects = {"apiVersion": "v1", "kind": "List", "items": list(chart().values())}
    installed.ok("apply", "--server-side", "-f", "-", given=objects)
    after = installed.get("deployment,service,configmap,role,clusterrole", "-l", f"app.kubernetes.io/name={RELEASE}")
    assert len(before["items"]) > 5
    assert [o["metadata"]["resourceVersion"] for o in after["items"]] == [
        o["metadata"]["resourceVersion"] for o in before["items"]
    ]


def may(installed: Kubectl, user: str, verb: str, resource: str, namespace: str, name: str = "") -> bool:
    """What the API server's authorizer says of `user`."""
    kind, _, subresource = resource.partition("/")
    plural, _, group = kind.partition(".")
    attributes = {"verb": verb, "resource": plural, "group": group, "subresource": subresource}
    attributes |= {"namespace": namespace, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = json.loads(installed.ok("create", "-f", "-", "-o", "json", given=review))
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("resource", [w.resource for w in WATCHES], ids=lambda r: r.plural)
def test_the_operator_may_watch_what_it_watches(installed: Kubectl, resource: Any) -> None:
    name = f"{resource.plural}.{resource.group}".rstrip(".")
    assert may(installed, OPERATOR, "list", name, "")
    assert may(installed, OPERATOR, "watch", name, "")


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("patch", "llmengines.llmengine.dev/status"),
        ("update", "llmengines.llmengine.dev/finalizers"),
        ("create", "engineartifacts.llmengine.dev"),
        ("update", "engineartifacts.llmengine.dev"),
        ("delete", "engineartifacts.llmengine.dev"),
        ("patch", "engineartifacts.llmengine.dev/status"),
        ("update", "engineartifacts.llmengine.dev/finalizers"),
        ("create", "jobs.batch"),
        ("delete", "jobs.batch"),
        ("create", "configmaps"),
        ("get", "pods/log"),
        ("get", "secrets"),
        ("get", "serviceaccounts"),
        ("create", "serviceaccounts"),
        ("create", "rolebindings.rbac.authorization.k8s.io"),
        ("create", "poddisruptionbudgets.policy"),
        ("patch", "jobs.batch"),
        ("create", "controllerrevisions.apps"),
        ("delete", "controllerrevisions.apps"),
        *[(verb, resource) for verb in ("create", "patch", "delete") for resource in ("deployments.apps", "services")],
    ],
)
def test_the_operator_may_do_its_work_in_every_namespace(installed: Kubectl, verb: str, resource: str) -> None:
    assert may(installed, OPERATOR, verb, resource, "team-a")


@pytest.mark.parametrize(
    ("verb", "resource", "namespace"),
    [
        ("list", "secrets", ""),
        ("list", "secrets", "team-a"),
        ("watch", "secrets", "team-a"),
        ("patch", "secrets", "team-a"),
        ("create", "pods", "team-a"),
        ("create", "pods/exec", "team-a"),
        ("patch", "llmengines.llmengine.dev", "team-a"),
        ("delete", "llmengines.llmengine.dev", "team-a"),
        ("patch", "nodes", ""),
        ("create", "leases.coordination.k8s.io", "team-a"),
        ("create", "serviceaccounts/token", NAMESPACE),
        ("create", "roles.rbac.authorization.k8s.io", "team-a"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io", ""),
    ],
)
def test_the_operator_may_not_do_more(installed: Kubectl, verb: str, resource: str, namespace: str) -> None:
    assert not may(installed, OPERATOR, verb, resource, namespace)


def test_the_operator_binds_nobody_to_any_role_but_that_of_the_endpoints(installed: Kubectl) -> None:
    def bind(role: str) -> tuple[str, ...]:
        to = ("--clusterrole", role, "--serviceaccount", "team-a:smol-front", "--namespace", "team-a")
        return ("create", "rolebinding", "smol-front", *to, "--as", OPERATOR, "--dry-run=server")

    installed.ok("create", "namespace", "team-a")
    installed.ok(*bind("llmengine-operator-front"))
    for role in ("cluster-admin", "llmengine-operator-edit"):
        assert "attempting to grant RBAC permissions not currently held" in installed.refused(*bind(role))


def test_the_operator_holds_its_own_lease_alone(installed: Kubectl) -> None:
    lease = "leases.coordination.k8s.io"
    assert may(installed, OPERATOR, "create", lease, NAMESPACE)
    for verb in ("get", "update"):
        assert may(installed, OPERATOR, verb, lease, NAMESPACE, "llmengine-operator")
        assert not may(installed, OPERATOR, verb, lease, NAMESPACE, "another")


def test_the_samples_are_good(installed: Kubectl) -> None:
    samples = bundle("manifests/samples")
    assert {name for kind, _, name in samples if kind == "LLMEngine"} == {"smollm2", "llama-3-1-8b"}
    for obj in samples.values():
        installed.ok("apply", "--dry-run=server", "-f", "-", given=obj)
