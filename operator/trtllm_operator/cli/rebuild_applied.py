"""Which artifacts an LLMEngine of a file means: what the operator would want of it, from the same code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..api.engineartifact import GpuClass
from ..api.llmengine import LLMEngineSpec, ResolvedModel
from ..artifacts.chain import calibration_texts, chain
from ..artifacts.inspection import source_hash
from ..catalog import Release
from ..planning.commands import CommandUnknown
from ..planning.expansion import KnownClass
from ..planning.model import ModelFacts, ModelUnreadable
from ..serving.revision import Revision, bound_name
from .errors import REFUSED, CliError
from .files import find_release, read_catalog, read_engine
from .judged import Judged, judge_targets
from .models import model_of
from .rebuild_cluster import LiveEngine, parts_of
from .rebuild_sides import Part, Side

_UNKNOWN_REVISION = "0" * 40


@dataclass(frozen=True)
class _Known:
    """What is known beside the manifest."""

    model: ResolvedModel
    facts: ModelFacts
    release: Release
    image: str
    digests: Mapping[tuple[str, str], str]
    """Of calibration texts, by claim and path."""


def applied(path: str, live: LiveEngine | None, catalog_files: Iterable[str]) -> Side:
    """What the manifest wants: where `live` is given, as an apply to that would have it, with the model, the texts and
    the image as they are known there. Raises CliError, also where the planner refuses it."""
    _, spec = read_engine(path)
    catalog = read_catalog(catalog_files)
    release = find_release(catalog, spec.release)
    known = _known(spec, release, live)
    classes = {name: [KnownClass(gpu, proven=True)] for name, gpu in _gpus(live).items()}
    named = {one[0].gpu.product for one in classes.values()}
    nodes = None
    if live:
        nodes = [] if all(target.gpu.product in named for target in spec.targets) else live.namespace.nodes()
    judged = judge_targets(spec, known.facts, release, catalog, nodes, known=classes)
    works = {one.concrete.spec_target for one in judged if one.plan.ok}
    if refused := [one.name for one in judged if one.concrete.spec_target not in works]:
        raise CliError(f"{path} is refused for {', '.join(refused)}: llmengine plan -f {path} says why", REFUSED)
    parts = {one.name: _parts(spec, one, known, live) for one in judged if one.plan.ok}
    return Side(path, parts, live.side.ready if live else frozenset())


def _known(spec: LLMEngineSpec, release: Release, live: LiveEngine | None) -> _Known:
    image, digests = release.image or "unknown", {}
    if live:
        digests = {(t.claim_name, t.path): t.digest for t in live.status.calibration or ()}
        wanted = live.side.parts
        assert isinstance(wanted, Mapping)
        images = (part.inputs.image for parts in wanted.values() for part in parts if part.inputs.image)
        if spec.release == live.spec.release:
            image = next(images)
    model = live.status.model if live else None
    if model is None or model.source_hash != source_hash(spec):
        found = model_of(spec.model, None)
        revision = found.revision or _UNKNOWN_REVISION
        model = ResolvedModel(source_hash=source_hash(spec), revision=revision, architecture=found.facts.architecture)
        return _Known(model, found.facts, release, image, digests)
    try:
        return _Known(model, ModelFacts.from_facts(model.facts), release, image, digests)
    except ModelUnreadable as error:
        raise CliError(f"status.model of the LLMEngine is not of this version: {error}") from None


def _gpus(live: LiveEngine | None) -> dict[str, GpuClass]:
    wanted = live.side.parts if live else {}
    assert isinstance(wanted, Mapping)
    return {target: gpu for target, parts in wanted.items() if (gpu := parts[-1].inputs.gpu)}


def _parts(spec: LLMEngineSpec, one: Judged, known: _Known, live: LiveEngine | None) -> tuple[Part, ...]:
    """What the target has already where the spec asks for nothing else: no operator and no catalog changes that."""
    gpu = one.concrete.gpu_class
    assert gpu is not None  # it was judged
    own = {r.name: r for r in live.revisions if r.target == one.name} if live else {}
    there = ((name, _texts_digest(revision)) for name, revision in own.items())
    if live and (name := bound_name(there, live.name, spec, one.concrete.target, known.model, gpu)):
        return parts_of(own[name])
    try:
        texts = calibration_texts(one.spec, known.facts, known.release)
        digest = known.digests.get((texts.claim_name, texts.path)) if texts else None
        artifacts = chain(
            one.spec,
            revision=known.model.revision,
            facts=known.facts,
            release=known.release,
            image=known.image,
            gpu=gpu,
            texts_digest=digest,
        )
    except CommandUnknown as error:
        raise CliError(str(error)) from None
    pinned = known.model.revision != _UNKNOWN_REVISION
    built = pinned and "@sha256:" in known.image and (texts is None or digest is not None)
    return tuple(Part(a.spec.type, a.spec.inputs, known=pinned if a.spec.type == "Model" else built) for a in artifacts)


def _texts_digest(revision: Revision) -> str | None:
    return next((c.digest for a in revision.artifacts if (c := a.spec.inputs.calibration)), None)
