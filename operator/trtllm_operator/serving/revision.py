"""A revision: the artifacts and the Pod template of one target as the user's spec asks for them.

It is rendered once and kept in a ControllerRevision. While the user's spec stays, a new operator or a corrected
catalog finds the revision by its name and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..api import GROUP
from ..api.engineartifact import EngineArtifactSpec, GpuClass
from ..api.llmengine import LLMEngineSpec, ResolvedModel, Target
from ..api.stored import read_stored
from ..objects import (
    ENGINE,
    MANAGED,
    REVISION,
    TARGET,
    Artifact,
    Obj,
    label,
    owner_reference,
    short_hash,
    sorted_fields,
)
from ..planning.overrides import effective_spec

CHAIN_LABELS = {"Model": f"{GROUP}/model", "Checkpoint": f"{GROUP}/checkpoint", "Engine": f"{GROUP}/engine-artifact"}
"""Labels of a ControllerRevision that name the artifacts it needs, by type."""


@dataclass(frozen=True)
class Revision:
    name: str
    target: str
    artifacts: tuple[Artifact, ...]
    """Model, Checkpoint, Engine in this order."""
    template: Mapping[str, Any]
    """Pod template of the server."""
    plan: Mapping[str, int]
    """Numbers of the plan: those of `api.llmengine.PlanStatus`, and what the build policy is made from."""
    warnings: tuple[str, ...] = ()
    """What the planner said of the target beside yes."""

    @property
    def runner_config_map(self) -> str:
        """The runner that the template mounts."""
        found = next(v["configMap"]["name"] for v in self.template["spec"]["volumes"] if v["name"] == "runner")
        return str(found)

    @property
    def engine(self) -> Artifact:
        return self.artifacts[-1]


def revision_name(
    engine_name: str,
    spec: LLMEngineSpec,
    target: Target,
    model: ResolvedModel,
    gpu_class: GpuClass | None = None,
    texts_digest: str | None = None,
) -> str:
    """Named after what the user said that matters to this target, and the pinned content of the model and of the texts
    that it is calibrated with.

    Not part of it: replicas, the rollout and the build policy (but for the flags that the engine depends on), other
    targets, and anything that the operator or its catalog adds.
    A field that says its default counts as not said, so that a new version of the API renames nothing. Of the GPU's
    class only what its product does not tell is part of it.
    """
    said = effective_spec(spec, target).model_dump(
        by_alias=True, mode="json", exclude_defaults=True, exclude={"targets", "build", "model", "rollout", "front"}
    )
    if flags := sorted((flag.name, flag.value) for flag in spec.build.extra_flags):
        said["extraFlags"] = flags
    gpu = target.gpu.model_dump(by_alias=True, mode="json", exclude_defaults=True)
    wanted = [said, target.name, gpu, model.source_hash, model.revision]
    odd = gpu_class.model_dump(exclude_defaults=True, exclude={"product", "compute_capability"}) if gpu_class else {}
    if texts_digest:
        odd["texts_digest"] = texts_digest
    return f"{engine_name}-{target.name}-{short_hash([*wanted, odd] if odd else wanted)}"


def bound_name(
    there: Iterable[tuple[str, str | None]],
    engine_name: str,
    spec: LLMEngineSpec,
    target: Target,
    model: ResolvedModel,
    gpu_class: GpuClass | None,
) -> str | None:
    """The first of a target's revisions that is what the spec asks for, whichever texts it was calibrated with: what is
    made already stays when they change. `there`: the revisions' names and `texts_digest`s.
    """
    names: dict[str | None, str] = {}
    for name, digest in there:
        if digest not in names:
            names[digest] = revision_name(engine_name, spec, target, model, gpu_class, digest)
        if names[digest] == name:
            return name
    return None


def controller_revision(owner: Obj, revision: Revision, number: int) -> dict[str, Any]:
    """The stored form. `number` orders the revisions of a target."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision.name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {
                MANAGED: "true",
                ENGINE: owner["metadata"]["name"],
                TARGET: revision.target,
                REVISION: revision.name,
                **{CHAIN_LABELS[a.spec.type]: a.name for a in revision.artifacts},
            },
            "ownerReferences": [owner_reference(owner)],
        },
        "revision": number,
        # In the order in which Go writes them: the data may never change, and whoever patches the object, such as the
        # garbage collector, has them encoded again.
        "data": sorted_fields(
            {
                "artifacts": [{"name": a.name, "spec": a.spec.dump()} for a in revision.artifacts],
                "template": revision.template,
                "plan": revision.plan,
                "warnings": revision.warnings,
            }
        ),
    }


def texts_digest(stored: Obj) -> str | None:
    """Of the texts on a claim that a revision is calibrated with, where they were inspected."""
    inputs = (artifact["spec"]["inputs"] for artifact in stored["data"]["artifacts"])
    return next((i["calibration"].get("digest") for i in inputs if "calibration" in i), None)


def is_readable(stored: Obj) -> bool:
    """Whether this version understands a revision, which a later one may have written."""
    try:
        return bool(read_revision(stored).runner_config_map)
    except (ValidationError, KeyError, TypeError, StopIteration):
        return False


def read_revision(stored: Obj) -> Revision:
    data = stored["data"]
    return Revision(
        name=stored["metadata"]["name"],
        target=label(stored, TARGET) or "",
        artifacts=tuple(Artifact(a["name"], read_stored(EngineArtifactSpec, a["spec"])) for a in data["artifacts"]),
        template=data["template"],
        plan=data["plan"],
        warnings=tuple(data.get("warnings", ())),
    )
