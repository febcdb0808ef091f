"""What the spec asks for, decided before anything is built: the model, the verdict, the revision of each target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..actions import NOTHING, Actions
from ..api.common import PersistentVolumeClaimDirectory
from ..api.llmengine import InspectedTexts, LLMEngineSpec, LLMEngineStatus, ResolvedModel
from ..artifacts import attempt
from ..artifacts.chain import calibration_texts, chain
from ..artifacts.failures import Failure, pause_seconds, retry_hint, secrets_hint
from ..artifacts.inspection import RETRY_SECONDS, inspection_job, inspection_policy, source_hash, texts_inspection_job
from ..artifacts.plan import LOOK_AGAIN_SECONDS
from ..artifacts.secrets import UNKNOWN, Secrets, is_watched, missing_message, named_secrets, outdates
from ..catalog import Release, UnknownRelease
from ..objects import NO_MATCHING_NODE, RETRY, TARGET, Obj, annotation, label
from ..planning.claims import ClaimVerdict, judge_claim
from ..planning.expansion import ConcreteTarget
from ..planning.gpu_nodes import read_node
from ..planning.model import ModelFacts, ModelUnreadable, read_report
from ..planning.nearest import nearest, suggestions_text
from ..planning.numbers import plan_numbers
from ..planning.overrides import effective_spec
from ..planning.text_processing import end_token_ids
from ..planning.verdict import TargetPlan, judge
from ..pods import pods_of
from ..serving.repository import template_values
from ..serving.revision import Revision, bound_name, read_revision, revision_name, texts_digest
from ..serving.triton import Server, pod_labels, pod_template
from ..storage import Access
from .calibration import Texts, is_overtaken
from .snapshot import EngineSnapshot

_LOOK_AGAIN = Actions(again_seconds=LOOK_AGAIN_SECONDS)
LOST_REPORT = "the inspection's report was lost with its Pod; it runs again"
MAX_WARNING_LENGTH = 2048
"""What the API keeps of one."""


@dataclass(frozen=True)
class Wait:
    """The spec's wants are not known yet, or cannot be met."""

    reason: str
    message: str
    stalled: bool = False
    refused: bool = False
    """The spec itself is wrong: Validated is False."""
    skipped: bool = False
    """A class of GPUs that cannot run the model, among others of its target that can: nobody waits for it."""
    on_own_gpus: bool = False
    """It waits for a step that runs on GPUs of the target's own class."""
    actions: Actions = NOTHING
    """What brings on what it waits for."""


@dataclass(frozen=True)
class Wanted:
    """The revision of each target by the target's name; a target whose GPU nobody knows yet has a Wait instead."""

    model: ResolvedModel
    targets: Mapping[str, Revision | Wait] = field(default_factory=dict)

    @property
    def revisions(self) -> tuple[Revision, ...]:
        return tuple(r for r in self.targets.values() if isinstance(r, Revision))


@dataclass(frozen=True)
class _Basis:
    """What all targets are built from."""

    model: ResolvedModel
    facts: ModelFacts
    release: Release
    image: str
    """The toolchain image."""


@dataclass(frozen=True)
class _Judged:
    """A target that the planner has found to work."""

    concrete: ConcreteTarget
    spec: LLMEngineSpec
    """The target's own (`effective_spec`)."""
    plan: TargetPlan
    texts: InspectedTexts | None
    """Those that it is calibrated with."""
    remark: str
    """What the claim's verdict warns of, if anything."""


def resolve_model(seen: EngineSnapshot, spec: LLMEngineSpec, status: LLMEngineStatus) -> ResolvedModel | Wait:
    """The model as inspected: remembered in status, or reported by the inspection Job that has just ended."""
    known = status.model
    if known and known.source_hash == source_hash(spec):
        return known
    secrets, named = seen.secrets, named_secrets(inspection_policy(spec))
    made = inspection_job(seen.engine, spec, seen.config, secrets)
    done = inspect(seen, made, "InspectingModel", "the model's config and tensor headers", secrets, named)
    return done if isinstance(done, Wait) else _resolved(seen.inspections[made["metadata"]["name"]], spec, done.result)


