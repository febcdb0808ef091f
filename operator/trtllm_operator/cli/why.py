"""`why`: the way from a spec to key, artifact, Job, Pod and node on one screen, what blocks it, and what to change.

Pure: objects as the API server has them in, a report out. What the operator has decided is taken from the statuses it
wrote; what Jobs and Pods do now is read from them, so that the screen is true even where the operator is away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..api.common import PersistentVolumeClaimDirectory
from ..artifacts.failures import KINDS
from ..artifacts.inspection import texts_inspection_name
from ..objects import ARTIFACT, ATTEMPT, ENGINE, REVISION, TARGET, Obj, annotation, condition_true, label
from ..planning.terms import bytes_text
from ..pods import container_statuses, pods_of

OPERATOR_SILENT = "OperatorSilent"
_REMEDIES: Mapping[str, str] = {
    OPERATOR_SILENT: "the operator: is it running, does it hold its Lease, and does it watch this namespace?",
    "Refused": "the fields that the message names",
    "SpecInvalid": "the fields that the message names",
    "UnknownRelease": "spec.release",
    "NoMatchingNode": "spec.targets, or a node with such a GPU",
    "Unsupported": "spec.targets, or what the message names",
    "NameMismatch": "delete the EngineArtifact; whoever may create them can make such objects",
    "NameTaken": "the name of the LLMEngine or target, or the object that has the name",
    "ServerRestarts": "what kubectl logs --previous of the server says",
}
"""For reasons that are not those of an attempt."""


@dataclass(frozen=True)
class Seen:
    """What is there of one namespace."""

    now: datetime
    engines: Mapping[str, Obj] = field(default_factory=dict)
    artifacts: Mapping[str, Obj] = field(default_factory=dict)
    revisions: Mapping[str, Obj] = field(default_factory=dict)
    deployments: Mapping[str, Obj] = field(default_factory=dict)
    jobs: Mapping[str, Obj] = field(default_factory=dict)
    pods: Sequence[Obj] = ()


@dataclass(frozen=True)
class Step:
    """One line of the way."""

    what: str
    """Inspection, Model, Checkpoint, Engine or Servers."""
    name: str
    state: str
    where: str = ""
    """Job, Pod and node of what happens now."""


@dataclass(frozen=True)
class Block:
    """The one thing that keeps something from going on."""

    what: str
    """Whose reason it is."""
    reason: str
    message: str
    goes_on: bool
    """It goes on by itself; nobody has to act."""

    @property
    def remedy(self) -> str:
        known = KINDS.get(self.reason)
        return known.remedy if known else _REMEDIES.get(self.reason, "")


@dataclass(frozen=True)
class Way:
    """The way to one target, or to one artifact."""

    title: str
    facts: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    block: Block | None


@dataclass(frozen=True)
class Report:
    title: str
    ready: bool
    facts: tuple[tuple[str, str], ...]
    ways: tuple[Way, ...]
    block: Block | None


def why_engine(seen: Seen, name: str) -> Report:
    """Why the LLMEngine, which is there, is where it is."""
    engine = seen.engines[name]
    status, spec = engine.get("status") or {}, engine["spec"]
    ready = _condition(engine, "Ready")
    ways = tuple(_target(seen, name, target) for target in status.get("targets") or ())
    block = _silence(engine) or _engine_block(engine, ways)
    facts = [("model", f"{_model(spec)}{_at(status)}"), ("spec", _said(spec))]
    inspections = [Way(what, (), (step,), None) for what, step in _inspections(seen, name, engine)]
    ways = (*inspections, *ways)
    if ready:
        facts.append(("ready", f"{ready['status']}, {ready['reason']}, for {_age(seen, ready['lastTransitionTime'])}"))
    return Report(f"LLMEngine {name}", bool(condition_true(engine, "Ready")) and not block, tuple(facts), ways, block)


def why_artifact(seen: Seen, name: str) -> Report:
    """Why the EngineArtifact, which is there, is where it is, and who needs it."""
    artifact = seen.artifacts[name]
    spec = artifact["spec"]
    users = sorted({f"{label(r, ENGINE)}/{label(r, TARGET)}" for r in seen.revisions.values() if _needs(r, name)})
    facts = [("for", ", ".join(users) or "nothing: it goes once its grace time is over")]
    if gpu := spec["inputs"].get("gpu"):
        facts.append(("GPU", f"{gpu['product']} ({gpu['computeCapability']})"))
    if command := spec["inputs"].get("command"):
        facts.append(("command", " ".join(command)))
    if digest := (artifact.get("status") or {}).get("manifestDigest"):
        facts.append(("manifest", f"sha256:{digest}"))
    chain = tuple(_step(seen, seen.artifacts[n]) for n in _ancestors(seen, name) if n in seen.artifacts)
    way = Way("the way", tuple(_attempts(artifact)), chain, _artifact_block(seen, name))
    block = _silence(artifact) or way.block
    return Report(f"{spec['type']} {name}", bool(condition_true(artifact, "Ready")), tuple(facts), (way,), block)


def _target(seen: Seen, engine: str, target: Mapping[str, Any]) -> Way:
    revision = seen.revisions.get(target.get("wantedRevision") or "")
    names = [a["name"] for a in revision["data"]["artifacts"]] if revision else []
    steps = [_step(seen, seen.artifacts[n]) if n in seen.artifacts else Step("?", n, "not there") for n in names]
    steps += [_servers(seen, d) for d in _servers_of(seen, engine, str(target["name"]))]
    facts = [("GPU", target.get("gpu") or "not known yet")]
    if wanted := target.get("wantedRevision"):
        facts.append(("wanted", wanted))
    if served := target.get("servedRevision"):
        also = "" if served == target.get("wantedRevision") else ", an earlier one"
        count = f"{target.get('readyReplicas') or 0} of {target.get('replicas')} ready"
        facts.append(("serves", f"{served}{also}: {count}"))
    if plan := target.get("plan"):
        facts.append(("plan", _plan(plan)))
    reason, message = target.get("reason") or "", target.get("message") or ""
    if reason in ("", "Serving"):
        return Way(f"target {target['name']}", tuple(facts), tuple(steps), None)
    first = next((n for n in names if n not in seen.artifacts or not condition_true(seen.artifacts[n], "Ready")), None)
    live = _artifact_block(seen, first) if first else None
    block = live or Block(f"target {target['name']}", reason, message, _goes_on(reason))
    return Way(f"target {target['name']}", tuple(facts), tuple(steps), block)


def _engine_block(engine: Obj, ways: Iterable[Way]) -> Block | None:
    ready = _condition(engine, "Ready")
    if ready is None or ready["status"] == "True":
        return None
    stalled = condition_true(engine, "Stalled")
    said = [way.block for way in ways if way.block]
    blocks = sorted(said, key=lambda b: b.goes_on)
    named = next((b for b in blocks if b.reason == ready["reason"]), blocks[0] if blocks else None)
    if named and (_condition(engine, "Validated") or {}).get("status") != "False":
        return named
    return Block("the spec", ready["reason"], ready.get("message", ""), goes_on=not stalled)


def _silence(obj: Obj) -> Block | None:
    """The operator has not looked at what is there now."""
    observed, generation = (obj.get("status") or {}).get("observedGeneration", -1), obj["metadata"]["generation"]
    if observed >= generation:
        return None
    seen = "nothing of it yet" if observed < 0 else f"generation {observed} of {generation}"
    return Block("the operator", OPERATOR_SILENT, f"the operator has seen {seen}", goes_on=True)


def _artifact_block(seen: Seen, name: str) -> Block | None:
    """What keeps an artifact from being ready: its own trouble, or that of the first of those it is made from."""
    for ancestor in _ancestors(seen, name):
        artifact = seen.artifacts.get(ancestor)
        if artifact is None:
            return Block(ancestor, "ParentMissing", f"{ancestor} does not exist", goes_on=False)
        if condition_true(artifact, "Ready"):
            continue
        status = artifact.get("status") or {}
        said = (_condition(artifact, "Ready") or {}).get("message", "")
        reason = status.get("reason") or "JobCreated"
        stalled = bool(condition_true(artifact, "Stalled"))
        return Block(f"{artifact['spec']['type']} {ancestor}", reason, said, goes_on=not stalled)
    return None


def _goes_on(reason: str) -> bool:
    known = KINDS.get(reason)
    return not (known.stalls or (known.retry is None and not known.waits)) if known else reason not in _REMEDIES


def _step(seen: Seen, artifact: Obj) -> Step:
    status, name = artifact.get("status") or {}, artifact["metadata"]["name"]
    phase, reason = status.get("phase") or "new", status.get("reason") or ""
    if phase == "Ready":
        return Step(artifact["spec"]["type"], name, "Ready", _published(status))
    said = f"{phase}, {reason}" if reason else phase
    if progress := status.get("progress"):
        said += f" ({progress})"
    return Step(artifact["spec"]["type"], name, said, _running(seen, name, status))


def _published(status: Mapping[str, Any]) -> str:
    size = bytes_text(status["sizeBytes"]) if "sizeBytes" in status else ""
    took = f"{status['durationSeconds']} s" if "durationSeconds" in status else ""
    node = f"on {status['nodeName']}" if status.get("nodeName") else ""
    return ", ".join(part for part in (size, " ".join(p for p in (took, node) if p)) if part)


def _running(seen: Seen, name: str, status: Mapping[str, Any]) -> str:
    """Job, Pod and node of the attempt, from the objects themselves where they are there."""
    job = status.get("jobName")
    pods = [p for p in seen.pods if label(p, ARTIFACT) == name]
    newest = max(pods, key=lambda p: (int(label(p, ATTEMPT) or 0), _created(p)), default=None)
    if job is None and newest is None:
        return ""
    parts = [f"Job {job}" + ("" if job in seen.jobs else " (gone)")] if job else []
    return "; ".join((*parts, _pod(newest) if newest else "no Pod"))


def _pod(pod: Obj) -> str:
    status, node = pod.get("status") or {}, pod["spec"].get("nodeName")
    step = next((c["name"] for c in container_statuses(pod) if "running" in c.get("state", {})), "")
    state = f"{status.get('phase', 'Pending')}{f' in {step}' if step else ''}"
    return f"Pod {pod['metadata']['name']} {state}" + (f" on {node}" if node else ", no node yet")


def _servers_of(seen: Seen, engine: str, target: str) -> list[Obj]:
    own = (d for d in seen.deployments.values() if label(d, ENGINE) == engine and label(d, TARGET) == target)
    return sorted(own, key=_created)


def _servers(seen: Seen, deployment: Obj) -> Step:
    name, status = deployment["metadata"]["name"], deployment.get("status") or {}
    state = f"{status.get('readyReplicas', 0)} of {deployment['spec'].get('replicas', 1)} ready"
    pods = sorted((p for p in seen.pods if label(p, REVISION) == name), key=_created)
    return Step("Servers", name, state, "; ".join(map(_pod, pods[:3])) + ("; ..." if len(pods) > 3 else ""))


def _inspections(seen: Seen, name: str, engine: Obj) -> Iterator[tuple[str, Step]]:
    """What is read, and the Job that reads it, until the result is known: the model first, then calibration texts."""
    status, spec = engine.get("status") or {}, engine["spec"]
    if not status.get("model"):
        job = next((n for n in seen.jobs if n.startswith(f"{name}-inspect-")), None)
        if job:
            yield "the model", _inspection(seen, job)
        return
    known = [{key: texts[key] for key in ("claimName", "path")} for texts in status.get("calibration") or ()]
    for part in (spec, *spec["targets"]):
        dataset = ((part.get("precision") or {}).get("calibration") or {}).get("dataset")
        if dataset and (claim := dataset["persistentVolumeClaim"]) not in known:
            known.append(claim)
            job = texts_inspection_name(name, PersistentVolumeClaimDirectory.model_validate(claim))
            if job in seen.jobs:
                yield f"the texts in {claim['path']} on claim {claim['claimName']}", _inspection(seen, job)


def _inspection(seen: Seen, job: str) -> Step:
    newest = max(pods_of(seen.jobs[job], seen.pods), key=_created, default=None)
    ended = next((word for word in ("Complete", "Failed") if condition_true(seen.jobs[job], word)), None)
    state = {"Complete": "done", "Failed": "failed"}[ended] if ended else "running"
    return Step("Inspection", job, state, _pod(newest) if newest else "no Pod")


def _attempts(artifact: Obj) -> Iterator[tuple[str, str]]:
    for one in (artifact.get("status") or {}).get("attempts") or ():
        where = f" on {one['nodeName']}" if one.get("nodeName") else ""
        yield f"attempt {one['number']}", f"{one['reason']}{where}: {one.get('message', '')}"
    if said := annotation(artifact, "llmengine.dev/retry"):
        yield "retry", f"asked for: {said}"


def _ancestors(seen: Seen, name: str) -> tuple[str, ...]:
    """The artifact and what it is made from, the first to be made first."""
    out = [name]
    while (current := seen.artifacts.get(out[0])) and (parent := current["spec"]["inputs"].get("parent")):
        if parent in out:
            break
        out.insert(0, parent)
    return tuple(out)


def _needs(revision: Obj, artifact: str) -> bool:
    return any(a["name"] == artifact for a in revision["data"]["artifacts"])


def _condition(obj: Obj, type_: str) -> Obj | None:
    return next((c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] == type_), None)


def _created(obj: Obj) -> str:
    return str(obj["metadata"].get("creationTimestamp", ""))


def _model(spec: Mapping[str, Any]) -> str:
    source = spec["model"]
    if hub := source.get("huggingFace"):
        return f"{hub['repo']}@{hub.get('revision', 'main')}"
    if bucket := source.get("s3"):
        return f"{bucket.get('prefix', '')} in bucket {bucket['bucket']}"
    claim = source.get("persistentVolumeClaim") or {}
    return f"{claim.get('path', '?')} on claim {claim.get('claimName', '?')}"


def _at(status: Mapping[str, Any]) -> str:
    model = status.get("model")
    return f" = {model['revision'][:12]}, {model['architecture']}" if model else ", not inspected yet"


def _said(spec: Mapping[str, Any]) -> str:
    precision, ranks = spec.get("precision") or {}, spec.get("parallelism") or {}
    budgets = spec["budgets"]
    return (
        f"release {spec['release']}, {precision.get('quantization', 'none')}, "
        f"KV cache {precision.get('kvCache', 'auto')}, TP {ranks.get('tensor', 1)} x PP {ranks.get('pipeline', 1)}, "
        f"batch {budgets['maxBatchSize']}, {budgets['maxSeqLen']:,} tokens"
    )


def _plan(plan: Mapping[str, Any]) -> str:
    said = [f"weights {bytes_text(plan['weightsBytes'])} a GPU"] if "weightsBytes" in plan else []
    if "kvCacheTokens" in plan:
        said.append(f"KV cache {plan['kvCacheTokens']:,} tokens")
    if "concurrentRequests" in plan:
        said.append(f"{plan['concurrentRequests']:,} requests of full length at once")
    return ", ".join(said)


def _age(seen: Seen, since: str) -> str:
    seconds = int((seen.now - datetime.fromisoformat(since)).total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"
