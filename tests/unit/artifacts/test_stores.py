"""What a Pod gets of a store: every Job and the server, for a claim and for a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from trtllm_operator.kube.resource import DEPLOYMENT, JOB
from trtllm_operator.objects import ATTEMPT, label
from trtllm_operator.reconcile.watches import ENGINE_ARTIFACT

from ..engines.simulation import REPORT, World, engine
from .world import CONFIG

BUCKET = {"bucket": "engines", "prefix": "team", "endpoint": "https://minio:9000", "region": "us-east-1"}
S3 = {"s3": {**BUCKET, "credentialsSecretRef": {"name": "engines-key"}}}
CLAIM = {"persistentVolumeClaim": {"claimName": "engines"}}
MODEL_BUCKET = {"s3": {"bucket": "models", "prefix": "smol", "credentialsSecretRef": {"name": "models-key"}}}
STEP_IMAGE = CONFIG.operator_image


def pods_of(**changes: Any) -> dict[str, Mapping[str, Any]]:
    """The spec of every kind of Pod that the LLMEngine brings about, the end of its artifacts included."""
    world = World()
    made = world.put(engine(**changes))
    found: dict[str, Mapping[str, Any]] = {}

    def look() -> None:
        for job in world.find(JOB):
            kind = (label(job, "llmengine.dev/artifact") or "inspect").partition("-")[0]
            step = "collect" if job["metadata"]["name"].endswith("-collect") else kind
            found[step] = job["spec"]["template"]["spec"]
        for deployment in world.find(DEPLOYMENT):
            found["server"] = deployment["spec"]["template"]["spec"]

    for _ in range(20):
        world.reconcile()
        look()
        world.start_jobs()
        for job in world.unfinished_jobs():
            world.finish(job)
    world.delete(made)
    for _ in range(8):
        world.pass_time(CONFIG.artifact_grace_seconds + 1)
        world.reconcile()
        look()
    assert set(found) == {"inspect", "model", "checkpoint", "engine", "server", "collect"}
    return found


def containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from pod.get("initContainers", ())
    yield from pod["containers"]


def mount(container: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    return next((m for m in container["volumeMounts"] if m["mountPath"] == path), None)


def arguments(container: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(container["command"][-1]))


@pytest.fixture(scope="module")
def on_claim() -> dict[str, Mapping[str, Any]]:
    return pods_of(storage=CLAIM)


@pytest.fixture(scope="module")
def in_bucket() -> dict[str, Mapping[str, Any]]:
    return pods_of(storage=S3, model=MODEL_BUCKET)


class TestBucket:
    def test_credentials_are_files_of_the_operators_own_image_alone(self, in_bucket: dict[str, Any]) -> None:
        for kind, pod in in_bucket.items():
            for container in containers(pod):
                secrets = [m for m in container["volumeMounts"] if m["mountPath"].startswith("/var/run/secrets/")]
                if container["image"] != STEP_IMAGE:
                    assert not secrets, f"{kind}/{container['name']} runs the toolchain's image"
                assert all(m["readOnly"] for m in secrets)
                assert not any("secret" in json.dumps(e).lower() for e in container.get("env", ()))

    @pytest.mark.parametrize(
        ("kind", "name", "secrets"),
        [
            ("inspect", "inspect", {"models-key"}),
            ("model", "fetch", {"models-key", "engines-key"}),
            ("checkpoint", "stage", {"engines-key"}),
            ("checkpoint", "publish", {"engines-key"}),
            ("engine", "stage", {"engines-key"}),
            ("engine", "publish", {"engines-key"}),
            ("server", "provide", {"engines-key"}),
            ("collect", "collect", {"engines-key"}),
        ],
    )
    def test_each_step_gets_what_it_needs(
        self, in_bucket: dict[str, Any], kind: str, name: str, secrets: set[str]
    ) -> None:
        pod = in_bucket[kind]
        volumes = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        container = next(c for c in containers(pod) if c["name"] == name)
        assert {volumes[m["name"]] for m in container["volumeMounts"] if m["name"] in volumes} == secrets
        if kind != "inspect":
            spec = arguments(container)
            assert spec["store"] == {"s3": BUCKET, "credentials": "/var/run/secrets/llmengine/store"}
            assert mount(container, spec["store"]["credentials"])
        if "models-key" in secrets:
            assert mount(container, arguments(container)["credentials"])

    def test_nothing_mounts_a_claim(self, in_bucket: dict[str, Any]) -> None:
        for pod in in_bucket.values():
            assert not any("persistentVolumeClaim" in v for v in pod["volumes"])

    def test_what_the_toolchain_reads_is_where_the_step_before_it_has_put_it(self, in_bucket: dict[str, Any]) -> None:
        build = next(c for c in containers(in_bucket["engine"]) if c["name"] == "build")
        stage = next(c for c in containers(in_bucket["engine"]) if c["name"] == "stage")
        assert arguments(build)["parent"] == f"/scratch/store/{arguments(stage)['parent']}"
        assert arguments(build)["model"] == f"/scratch/store/{arguments(stage)['model']}"
        triton, provide = in_bucket["server"]["containers"][0], in_bucket["server"]["initContainers"][0]
        assert arguments(triton)["engine"] == f"/scratch/store/{arguments(provide)['engine']}"
        assert arguments(triton)["tokenizer"] == f"/scratch/store/{arguments(provide)['model']}"
        assert arguments(triton)["models"]["tensorrt_llm"]["engine_dir"] == arguments(triton)["engine"]

    def test_the_node_is_asked_for_the_disk_that_is_needed(self, in_bucket: dict[str, Any]) -> None:
        """Bytes of SmolLM2 in float16: 269 MB of weights as model, checkpoint and engine; 256 MiB above."""
        mebibytes = {}
        for kind, name in (
            ("model", "fetch"),
            ("checkpoint", "convert"),
            ("engine", "build"),
            ("server", "provide"),
        ):
            container = next(c for c in containers(in_bucket[kind]) if c["name"] == name)
            mebibytes[kind] = int(container["resources"]["requests"]["ephemeral-storage"].removesuffix("Mi"))
        weights, above = 269_030_016 / 2**20, 256
        assert mebibytes["model"] == pytest.approx(2 * 100 + above, abs=2), "two files of 100 MiB at a time"
        assert mebibytes["checkpoint"] >= 2 * weights + above, "the model and the checkpoint"
        assert mebibytes["engine"] >= 2 * weights + above, "the checkpoint and the engine"
        assert weights * 1.1 + above - 1 <= mebibytes["server"] <= weights * 1.5 + above

    def test_other_credentials_change_no_artifact(self) -> None:
        names = []
        for secret in ("one", "two"):
            world = World()
            world.put(engine(storage={"s3": {**BUCKET, "credentialsSecretRef": {"name": secret}}}))
            world.run_everything()
            found = world.find(ENGINE_ARTIFACT)
            names.append({a["metadata"]["name"] for a in found})
            assert all(a["status"]["cleanup"]["storeSecretRef"] == {"name": secret} for a in found)
            pods = [j["spec"]["template"]["spec"] for j in world.find(JOB) if label(j, ATTEMPT)]
            mounted = {v["secret"]["secretName"] for p in pods for v in p["volumes"] if "secret" in v}
            assert mounted == {secret}
        assert names[0] == names[1]


class TestClaim:
    def test_only_publication_and_the_end_write_to_it(self, on_claim: dict[str, Any]) -> None:
        for kind, pod in on_claim.items():
            for container in containers(pod):
                store = mount(container, "/store")
                if kind == "inspect":
                    assert store is None
                    continue
                assert store is not None
                writes = container["name"] in ("fetch", "publish", "collect")
                assert store.get("readOnly", False) is not writes, f"{kind}/{container['name']}"

    def test_a_server_reads_it_where_it_is(self, on_claim: dict[str, Any]) -> None:
        assert "initContainers" not in on_claim["server"]
        assert arguments(on_claim["server"]["containers"][0])["engine"].startswith("/store/engine-")

    def test_no_secret_is_mounted(self, on_claim: dict[str, Any]) -> None:
        assert not any("secret" in v for pod in on_claim.values() for v in pod["volumes"])


def test_the_report_of_the_simulation_tells_the_largest_file() -> None:
    assert REPORT["largestFileBytes"] == 100 << 20