def inspect(
    seen: EngineSnapshot,
    wanted: Obj,
    reading: str,
    what: str,
    secrets: Secrets = UNKNOWN,
    named: tuple[str, ...] = (),
) -> attempt.Succeeded | Wait:
    """What came of an inspection Job, which is made where it is not there. `reading` is the reason while it runs,
    `named` are the Secrets that it mounts."""
    job = seen.inspections.get(wanted["metadata"]["name"])
    if job is None and secrets.missing:
        why = missing_message(secrets.missing, seen.engine["metadata"]["namespace"])
        return Wait("SecretMissing", why, stalled=True, actions=_LOOK_AGAIN)
    if job is None:
        return Wait(reading, f"{what} are about to be read", actions=Actions(create=(wanted,)))
    if "deletionTimestamp" in job["metadata"]:
        return Wait(reading, "an earlier inspection is being removed")
    pods = pods_of(job, seen.inspection_pods)
    newest = attempt.current_pod(pods)
    said = seen.volume_events.get(newest["metadata"]["uid"]) if newest else None
    match attempt.read(job, pods, attempt.Surroundings(volume_events=said)):
        case attempt.Waiting(reason, message, stuck):
            outdated = (job,) if outdates(secrets, job, reason) else ()
            then = Actions(delete=outdated, again_seconds=LOOK_AGAIN_SECONDS)
            return Wait(reason, f"inspection: {message}", stalled=stuck, actions=then)
        case attempt.Running(_, node):
            return Wait(reading, f"reading {what} on node {node}")
        case attempt.Failed(failure, _, time):
            if annotation(job, RETRY) != annotation(seen.engine, RETRY) or outdates(secrets, job, failure.reason):
                return Wait(reading, f"{what} are about to be read again", actions=Actions(delete=(job,)))
            if is_watched(failure.reason, secrets):
                hint = secrets_hint("llmengine", seen.engine["metadata"]["name"], named, outside=failure.kind.outside)
                return Wait(failure.reason, failure.message + hint, stalled=True, actions=_LOOK_AGAIN)
            return _inspection_failed(seen, job, failure, time)
        case attempt.Succeeded() as done:
            return done


def _inspection_failed(seen: EngineSnapshot, job: Obj, failure: Failure, time: str) -> Wait:
    if not failure.retryable:
        hint = retry_hint("llmengine", seen.engine["metadata"]["name"]) if failure.kind.outside else ""
        refused = failure.reason in ("ModelUnreadable", "CalibrationUnreadable")
        return Wait(failure.reason, failure.message + hint, stalled=True, refused=refused)
    pause = max(RETRY_SECONDS, pause_seconds(failure, 1))
    left = (datetime.fromisoformat(time) + timedelta(seconds=pause) - seen.now).total_seconds()
    if left <= 0:
        return Wait(failure.reason, failure.message, actions=Actions(delete=(job,)))
    return Wait(failure.reason, f"{failure.message} (tried again every {pause} s)", actions=Actions(again_seconds=left))


def _resolved(job: Obj, spec: LLMEngineSpec, report: Mapping[str, object]) -> ResolvedModel | Wait:
    if "revision" not in report:
        return Wait("InspectingModel", LOST_REPORT, actions=Actions(delete=(job,)))
    try:
        facts = read_report(report)
    except ModelUnreadable as error:
        return Wait("ModelUnreadable", str(error), stalled=True, refused=True)
    return ResolvedModel(
        source_hash=source_hash(spec),
        revision=str(report["revision"]),
        architecture=facts.architecture,
        largest_file_bytes=largest if isinstance(largest := report.get("largestFileBytes"), int) else None,
        end_token_ids=end_token_ids(facts) or None,
        facts=facts.to_facts(),
    )


