"""What becomes of one target: what serves is healed and scaled first, whatever comes next; then its successor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..actions import Actions, combined
from ..api.engineartifact import EngineArtifactStatus
from ..api.llmengine import LLMEngineSpec, Target
from ..api.stored import read_status
from ..artifacts.builders import considered
from ..artifacts.chain import policy
from ..artifacts.failures import retry_hint
from ..artifacts.jobs import policy_hash
from ..artifacts.plan import LOOK_AGAIN_SECONDS, NAME_MISMATCH, is_ready
from ..objects import REVISION, TARGET, Artifact, Obj, annotation, label, runner_config_map, timestamp
from ..planning.expansion import ConcreteTarget
from ..pods import is_over, waits_for_volumes
from ..serving import restart, rollout
from ..serving.digests import pinned
from ..serving.disruption import SMALLEST, disruption_budget
from ..serving.given_up import GIVEN_UP, GivenUp, give_up, read_given_up, seconds_until_late
from ..serving.health import Problem
from ..serving.revision import Revision
from ..serving.triton import SWITCHED_AT, deployment, service
from .server_problem import WAITING_FOR_GPU, gpu_holders, server_problem, share_gpus, waits_for_gpu_since
from .snapshot import EngineSnapshot
from .status import TargetOutcome
from .wanted import Wait


@dataclass(frozen=True)
class Intent:
    """What is wanted of one target, beside what exists of it."""

    spec: LLMEngineSpec
    concrete: ConcreteTarget
    entry: Revision | Wait
    last_served: str | None = None
    """The revision that served when the status was written."""
    replaces: str | None = None
    """The revision that serves under the name that the target had before."""

    @property
    def target(self) -> Target:
        return self.concrete.target

    @property
    def recreates(self) -> bool:
        return self.spec.rollout.strategy == "Recreate"


def observe_target(seen: EngineSnapshot, target: str, last_served: str | None) -> rollout.Observed:
    """What exists of a target. A revision that is remembered and not stored any more is none."""
    return rollout.Observed(
        service=seen.service_of(target),
        deployments={n: d for n, d in seen.deployments.items() if label(d, TARGET) == target},
        last_served=last_served if last_served in seen.revisions else None,
    )


def plan_target(seen: EngineSnapshot, intent: Intent) -> tuple[TargetOutcome, Actions]:
    """The next step of one target, and what to say of it."""
    target = intent.target
    skipped = isinstance(intent.entry, Wait) and intent.entry.skipped
    # A class that cannot run the model, and whose Service a person has deleted to let it go, is not healed.
    observed = rollout.Observed(None, {}) if skipped else observe_target(seen, target.name, intent.last_served)
    revision = _pinned(seen, intent.entry) if isinstance(intent.entry, Revision) else None
    missing = first_missing(seen, intent.spec, revision) if revision else None
    if isinstance(intent.entry, Wait):
        missing = intent.entry
    new = revision if revision and not missing and observed.serving != revision.name else None
    given_up = _given_up(seen, new, observed) if new else None
    holder = observed.serving or intent.replaces
    problem = server_problem(seen, revision, intent.spec.rollout, holder) if revision and not missing else None
    if given_up:
        hint = retry_hint("llmengine", seen.engine["metadata"]["name"])
        problem = Problem(given_up.reason, f"{given_up.message}{hint}", stalled=True)
    kept = revision if revision and observed.serving == revision.name else _stored(seen, observed.serving)
    share = _share(seen, intent, observed, revision, missing, problem)
    serving = observed.serving
    switches = bool(
        new and not given_up and rollout.takes_over(observed, new.name, target.replicas, in_place=intent.recreates)
    )
    if new and switches:
        serving = new.name
    ready = bool(revision) and serving == (revision.name if revision else None) and not missing
    restarting, restarts = _restarting(seen, observed.live(observed.serving), observed.serving)
    actions = combined(
        (
            Actions(create=_runners(seen, (kept, new))),
            _kept(seen, target, kept, observed, share, restarts),
            _new(seen, target, new, observed, given_up),
            _routes(seen, target, observed, serving),
            _retired(seen, observed, serving, revision, in_place=intent.recreates, replicas=target.replicas),
            Actions(again_seconds=share.again_seconds),
            Actions(again_seconds=restarts if restarts else None),
            Actions(again_seconds=LOOK_AGAIN_SECONDS if _looks_again(seen, target.name, given_up) else None),
        )
    )
    if revision and missing and missing.on_own_gpus:
        holders = gpu_holders(seen, revision, intent.spec.rollout, holder, missing.reason)
        missing = replace(missing, message=missing.message + holders)
    served = observed.live(serving)
    stored = seen.revision(serving)
    outcome = TargetOutcome(
        concrete=intent.concrete,
        revision=revision,
        missing=missing,
        served=serving,
        serves=served is not None and rollout.serves(served),
        complete=served is not None and rollout.available(served, target.replicas),
        proven=ready,
        deployment=observed.live(revision.name) if revision else None,
        served_deployment=served,
        served_artifact=stored.engine.name if stored else None,
        server_problem=problem,
        restarting=restarting,
    )
    return outcome, actions


def _pinned(seen: EngineSnapshot, revision: Revision) -> Revision:
    return pinned(revision, seen.deployments.get(revision.name), seen.artifacts)


def _stored(seen: EngineSnapshot, name: str | None) -> Revision | None:
    stored = seen.revision(name)
    return _pinned(seen, stored) if stored else None


def _given_up(seen: EngineSnapshot, new: Revision, observed: rollout.Observed) -> GivenUp | None:
    """Whether the servers of a new revision are stopped: since earlier, or from now on."""
    earlier = read_given_up(observed.live(new.name))
    if earlier and earlier.holds(seen.engine, seen.server_secrets):
        return earlier
    if earlier:
        return None  # something has changed: the servers that it speaks of are tried again
    pods = [p for p in seen.pods if label(p, REVISION) == new.name]
    return give_up(seen.engine, new.template, pods, seen.server_secrets, seen.now)


def _kept(
    seen: EngineSnapshot,
    target: Target,
    kept: Revision | None,
    observed: rollout.Observed,
    share: rollout.Share,
    left_seconds: float | None,
) -> Actions:
    """The Deployment of what serves. `left_seconds`: `restart.surge_seconds`."""
    if kept is None:
        return Actions()
    live = observed.live(kept.name)
    restarts = restart.restart_annotations(seen.engine, target.name, live)
    wanted = deployment(
        seen.engine,
        kept,
        share.replicas,
        annotations={rollout.ROOM: share.marker} if share.marker else None,
        restarts=restarts,
        surge=restart.surges(live, restarts, left_seconds),
    )
    return Actions(apply=(wanted,))


def _new(
    seen: EngineSnapshot, target: Target, new: Revision | None, observed: rollout.Observed, given_up: GivenUp | None
) -> Actions:
    """The Deployment of what is to serve next."""
    if new is None:
        return Actions()
    wanted = deployment(
        seen.engine,
        new,
        0 if given_up else target.replicas,
        annotations={GIVEN_UP: given_up.model_dump_json(exclude_none=True)} if given_up else None,
        restarts=restart.restart_annotations(seen.engine, target.name, observed.live(new.name)),
    )
    pods = [p for p in seen.pods if label(p, REVISION) == new.name]
    return Actions(apply=(wanted,), again_seconds=seconds_until_late(new.template, pods, seen.now))


def _routes(seen: EngineSnapshot, target: Target, observed: rollout.Observed, serving: str | None) -> Actions:
    """The Service, which selects what serves, and the budget of its servers."""
    name = seen.service_name(target.name)
    budget = seen.budgets.get(name)
    if serving is None or target.replicas < SMALLEST:
        doomed: tuple[Obj, ...] = (budget,) if budget else ()
    else:
        doomed = ()
    if serving is None:
        return Actions(delete=doomed)
    moved = observed.selected != serving
    since = annotation(observed.service, SWITCHED_AT) if observed.service and not moved else None
    routes = [service(seen.engine, name, target.name, serving, since or timestamp(seen.now))]
    if target.replicas >= SMALLEST:
        routes.append(disruption_budget(seen.engine, name, target.name, serving))
    again = rollout.DRAIN_AFTER_SWITCH_SECONDS if moved else None
    return Actions(apply=tuple(routes), delete=doomed, again_seconds=again)


def _retired(
    seen: EngineSnapshot,
    observed: rollout.Observed,
    serving: str | None,
    revision: Revision | None,
    *,
    in_place: bool,
    replicas: int,
) -> Actions:
    """Servers that nothing asks for any more, once the routes to them have gone."""
    if revision is None or observed.selected != serving:
        return Actions()
    if serving == revision.name and not rollout.takes_over(observed, revision.name, replicas, in_place=in_place):
        return Actions()
    doomed = rollout.retired(observed, (serving, revision.name))
    left = rollout.drain_seconds(observed, seen.now)
    return Actions(again_seconds=left) if doomed and left else Actions(delete=doomed)


def _share(
    seen: EngineSnapshot,
    intent: Intent,
    observed: rollout.Observed,
    revision: Revision | None,
    missing: Wait | None,
    problem: Problem | None,
) -> rollout.Share:
    """The servers that what serves keeps: all that the spec asks for, but for GPUs that a new revision waits for."""
    replicas, live, old = intent.target.replicas, observed.live(observed.serving), seen.revision(observed.serving)
    everything = rollout.Share(replicas)
    if live is None or old is None or not intent.recreates or revision is None or observed.serving == revision.name:
        return everything
    if (missing and missing.stalled) or (problem and problem.stalled) or live["spec"].get("replicas", 1) > replicas:
        return everything
    builds = missing is not None and missing.on_own_gpus and missing.reason == WAITING_FOR_GPU
    starts = problem is not None and problem.reason == WAITING_FOR_GPU
    marker = annotation(live, rollout.ROOM)
    if not (builds or starts) or not share_gpus(old, revision):
        return rollout.Share(int(live["spec"].get("replicas", 1)), marker) if marker else everything
    pods = [p for p in seen.pods if label(p, TARGET) == intent.target.name and not is_over(p)]
    # The last of the old servers goes for the first of the new ones, not for those after it.
    begun = any(label(p, REVISION) == revision.name and "nodeName" in p["spec"] for p in pods)
    return rollout.make_room(old.name, live, pods, seen.now, keep=1 if starts and begun else 0)


def _restarting(seen: EngineSnapshot, live: Obj | None, serving: str | None) -> tuple[str, float | None]:
    """What to say of servers that restart, and `restart.surge_seconds`."""
    left = restart.surge_seconds(live, waits_for_gpu_since(seen, serving) if serving else (), seen.now)
    if live is None or not restart.is_restarting(live):
        return "", None
    return restart.progress(live, left), left


def _looks_again(seen: EngineSnapshot, target: str, given_up: GivenUp | None) -> bool:
    """Whether Events or Secrets, which nobody watches, may bring something new."""
    watched = given_up is not None and seen.server_secrets.named is not None
    return watched or any(waits_for_volumes(p) for p in seen.pods if label(p, TARGET) == target)


def _runners(seen: EngineSnapshot, revisions: tuple[Revision | None, ...]) -> tuple[Obj, ...]:
    """The runner that the revisions' servers mount, where it is this operator's and not there yet."""
    mine = seen.runner.config_map
    if mine in seen.config_maps or not any(r.runner_config_map == mine for r in revisions if r):
        return ()
    return (runner_config_map(seen.runner, seen.engine["metadata"]["namespace"]),)


def first_missing(seen: EngineSnapshot, spec: LLMEngineSpec, revision: Revision) -> Wait | None:
    """The first artifact of the chain that is not ready, as what the target waits for.

    Of an artifact whose plan has not seen the policy of this LLMEngine as it is now, the status speaks of what is past:
    a spec that was just put right must not look stalled.
    """
    for artifact in revision.artifacts:
        live = seen.artifacts.get(artifact.name)
        if wrong := seen.mismatched.get(artifact.name):
            told = f"EngineArtifact {artifact.name} is in the way: {wrong.why}. {wrong.advice}"
            return Wait(NAME_MISMATCH, told, stalled=True)
        if live is None:
            return Wait("CreatingArtifacts", f"{artifact.name} is about to be made")
        if "deletionTimestamp" in live["metadata"]:
            return Wait("ArtifactBeingRemoved", f"{artifact.name} is being removed; it is made again after that")
        if is_ready(live):
            continue
        status = read_status(EngineArtifactStatus, live.get("status"))
        ready = next((c for c in status.conditions if c.type == "Ready"), None)
        stalled = any(c.type == "Stalled" and c.status == "True" for c in status.conditions)
        if ready is None:
            return Wait("CreatingArtifacts", f"{artifact.name} has just been made")
        if stalled and _policy_hash(spec, artifact, revision, live) not in considered(
            status.given_up, status.attempt_policy
        ):
            return Wait("PolicyChanged", f"{artifact.name} is looked at again: how it is built has changed")
        if ready.reason == "ParentNotReady":
            continue
        message = f"{artifact.spec.type} {artifact.name}: {ready.message}"
        return Wait(ready.reason, message, stalled=stalled, on_own_gpus=_on_gpus_of(revision, artifact))
    if all(is_ready(seen.artifacts[a.name]) for a in revision.artifacts):
        return None
    return Wait("CreatingArtifacts", f"{revision.engine.name} waits for what it is made from")


def _policy_hash(spec: LLMEngineSpec, artifact: Artifact, revision: Revision, live: Obj) -> str:
    """Of how this LLMEngine would have an artifact built."""
    gpu = revision.engine.spec.inputs.gpu
    assert gpu is not None  # the schema demands it
    return policy_hash(live, policy(spec, artifact.spec, revision.plan, gpu))


def _on_gpus_of(revision: Revision, artifact: Artifact) -> bool:
    """Whether an artifact is made on the class of GPUs that the revision serves on."""
    own, made_for = revision.engine.spec.inputs.gpu, artifact.spec.inputs.gpu
    if made_for is None:
        return artifact.spec.policy.gpus > 0  # it is calibrated, on GPUs like those
    return own is not None and made_for.product == own.product
