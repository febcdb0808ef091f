"""`restart`: asks the operator to restart servers, by an annotation of the LLMEngine."""

from __future__ import annotations

from datetime import UTC, datetime

from ..api import GROUP, VERSION, llmengine
from ..kube.resource import Resource
from ..serving.restart import RESTART, restart_of
from .cluster import Cluster

LLM_ENGINE = Resource(GROUP, VERSION, llmengine.PLURAL, llmengine.KIND)


def restart(name: str, target: str | None, namespace: str | None) -> int:
    """Annotate the LLMEngine and say where to watch. Raises CliError."""
    cluster = Cluster()
    where = namespace or cluster.namespace
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    cluster.annotate(LLM_ENGINE, where, name, {restart_of(target) if target else RESTART: now})
    what = f"target {target} of LLMEngine {name}" if target else f"LLMEngine {name}"
    print(f"The servers of {what} restart. Watch: llmengine why {name} -n {where}")
    return 0
