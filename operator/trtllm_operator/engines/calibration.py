"""Which texts a calibration has on a claim: known from an inspection, and part of the checkpoint's key.

Like a model on a claim they are inspected once, for the directory that the spec names: Kubernetes does not see files
change. A build that finds others than were inspected fails, and that is what has them inspected again. What is made
already stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from ..api.common import PersistentVolumeClaimDirectory
from ..api.llmengine import InspectedTexts, LLMEngineSpec
from ..artifacts import attempt
from ..artifacts.inspection import texts_inspection_name
from ..artifacts.plan import is_ready
from ..objects import Obj
from ..planning.overrides import effective_spec
from ..pods import pods_of
from .snapshot import EngineSnapshot

Texts = Mapping[PersistentVolumeClaimDirectory, InspectedTexts]


def known_texts(seen: EngineSnapshot, spec: LLMEngineSpec, remembered: Iterable[InspectedTexts]) -> Texts:
    """What was found in the directories that the spec names: remembered in status, or reported by the inspection Job
    that has just ended. Without what a build has found to be others since."""
    before = {(texts.claim_name, texts.path): texts for texts in remembered}
    datasets = (effective_spec(spec, target).precision.calibration.dataset for target in spec.targets)
    out: dict[PersistentVolumeClaimDirectory, InspectedTexts] = {}
    for named in dict.fromkeys(dataset.persistent_volume_claim for dataset in datasets if dataset):
        candidates = (before.get((named.claim_name, named.path)), _reported(seen, named))
        if found := next((c for c in candidates if c and not _changed_since(seen, c)), None):
            out[named] = found
    return out


def _reported(seen: EngineSnapshot, named: PersistentVolumeClaimDirectory) -> InspectedTexts | None:
    job = seen.inspections.get(texts_inspection_name(seen.engine["metadata"]["name"], named))
    if job is None or "deletionTimestamp" in job["metadata"]:
        return None
    match attempt.read(job, pods_of(job, seen.inspection_pods)):
        case attempt.Succeeded(result=report, completion_time=time) if "digest" in report:
            return InspectedTexts(
                claim_name=named.claim_name,
                path=named.path,
                digest=report["digest"],
                size_bytes=report["sizeBytes"],
                inspected_time=time,
            )
    return None


def is_overtaken(seen: EngineSnapshot, revision: Obj, texts: Texts) -> bool:
    """Whether a revision has a checkpoint that cannot be made any more: a build has found other texts, and those of the
    checkpoint were not seen since."""
    names = (a["name"] for a in revision["data"]["artifacts"] if "calibration" in a["spec"]["inputs"])
    artifact = seen.artifacts.get(next(names, ""))
    if artifact is None or is_ready(artifact) or not _times_of_others(artifact):
        return False
    source = artifact["spec"]["inputs"]["calibration"]
    known = next((t for t in texts.values() if (t.claim_name, t.path) == (source["claimName"], source["path"])), None)
    return known is None or known.digest != source.get("digest")


def _changed_since(seen: EngineSnapshot, texts: InspectedTexts) -> bool:
    """Whether a checkpoint's build has found other texts since these were inspected."""
    source = {"claimName": texts.claim_name, "path": texts.path, "digest": texts.digest}
    builds = (a for a in seen.artifacts.values() if a["spec"]["inputs"].get("calibration") == source)
    return any(time >= datetime.fromisoformat(texts.inspected_time) for a in builds for time in _times_of_others(a))


def _times_of_others(artifact: Obj) -> list[datetime]:
    """When attempts at a checkpoint found other texts than were inspected."""
    attempts = (artifact.get("status") or {}).get("attempts") or ()
    ended = (a.get("endTime") for a in attempts if a["reason"] == "CalibrationChanged")
    return [datetime.fromisoformat(time) for time in ended if time]