def decide(
    seen: EngineSnapshot, spec: LLMEngineSpec, model: ResolvedModel, texts: Texts, concrete: Sequence[ConcreteTarget]
) -> Wanted | Wait:
    """A revision for each target, or why there is none. A target that has its revision already keeps it untouched."""
    bound = {c.name: revision for c in concrete if (revision := _bound(seen, spec, c, model, texts))}
    targets: dict[str, Revision | Wait] = dict(bound)
    targets |= {c.name: _of_later_version(seen, c) for c in concrete if c.name in seen.unreadable}
    unbound = [c for c in concrete if c.name not in targets]
    if not unbound:
        return Wanted(model, targets)
    release = _release(seen, spec)
    if isinstance(release, Wait):
        return release
    try:
        facts = ModelFacts.from_facts(model.facts)
    except ModelUnreadable as error:
        again = f"name the revision in spec.model otherwise (it is {model.revision}), and it is inspected again"
        return Wait("ModelUnreadable", f"{error}: {again}", stalled=True, refused=True)
    basis = _Basis(model, facts, release, seen.config.toolchain_images.get(spec.release) or release.image or "unknown")
    problems: list[str] = []
    if release.builds_engines and "@sha256:" not in basis.image:
        problems.append(
            f"the toolchain image of release {spec.release} is {basis.image}, which has no digest, and an engine is "
            f"keyed by its image's: set toolchainImages.{spec.release} of the operator to an image with @sha256:..."
        )
    plans = {c.name: judge(effective_spec(spec, c.target), facts, release, c.gpu) for c in unbound if c.gpu}
    works = {c.spec_target for c in concrete if c.name in bound or (c.name in plans and plans[c.name].ok)}
    for one in unbound:
        plan = plans.get(one.name)
        if plan is None:
            targets[one.name] = Wait(NO_MATCHING_NODE, one.absent)
        elif plan.errors and one.spec_target in works:
            targets[one.name] = _unsupported(seen, one, plan)
        else:
            said = [*map(str, plan.errors), *_passing(effective_spec(spec, one.target), facts, release, one)]
            problems += [m for m in (f"{one.name}: {s}" for s in said) if m not in problems]
    claim = (
        judge_claim(seen.claim, spec, concrete, [read_node(n) for n in seen.nodes]) if seen.claim else ClaimVerdict()
    )
    if claim.refused:
        problems.append(claim.refused)
    if problems:
        return Wait("Refused", "; ".join(_merged(problems, [c.name for c in unbound])), stalled=True, refused=True)
    for one in unbound:
        if one.name not in targets:
            own = effective_spec(spec, one.target)
            named = calibration_texts(own, facts, release)
            if named and named not in texts:
                return _inspect_texts(seen, spec, named)
            judged = _Judged(one, own, plans[one.name], texts[named] if named else None, claim.warning)
            targets[one.name] = _revision(seen, spec, basis, judged)
    return Wanted(model, targets)


def _of_later_version(seen: EngineSnapshot, one: ConcreteTarget) -> Wait:
    name = seen.unreadable[one.name]
    why = (
        f"ControllerRevision {name} was written by a later version of the operator, and this one cannot read it; what "
        "serves goes on. Upgrade the operator, or delete the revision to have the target planned anew"
    )
    return Wait("LaterVersion", why, stalled=True)


def _bound(
    seen: EngineSnapshot, spec: LLMEngineSpec, one: ConcreteTarget, model: ResolvedModel, texts: Texts
) -> Revision | None:
    """The revision that the target has already, of those that can still be made."""
    own = [r for r in seen.revisions.values() if label(r, TARGET) == one.name and not is_overtaken(seen, r, texts)]
    own.sort(key=lambda r: int(r["revision"]), reverse=True)
    there = ((r["metadata"]["name"], texts_digest(r)) for r in own)
    name = bound_name(there, seen.engine["metadata"]["name"], spec, one.target, model, one.gpu_class)
    return read_revision(seen.revisions[name]) if name else None


