"""An LLMEngine whose artifacts are in a bucket of a real S3 server, and artifacts that are damaged in either store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from demo.kubectl import Kubectl, Obj, wait_for
from demo.stack import POD_SECURITY, Stack
from testbed.cluster.build import build_extra
from testbed.cluster.images import write_static
from testbed.s3 import ACCESS_KEY, SECRET_KEY, client_of
from trtllm_operator.objects import CONTAINER_SECURITY

from .smollm2 import answer, delete, llmengine, wait_ready

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PORT = 7070
BUCKET, PREFIX = "engines", "team-a"
KEYS = "engines-bucket"
REPAIR_SECONDS = 240


def s3_server(image: str) -> tuple[Obj, Obj]:
    labels = {"app": "s3"}
    container = {
        "name": "s3",
        "image": image,
        "args": ["--port", f":{PORT}", "--quiet", "posix", "--sidecar", "/meta", "/data"],
        "env": [{"name": "ROOT_ACCESS_KEY", "value": ACCESS_KEY}, {"name": "ROOT_SECRET_KEY", "value": SECRET_KEY}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": n, "mountPath": f"/{n}"} for n in ("data", "meta", "tmp")],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "s3", "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {**POD_SECURITY, "fsGroup": POD_SECURITY["runAsUser"]},
            "containers": [container],
            "volumes": [{"name": n, "emptyDir": {}} for n in ("data", "meta", "tmp")],
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s3"},
        "spec": {"selector": labels, "ports": [{"port": PORT, "targetPort": PORT}]},
    }
    return pod, service


@pytest.fixture(scope="module")
def bucket(stack: Stack, namespace: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A client of the server that runs as a Pod, with an empty bucket."""
    archive = tmp_path_factory.mktemp("s3") / "s3.oci"
    write_static(build_extra("versitygw"), "docker.io/llmengine/s3-server:test", archive)
    (image,) = stack.cluster.import_images(archive)
    secret = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    kind = {"apiVersion": "v1", "kind": "Secret"}
    namespace.apply(*s3_server(image.by_digest), {**kind, "metadata": {"name": KEYS}, "stringData": secret})
    namespace("wait", "pod/s3", "--for=condition=Ready", "--timeout=60s", timeout_seconds=70)
    client = client_of(f"http://{namespace.get('pod', 's3')['status']['podIP']}:{PORT}")
    client.create_bucket(Bucket=BUCKET)
    return client


def in_bucket(namespace: Kubectl) -> dict[str, Any]:
    where = {"bucket": BUCKET, "prefix": PREFIX, "endpoint": f"http://s3.{namespace.namespace}.svc:{PORT}"}
    return {"s3": {**where, "credentialsSecretRef": {"name": KEYS}}}


def keys(bucket: Any) -> list[str]:
    found = bucket.list_objects_v2(Bucket=BUCKET, Prefix=f"{PREFIX}/").get("Contents", ())
    return [o["Key"].removeprefix(f"{PREFIX}/") for o in found]


def engine_artifact(namespace: Kubectl) -> Obj:
    (found,) = [a for a in namespace.items("engineartifacts") if a["spec"]["type"] == "Engine"]
    return found


def server(namespace: Kubectl, name: str) -> Obj:
    """The newest server Pod."""
    pods = namespace.items("pods", "-l", f"llmengine.dev/engine={name},llmengine.dev/target")
    return max(pods, key=lambda p: str(p["metadata"]["creationTimestamp"]))


def wait_repaired(namespace: Kubectl, name: str, artifact: str) -> Obj:
    """The artifact was checked, taken away and built again, and serves."""

    def missing() -> str | None:
        status = namespace.get("engineartifact", artifact)["status"]
        record = status.get("damage") or {}
        if record.get("whole") is False and status["phase"] == "Ready":
            return None
        return f"the artifact is {status.get('phase')} ({status.get('reason')}), and of damage it says {record}"

    wait_for(f"{artifact} to be built again", missing, limit_seconds=REPAIR_SECONDS)
    wait_ready(namespace, name, limit_seconds=REPAIR_SECONDS)
    status: Obj = namespace.get("engineartifact", artifact)["status"]
    return status


def test_an_llmengine_in_a_bucket_serves_and_what_is_damaged_there_is_made_again(
    stack: Stack, namespace: Kubectl, bucket: Any
) -> None:
    namespace.apply(llmengine("bucket", storage=in_bucket(namespace)))
    wait_ready(namespace, "bucket")
    assert "Paris" in answer(namespace, name="bucket")

    artifacts = {a["metadata"]["name"]: a for a in namespace.items("engineartifacts")}
    assert {a["spec"]["type"] for a in artifacts.values()} == {"Model", "Checkpoint", "Engine"}
    for name in artifacts:
        body = bucket.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}/manifest.json")["Body"].read()
        listed = {f"{name}/{f['sha256']}/{f['path']}" for f in json.loads(body)["files"]}
        assert {key for key in keys(bucket) if key.startswith(f"{name}/")} == listed | {f"{name}/manifest.json"}
    assert not bucket.list_multipart_uploads(Bucket=BUCKET).get("Uploads")

    pod = server(namespace, "bucket")
    read = namespace("exec", pod["metadata"]["name"], "-c", "triton", "--", "sh", "-c", "env; ls -R /var/run /scratch")
    assert SECRET_KEY not in read
    assert "AWS_" not in read, "the server's own container has no credentials, as files or otherwise"
    assert "rank0.engine" in read

    name = engine_artifact(namespace)["metadata"]["name"]
    key = next(key for key in keys(bucket) if key.startswith(f"{name}/") and key.endswith("rank0.engine"))
    content = bucket.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{key}")["Body"].read()
    bucket.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{key}", Body=content[:-1] + bytes([content[-1] ^ 1]))
    namespace("delete", "pod", pod["metadata"]["name"], "--timeout=120s", timeout_seconds=130)
    status = wait_repaired(namespace, "bucket", name)
    assert "rank0.engine has SHA-256" in status["damage"]["message"]
    assert status["attempt"] == 2, "built once more"
    assert "Paris" in answer(namespace, name="bucket")

    delete(namespace, "bucket")

    def left() -> str | None:
        there = [key for key in keys(bucket) if key != "conditional-writes"]
        return f"there are still {there[:3]}" if there else None

    wait_for("an empty bucket", left, limit_seconds=180)


def test_a_file_that_is_missing_on_a_claim_is_found_before_the_server_starts_and_made_again(
    stack: Stack, namespace: Kubectl
) -> None:
    namespace.apply(llmengine("claim"))
    wait_ready(namespace, "claim")
    name = engine_artifact(namespace)["metadata"]["name"]
    root: Path = stack.cluster.host_root(namespace.namespace, "engines")
    (root / name / "rank0.engine").unlink()
    pod = server(namespace, "claim")
    namespace("delete", "pod", pod["metadata"]["name"], "--timeout=120s", timeout_seconds=130)
    status = wait_repaired(namespace, "claim", name)
    assert "rank0.engine cannot be read (No such file or directory)" in status["damage"]["message"]
    assert (root / name / "rank0.engine").is_file()
    assert "Paris" in answer(namespace, name="claim")
    delete(namespace, "claim")
