"""The Job that reads a model's config and tensor headers before any weight is fetched, and what it reports."""

from __future__ import annotations

from typing import Any

from ..api.engineartifact import Policy
from ..api.llmengine import LLMEngineSpec
from ..config import OperatorConfig
from ..objects import ENGINE, MANAGED, RETRY, SCRATCH, Obj, annotation, short_hash
from .jobs import base_pod, owned_job, source_arguments, step_container, with_model_source

TIMEOUT_SECONDS = 600
RETRY_SECONDS = 15
"""Between an inspection that failed for a reason that may pass and the next one."""


def source_hash(spec: LLMEngineSpec) -> str:
    """Of the model source as written: another source is inspected anew."""
    return short_hash(spec.model.dump())


def inspection_name(engine_name: str, spec: LLMEngineSpec) -> str:
    return f"{engine_name}-inspect-{source_hash(spec)}"


def inspection_job(owner: Obj, spec: LLMEngineSpec, config: OperatorConfig) -> dict[str, Any]:
    """Needs neither the store nor a GPU; owned by the LLMEngine and gone with it."""
    meta = owner["metadata"]
    hub, bucket = spec.model.hugging_face, spec.model.s3
    labels = {MANAGED: "true", ENGINE: meta["name"]}
    empty_dirs: list[dict[str, Any]] = [{"name": name, "emptyDir": {}} for name in ("scratch", "tmp")]
    mounts = [{"name": "scratch", "mountPath": SCRATCH}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 (in the Pod)
    policy = Policy(
        node_selector=spec.build.node_selector,
        tolerations=spec.build.tolerations,
        token_secret_ref=hub.token_secret_ref if hub else None,
        model_secret_ref=bucket.credentials_secret_ref if bucket else None,
    )
    pod = base_pod(policy, empty_dirs)
    container = step_container(
        "inspect", "inspect", {"model": spec.model.dump(), **source_arguments(policy)}, config, mounts
    )
    with_model_source(pod, container, policy, spec.model, config)
    pod["containers"] = [container]
    asked = annotation(owner, RETRY)
    return owned_job(
        owner,
        inspection_name(meta["name"], spec),
        labels,
        pod,
        TIMEOUT_SECONDS,
        annotations={RETRY: asked} if asked else None,
    )
