"""Whether what is there says what is wanted, the way the API server would see it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from trtllm_operator.kube.diff import canonical_quantity, covers, differences

LIVE: dict[str, Any] = {
    "metadata": {
        "labels": {"app": "x", "added-by": "somebody"},
        "ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}],
        "finalizers": ["one", "two"],
    },
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {"name": "injected", "image": "sidecar"},
                    {
                        "name": "server",
                        "image": "triton",
                        "args": ["--a", "--b"],
                        "imagePullPolicy": "IfNotPresent",
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "ports": [{"containerPort": 8000, "protocol": "TCP"}, {"containerPort": 8001}],
                        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                    },
                ],
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
            }
        },
    },
}


def server(**fields: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "server", **fields}]}}}}


@pytest.mark.parametrize(
    "desired",
    [
        {},
        {"spec": {"replicas": 2}},
        {"metadata": {"labels": {"app": "x"}, "ownerReferences": [{"uid": "2", "name": "b"}], "finalizers": ["two"]}},
        server(image="triton", args=["--a", "--b"]),
        server(env=[{"name": "B", "value": "2"}]),
        server(ports=[{"containerPort": 8001}]),
        server(ports=[{"containerPort": 8000, "protocol": "TCP"}]),
        server(resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}}),
        server(resources={"limits": {"cpu": 1}}),
        {"spec": {"template": {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}}},
    ],
)
def test_covered(desired: dict[str, Any]) -> None:
    assert list(differences(LIVE, desired)) == []


@pytest.mark.parametrize(
    ("desired", "path"),
    [
        ({"spec": {"replicas": 3}}, "spec.replicas"),
        ({"spec": {"paused": False}}, "spec.paused"),
        ({"metadata": {"labels": {"app": "y"}}}, "metadata.labels.app"),
        ({"metadata": {"finalizers": ["three"]}}, "metadata.finalizers"),
        (server(args=["--a"]), "spec.template.spec.containers[server].args"),
        (server(args=["--b", "--a"]), "spec.template.spec.containers[server].args[0]"),
        (server(env=[{"name": "C", "value": "1"}]), "spec.template.spec.containers[server].env[C]"),
        (server(env=[{"name": "A", "value": "2"}]), "spec.template.spec.containers[server].env[A].value"),
        (server(resources={"limits": {"cpu": "2"}}), "spec.template.spec.containers[server].resources.limits.cpu"),
        ({"spec": {"template": {"spec": {"tolerations": []}}}}, "spec.template.spec.tolerations"),
        ({"spec": {"template": {"spec": {"volumes": []}}}}, "spec.template.spec.volumes"),
    ],
)
def test_not_covered(desired: dict[str, Any], path: str) -> None:
    assert [difference.path for difference in differences(LIVE, desired)][:1] == [path]
    assert not covers(LIVE, desired)


def test_text_that_looks_like_a_quantity_elsewhere_is_text() -> None:
    assert not covers({"data": {"size": "1Gi"}}, {"data": {"size": "1024Mi"}})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "env", "ports", "limits", "spec", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json_values)
def test_everything_covers_itself(value: Any) -> None:
    assert covers(value, value) or _has_duplicate_items(value)


def _has_duplicate_items(value: Any) -> bool:
    """Two items of one key in a list merged by key: the API server refuses those."""
    if isinstance(value, dict):
        return any(_has_duplicate_items(item) for item in value.values())
    if isinstance(value, list):
        names = [str(item.get("name")) for item in value if isinstance(item, dict)]
        return len(set(names)) < len(names) or any(map(_has_duplicate_items, value))
    return False


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1023Ki", "1023Ki"),
        ("2048", "2048"),
        ("1000000", "1M"),
        ("128974848", "128974848"),
        ("129e6", "129e6"),
        ("129M", "129M"),
        ("1e3", "1e3"),
        ("12E2", "1200"),
        ("1E", "1E"),
        ("0", "0"),
        ("0Gi", "0"),
        ("0.5Ki", "512"),
        (2, "2"),
        ("100n", "100n"),
        ("0.1n", "1n"),
        ("-1024Mi", "-1Gi"),
    ],
)
def test_quantities_are_written_as_the_api_server_writes_them(written: str | int, canonical: str) -> None:
    assert canonical_quantity(written) == canonical


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1Gb", "NaN", "Infinity", "one"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no resource quantity"):
        canonical_quantity(text)


def value(quantity: str) -> Decimal:
    """By the Kubernetes client, whose function has no types."""
    return Decimal(parse_quantity(quantity))  # type: ignore[no-untyped-call]


@given(
    st.integers(0, 10**12),
    st.sampled_from(["", "m", "u", "n", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]),
)
def test_a_canonical_quantity_has_the_same_value_and_stays_as_it_is(number: int, suffix: str) -> None:
    canonical = canonical_quantity(f"{number}{suffix}")
    assert canonical_quantity(canonical) == canonical
    assert value(canonical) == value(f"{number}{suffix}")
