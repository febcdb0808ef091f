"""From the spec's targets to those for each class of GPUs that the cluster has or that were served."""

from __future__ import annotations

from collections import defaultdict

from ..api.engineartifact import GpuClass
from ..api.llmengine import LLMEngineSpec
from ..api.stored import read_stored
from ..artifacts.plan import is_ready
from ..objects import REVISION, TARGET, label
from ..planning.expansion import Expansion, KnownClass, expand
from ..planning.gpu_nodes import read_node
from .snapshot import EngineSnapshot


def concrete_targets(seen: EngineSnapshot, spec: LLMEngineSpec) -> Expansion:
    """The targets that are built for and served, each for one class of GPUs."""
    return expand(spec, [read_node(n) for n in seen.nodes], seen.catalog, _known(seen))


def _known(seen: EngineSnapshot) -> dict[str, list[KnownClass]]:
    """The classes of the revisions that exist, by target: proven where the engine is in the store or serves."""
    selected = {(s["spec"].get("selector") or {}).get(REVISION) for s in seen.services.values()}
    out: defaultdict[str, list[KnownClass]] = defaultdict(list)
    for name, revision in seen.revisions.items():
        engine = revision["data"]["artifacts"][-1]
        artifact = seen.artifacts.get(engine["name"])
        proven = name in selected or (artifact is not None and is_ready(artifact))
        gpu = read_stored(GpuClass, engine["spec"]["inputs"]["gpu"])
        out[label(revision, TARGET) or ""].append(KnownClass(gpu, proven))
    return out
