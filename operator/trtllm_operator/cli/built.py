"""What a manifest has built: each artifact with its name, its place, what its Job asks for, and its command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..api.engineartifact import GpuClass
from ..artifacts.chain import calibration_texts, chain, policy
from ..objects import Artifact
from ..planning.commands import CommandUnknown
from ..planning.numbers import plan_numbers
from .judged import Judged, Planned

_UNKNOWN_REVISION = "0" * 40
_STEP_MEMORY_BYTES = 2**30


@dataclass(frozen=True)
class Built:
    """One artifact."""

    type: str
    name: str | None
    """None: something that the name follows from is not known; `unknown_names` says what."""
    targets: tuple[str, ...]
    where: str
    gpus: int
    host_memory_bytes: int
    """Of the container that does the work."""
    scratch_bytes: int
    """On the node's disk while it is made."""
    store_bytes: int
    """In the store, once it is made."""
    timeout_seconds: int
    """Longest run of one attempt."""
    command: tuple[str, ...]


def what_is_built(planned: Planned) -> tuple[Built, ...]:
    """The artifacts of the targets that work, each once however many targets need it; in the order of the way."""
    found: dict[tuple[str, ...], Built] = {}
    for one in planned.targets:
        if not one.plan.ok:
            continue
        for key, made in _chain(planned, one):
            earlier = found.get(key)
            found[key] = replace(earlier, targets=(*earlier.targets, one.name)) if earlier else made
    order = ("Model", "Checkpoint", "Engine")
    return tuple(sorted(found.values(), key=lambda b: order.index(b.type)))


def unknown_names(planned: Planned) -> str:
    """What would have to be known for the names; empty when they are."""
    missing = [] if planned.model.revision else ["the model's commit (spec.model.huggingFace.revision)"]
    if not _digest(planned):
        missing.append("the toolchain image's digest (--image)")
    if texts := sorted({name for one in planned.targets if one.plan.ok for name in _texts(planned, one)}):
        missing.append(f"the digest of the texts in {', '.join(texts)}, which the operator reads before it builds")
    return ", ".join([*missing[:-2], " and ".join(missing[-2:])])


def _texts(planned: Planned, one: Judged) -> Iterator[str]:
    """The claim's directory that the checkpoint is calibrated with, which cannot be read from here."""
    try:
        texts = calibration_texts(one.spec, planned.model.facts, planned.release)
    except CommandUnknown:
        return
    if texts:
        yield f"{texts.path} on claim {texts.claim_name}"


def _digest(planned: Planned) -> bool:
    return planned.image is not None and "@sha256:" in planned.image


def _chain(planned: Planned, one: Judged) -> list[tuple[tuple[str, ...], Built]]:
    gpu = one.concrete.gpu_class
    assert gpu is not None  # it was judged
    try:
        artifacts = chain(
            one.spec,
            revision=planned.model.revision or _UNKNOWN_REVISION,
            facts=planned.model.facts,
            release=planned.release,
            image=planned.image or "unknown",
            gpu=gpu,
        )
    except CommandUnknown:
        return []
    return [((a.name,), _built(planned, one, a, gpu)) for a in artifacts]


def _built(planned: Planned, one: Judged, artifact: Artifact, gpu: GpuClass) -> Built:
    numbers = plan_numbers(one.plan)
    asked = policy(one.spec, artifact.spec, numbers, gpu)
    type_ = artifact.spec.type
    known = bool(planned.model.revision) and (type_ == "Model" or (_digest(planned) and not any(_texts(planned, one))))
    return Built(
        type=type_,
        name=artifact.name if known else None,
        targets=(one.name,),
        where=_where(one, type_, asked.gpus, gpu),
        gpus=asked.gpus,
        host_memory_bytes=(asked.planned.host_memory_bytes if asked.planned else None) or _STEP_MEMORY_BYTES,
        scratch_bytes=(asked.planned.ephemeral_storage_bytes if asked.planned else None) or 0,
        store_bytes=numbers[f"{type_.lower()}Bytes"],
        timeout_seconds=asked.timeout_seconds,
        command=artifact.spec.inputs.command,
    )


def _where(one: Judged, type_: str, gpus: int, gpu: GpuClass) -> str:
    if not gpus:
        return "any node, those without GPUs first"
    if one.nodes:
        more = f" and {len(one.nodes) - 3} more" if len(one.nodes) > 3 else ""
        return f"{', '.join(one.nodes[:3])}{more}"
    bound = f" ({gpu.compute_capability})" if type_ == "Engine" else ""
    return f"a node with {gpu.product}{bound}"
