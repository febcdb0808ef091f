"""From the cache to the snapshots that the plans read. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from pydantic import ValidationError

from ..api.llmengine import LLMEngineSpec
from ..api.markers import problems
from ..artifacts.builders import MOST, Builder
from ..artifacts.chain import policy
from ..artifacts.damage import reports_of
from ..artifacts.jobs import policy_hash
from ..artifacts.plan import Snapshot, is_ready
from ..catalog import Catalog, UnknownRelease
from ..engines.runner_config_maps import SharedSnapshot
from ..engines.snapshot import EngineSnapshot
from ..kube.cache import Cache
from ..kube.ownership import content_digest, own
from ..kube.resource import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Obj,
    Resource,
    controller_of,
)
from ..objects import ARTIFACT, CHECK, ENGINE, FRONT, PARENT, REVISION, TARGET, Runner, label, runner_config_map
from ..operator_config import OperatorConfig
from ..planning.commands import trial_command
from ..planning.keys import Mismatch, name_mismatch
from ..serving.revision import is_readable, read_revision
from .watches import ENGINE_ARTIFACT, LLM_ENGINE, claim_of, revisions_of

FRONT_KINDS = (SERVICE_ACCOUNT, ROLE_BINDING, POD_DISRUPTION_BUDGET)
"""Kinds of an endpoint's objects beside its Deployment and Service."""


def _by_name(objects: list[Obj]) -> dict[str, Obj]:
    return {o["metadata"]["name"]: o for o in objects}


def observe_engine(
    engine: Obj,
    cache: Cache,
    *,
    catalog: Catalog,
    config: OperatorConfig,
    runner: Runner,
    now: datetime,
) -> EngineSnapshot:
    meta = engine["metadata"]
    namespace, labels = meta["namespace"], {ENGINE: meta["name"]}
    pods = [p for p in cache.find(POD, namespace=namespace, labels=labels) if not label(p, FRONT)]

    def found(resource: Resource) -> list[Obj]:
        return own(cache.find(resource, namespace=namespace, labels=labels), meta["uid"])

    artifacts = _by_name(cache.find(ENGINE_ARTIFACT, namespace=namespace))
    mismatched = {name: why for name, artifact in artifacts.items() if (why := mismatch(artifact))}
    revisions = found(CONTROLLER_REVISION)
    config_maps = cache.find(CONFIG_MAP, namespace=namespace)
    deployments, services = found(DEPLOYMENT), found(SERVICE)
    others = (o for kind in FRONT_KINDS for o in found(kind))
    return EngineSnapshot(
        engine=engine,
        spec=_spec_of(engine),
        inspections=_by_name(found(JOB)),
        inspection_pods=tuple(p for p in pods if REVISION not in p["metadata"]["labels"]),
        revisions=_by_name([r for r in revisions if is_readable(r)]),
        unreadable={label(r, TARGET) or "": r["metadata"]["name"] for r in revisions if not is_readable(r)},
        artifacts={n: a for n, a in artifacts.items() if n not in mismatched},
        mismatched=mismatched,
        deployments=_by_name([d for d in deployments if not label(d, FRONT)]),
        services=_by_name([s for s in services if not label(s, FRONT)]),
        budgets=_by_name([b for b in found(POD_DISRUPTION_BUDGET) if not label(b, FRONT)]),
        front=tuple(o for o in (*deployments, *services, *others) if label(o, FRONT)),
        pods=tuple(p for p in pods if REVISION in p["metadata"]["labels"]),
        ending=_ending(namespace, cache),
        nodes=tuple(cache.find(NODE)),
        claim=_store_claim(engine["spec"].get("storage"), namespace, cache),
        config_maps=frozenset(c["metadata"]["name"] for c in config_maps if _is_runner_or_other(c, runner)),
        catalog=catalog,
        config=config,
        runner=runner,
        now=now,
    )


def _is_runner_or_other(config_map: Obj, runner: Runner) -> bool:
    """Not one that has the runner's name and another content."""
    meta = config_map["metadata"]
    wanted = runner_config_map(runner, meta["namespace"])
    return meta["name"] != runner.config_map or content_digest(config_map) == content_digest(wanted)


def observe_revisions(engine: Obj, cache: Cache) -> list[Obj]:
    """The ControllerRevisions of an LLMEngine."""
    meta = engine["metadata"]
    found = cache.find(CONTROLLER_REVISION, namespace=meta["namespace"], labels={ENGINE: meta["name"]})
    return own(found, meta["uid"])


def _ending(namespace: str, cache: Cache) -> tuple[Obj, ...]:
    return tuple(p for p in cache.find(POD, namespace=namespace) if "deletionTimestamp" in p["metadata"])


def _spec_of(engine: Obj) -> LLMEngineSpec | str:
    try:
        return LLMEngineSpec.model_validate(engine["spec"])
    except ValidationError as error:
        return problems(error)