def _inspect_texts(seen: EngineSnapshot, spec: LLMEngineSpec, texts: PersistentVolumeClaimDirectory) -> Wait:
    """For texts that are not known."""
    made, reason = texts_inspection_job(seen.engine, spec, texts, seen.config), "InspectingCalibration"
    what = f"the calibration texts in {texts.path} on claim {texts.claim_name}"
    done = inspect(seen, made, reason, what)
    if isinstance(done, Wait):
        return done
    # The report was lost, or a build has found other texts since.
    outdated = (seen.inspections[made["metadata"]["name"]],)
    return Wait(reason, f"{what} are about to be read again", actions=Actions(delete=outdated))


def _passing(spec: LLMEngineSpec, facts: ModelFacts, release: Release, one: ConcreteTarget) -> tuple[str, ...]:
    """The nearest values with which a refused target would pass."""
    found = nearest(spec, facts, release, one.gpu) if one.gpu else ()
    return (f"it {suggestions_text(found)}",) if found else ()


def _unsupported(seen: EngineSnapshot, concrete: ConcreteTarget, plan: TargetPlan) -> Wait:
    """One class of several cannot run what the spec asks for. What serves there stays, and then a person has to act."""
    problems = "; ".join(map(str, plan.errors))
    if seen.service_of(concrete.name) is None:
        return Wait("Unsupported", problems, skipped=True)
    served = (
        f"what an earlier spec built there goes on serving; let target {concrete.spec_target} select other GPUs, or "
        f"delete the Service {seen.service_name(concrete.name)}, to let it go"
    )
    return Wait("Unsupported", f"{problems}; {served}", stalled=True)


def _release(seen: EngineSnapshot, spec: LLMEngineSpec) -> Release | Wait:
    try:
        return seen.catalog.release(spec.release)
    except UnknownRelease as error:
        return Wait("UnknownRelease", str(error), stalled=True, refused=True)


def _merged(problems: list[str], targets: list[str]) -> list[str]:
    """Said once what is wrong on every target alike."""
    if len(targets) < 2:
        return problems
    out: list[str] = []
    for problem in problems:
        _, _, message = problem.partition(": ")
        everywhere = all(f"{t}: {message}" in problems for t in targets)
        said = message if everywhere else problem
        if said not in out:
            out.append(said)
    return out


def _revision(seen: EngineSnapshot, spec: LLMEngineSpec, basis: _Basis, judged: _Judged) -> Revision:
    concrete, own, texts, engine_name = judged.concrete, judged.spec, judged.texts, seen.engine["metadata"]["name"]
    assert concrete.gpu_class is not None  # it was judged
    digest = texts.digest if texts else None
    s3 = own.storage.s3
    store = Access(own.storage.location, s3.credentials_secret_ref.name if s3 else None)
    artifacts = chain(
        own,
        revision=basis.model.revision,
        facts=basis.facts,
        release=basis.release,
        image=basis.image,
        gpu=concrete.gpu_class,
        texts_digest=digest,
    )
    name = revision_name(engine_name, spec, concrete.target, basis.model, concrete.gpu_class, digest)
    server = Server(
        labels=pod_labels(engine_name, concrete.name, name),
        artifacts=artifacts,
        serving=own.serving,
        store=store,
        values=template_values(
            directory=store.directory,
            engine=artifacts[-1].name,
            model=artifacts[0].name,
            budgets=own.budgets,
            serving=own.serving,
            paged_context=judged.plan.precision.paged_context_fmha,
        ),
        weights_bytes=judged.plan.memory.weights.value * own.parallelism.tensor * own.parallelism.pipeline,
    )
    said = [*map(str, judged.plan.warnings), *([judged.remark] if judged.remark else ())]
    warnings = tuple(text[:MAX_WARNING_LENGTH] for text in said)
    numbers = {**plan_numbers(judged.plan), **_largest_file(basis.model)}
    if texts:
        numbers["calibrationBytes"] = texts.size_bytes
    template = pod_template(server, runner=seen.runner.config_map, config=seen.config)
    return Revision(name, concrete.name, artifacts, template, numbers, warnings)


def _largest_file(model: ResolvedModel) -> dict[str, int]:
    return {"modelLargestFileBytes": model.largest_file_bytes} if model.largest_file_bytes else {}
