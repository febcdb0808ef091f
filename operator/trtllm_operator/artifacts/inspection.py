"""The Jobs that read a model's config and tensor headers, and a user's calibration texts, before a GPU is asked for."""

from __future__ import annotations

from typing import Any

from ..api.common import PersistentVolumeClaimDirectory
from ..api.engineartifact import Policy
from ..api.llmengine import LLMEngineSpec
from ..objects import ENGINE, MANAGED, RETRY, SCRATCH, Obj, annotation, short_hash
from ..operator_config import OperatorConfig
from .jobs import base_pod, mount_texts, owned_job, source_arguments, step_container, texts_arguments, with_model_source
from .secrets import UNKNOWN, Secrets

TIMEOUT_SECONDS = 600
RETRY_SECONDS = 15
"""Between an inspection that failed for a reason that may pass and the next one."""


def source_hash(spec: LLMEngineSpec) -> str:
    """Of the model source as written: another source is inspected anew."""
    return short_hash(spec.model.dump())


def inspection_name(engine_name: str, spec: LLMEngineSpec) -> str:
    return f"{engine_name}-inspect-{source_hash(spec)}"


def texts_inspection_name(engine_name: str, texts: PersistentVolumeClaimDirectory) -> str:
    return f"{engine_name}-inspect-{short_hash(texts.dump())}"


def inspection_policy(spec: LLMEngineSpec) -> Policy:
    """Where the model is inspected, and the Secret that opens its source."""
    hub, bucket = spec.model.hugging_face, spec.model.s3
    return _placement(spec).model_copy(
        update={
            "token_secret_ref": hub.token_secret_ref if hub else None,
            "model_secret_ref": bucket.credentials_secret_ref if bucket else None,
        }
    )


def inspection_job(
    owner: Obj, spec: LLMEngineSpec, config: OperatorConfig, secrets: Secrets = UNKNOWN
) -> dict[str, Any]:
    """Reads the model. Needs neither the store nor a GPU; owned by the LLMEngine and gone with it."""
    policy = inspection_policy(spec)
    pod = base_pod(policy, _volumes())
    arguments = {"model": spec.model.dump(), **source_arguments(policy)}
    container = step_container("inspect", "inspect", arguments, config, _mounts())
    with_model_source(pod, container, policy, spec.model, config)
    return _job(owner, inspection_name(owner["metadata"]["name"], spec), pod, container, secrets)


def texts_inspection_job(
    owner: Obj, spec: LLMEngineSpec, texts: PersistentVolumeClaimDirectory, config: OperatorConfig
) -> dict[str, Any]:
    """Reads calibration texts on a claim. A Job of its own: other texts do not resolve the model's branch anew."""
    pod, mounts = base_pod(_placement(spec), _volumes()), _mounts()
    mount_texts(pod, mounts, texts.claim_name)
    container = step_container("digest", "digest", texts_arguments(texts), config, mounts)
    return _job(owner, texts_inspection_name(owner["metadata"]["name"], texts), pod, container)


def _placement(spec: LLMEngineSpec) -> Policy:
    return Policy(node_selector=spec.build.node_selector, tolerations=spec.build.tolerations)


def _volumes() -> list[dict[str, Any]]:
    return [{"name": name, "emptyDir": {}} for name in ("scratch", "tmp")]


def _mounts() -> list[dict[str, Any]]:
    return [{"name": "scratch", "mountPath": SCRATCH}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 (in the Pod)


def _job(
    owner: Obj, name: str, pod: dict[str, Any], container: dict[str, Any], secrets: Secrets = UNKNOWN
) -> dict[str, Any]:
    asked = annotation(owner, RETRY)
    labels = {MANAGED: "true", ENGINE: owner["metadata"]["name"]}
    annotations = {**({RETRY: asked} if asked else {}), **secrets.annotations()}
    return owned_job(owner, name, labels, {**pod, "containers": [container]}, TIMEOUT_SECONDS, annotations=annotations)