def observe_artifact(
    artifact: Obj, cache: Cache, *, catalog: Catalog, config: OperatorConfig, runner: Runner, now: datetime
) -> Snapshot:
    namespace, name = artifact["metadata"]["namespace"], artifact["metadata"]["name"]
    parent, builders = _made_from(artifact, cache), _builders(artifact, cache)
    mine = {ARTIFACT: name}
    jobs = own(cache.find(JOB, namespace=namespace, labels=mine), artifact["metadata"]["uid"])
    pods = cache.find(POD, namespace=namespace, labels=mine)
    return Snapshot(
        artifact=artifact,
        parent=parent,
        model=_made_from(parent, cache) if parent else None,
        trial=_trial(artifact, builders, catalog),
        builders=builders,
        mismatch=mismatch(artifact),
        jobs=tuple(j for j in jobs if not label(j, CHECK)),
        checks=tuple(j for j in jobs if label(j, CHECK)),
        pods=tuple(pods),
        reports=reports_of(name, [*pods, *_users(artifact, cache)]),
        nodes=tuple(cache.find(NODE)),
        referenced=any(_counts(revision, cache) for revision in revisions_of(artifact, cache)),
        ending=_ending(namespace, cache),
        claim_gone=_claim_gone(artifact, cache),
        config=config,
        runner=runner,
        now=now,
    )


def _counts(revision: Obj, cache: Cache) -> bool:
    """Whether a revision needs its artifacts: not one that outlives its LLMEngine for a moment, made by a pass that had
    not seen the end of it. An orphan's servers run on."""
    if controller_of(revision) is None:
        return True
    engine = cache.get(LLM_ENGINE, revision["metadata"]["namespace"], label(revision, ENGINE) or "")
    return engine is not None and bool(own([revision], engine["metadata"]["uid"]))


def _builders(artifact: Obj, cache: Cache) -> tuple[Builder, ...]:
    """Of one that is made the first alone, as nothing but its removal depends on it."""
    meta, found = artifact["metadata"], dict[tuple[str, str], Builder]()
    most = 1 if is_ready(artifact) else MOST
    for stored in sorted(revisions_of(artifact, cache), key=lambda r: (label(r, ENGINE) or "", r["metadata"]["name"])):
        engine = cache.get(LLM_ENGINE, meta["namespace"], label(stored, ENGINE) or "")
        if engine is None or "deletionTimestamp" in engine["metadata"] or not is_readable(stored):
            continue
        if not own([stored], engine["metadata"]["uid"]):
            continue
        spec, revision = _spec_of(engine), read_revision(stored)
        asked = next((a.spec for a in revision.artifacts if a.name == meta["name"]), None)
        gpu = revision.engine.spec.inputs.gpu
        if isinstance(spec, str) or asked is None or gpu is None:
            continue
        builder = Builder(engine["metadata"]["name"], policy(spec, asked, revision.plan, gpu), asked.expected)
        found.setdefault((builder.engine, policy_hash(artifact, builder.policy)), builder)
        if len(found) == most:
            break
    return tuple(found.values())


def mismatch(artifact: Obj) -> Mismatch | None:
    return name_mismatch(artifact["metadata"]["name"], artifact["spec"])


def _made_from(artifact: Obj, cache: Cache) -> Obj | None:
    """The artifact that another one is made from, where it is one."""
    parent = (artifact["spec"].get("inputs") or {}).get("parent")
    found = cache.get(ENGINE_ARTIFACT, artifact["metadata"]["namespace"], parent) if parent else None
    return found if found and mismatch(found) is None else None


def _trial(artifact: Obj, builders: Iterable[Builder], catalog: Catalog) -> tuple[str, ...]:
    """As the revisions of those who need it say which release it is of, whatever is in the shared object."""
    expected = next((builder.expected for builder in builders if builder.expected), None)
    if artifact["spec"].get("type") != "Engine" or expected is None:
        return ()
    try:
        return trial_command(expected, catalog.release(expected.release))
    except UnknownRelease:
        return ()


def _claim_gone(artifact: Obj, cache: Cache) -> bool:
    storage = artifact["spec"]["inputs"].get("storage")
    if claim_of(storage) is None:
        return False
    claim = _store_claim(storage, artifact["metadata"]["namespace"], cache)
    return claim is None or "deletionTimestamp" in claim["metadata"]


def _store_claim(storage: Obj | None, namespace: str, cache: Cache) -> Obj | None:
    name = claim_of(storage)
    return cache.get(PERSISTENT_VOLUME_CLAIM, namespace, name) if name else None


def _users(artifact: Obj, cache: Cache) -> Iterator[Obj]:
    """Pods that read the artifact: of what is made from it, directly or not, and of servers."""
    namespace = artifact["metadata"]["namespace"]
    for revision in revisions_of(artifact, cache):
        wanted = revision["metadata"]["name"]
        pods = cache.find(POD, namespace=namespace, labels={ENGINE: label(revision, ENGINE) or ""})
        yield from (pod for pod in pods if label(pod, REVISION) == wanted)
    parents = [artifact["metadata"]["name"]]
    while parents:
        children = cache.find(ENGINE_ARTIFACT, namespace=namespace, labels={PARENT: parents.pop()})
        for child in children:
            parents.append(child["metadata"]["name"])
            yield from cache.find(POD, namespace=namespace, labels={ARTIFACT: child["metadata"]["name"]})


def observe_shared(namespace: str, cache: Cache) -> SharedSnapshot:
    return SharedSnapshot(
        config_maps=tuple(cache.find(CONFIG_MAP, namespace=namespace)),
        artifacts=tuple(cache.find(ENGINE_ARTIFACT, namespace=namespace)),
        revisions=tuple(cache.find(CONTROLLER_REVISION, namespace=namespace)),
    )
