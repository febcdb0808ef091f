"""The kustomize bundle makes what the chart makes."""

from __future__ import annotations

import copy
import json
import re

import pytest

from tests.integration.packaging.rendered import NAMESPACE, RELEASE, Key, Obj, bundle, chart, key

HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")


def comparable(obj: Obj) -> Obj:
    """Without what is Helm's or kustomize's own way to the same end."""
    out: Obj = json.loads(re.sub(rf'"{RELEASE}-[a-z0-9]{{10}}"', f'"{RELEASE}"', json.dumps(obj)))
    metas = [out["metadata"]]
    if out["kind"] == "Deployment":
        metas.append(out["spec"]["template"]["metadata"])
    for meta in metas:
        for name in HELM_LABELS:
            meta.get("labels", {}).pop(name, None)
        for name in ("helm.sh/resource-policy", "checksum/config"):
            meta.get("annotations", {}).pop(name, None)
        if not meta.get("annotations"):
            meta.pop("annotations", None)
    return out


def by_key(objects: dict[Key, Obj]) -> dict[Key, Obj]:
    made = [comparable(obj) for obj in objects.values()]
    return {key(obj): obj for obj in made}


@pytest.fixture(scope="module")
def bundled() -> dict[Key, Obj]:
    return bundle("manifests")


def test_chart_and_bundle_make_the_same_objects(bundled: dict[Key, Obj]) -> None:
    wanted, made = by_key(chart()), by_key(bundled)
    namespace = made.pop(("Namespace", "", NAMESPACE))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert made.keys() == wanted.keys()
    for name in wanted:
        assert made[name] == wanted[name], f"{name} differs between chart and kustomize bundle"


def test_the_comparison_sees_a_difference(bundled: dict[Key, Obj]) -> None:
    other = copy.deepcopy(bundled)
    other["Deployment", NAMESPACE, RELEASE]["spec"]["template"]["spec"]["securityContext"]["runAsUser"] = 0
    assert by_key(other) != by_key(bundled)


def test_the_cpu_steps_run_from_the_operators_image(bundled: dict[Key, Obj]) -> None:
    container = bundled["Deployment", NAMESPACE, RELEASE]["spec"]["template"]["spec"]["containers"][0]
    (settings,) = (o for (kind, _, _), o in bundled.items() if kind == "ConfigMap")
    assert f'operatorImage: "{container["image"]}"' in settings["data"]["config.yaml"]
