"""Where the tooling keeps things: never in the work tree."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).parent
STATE = Path(os.environ.get("LLMENGINE_CLUSTER_STATE", "/var/lib/llmengine-cluster"))
"""All of a running cluster's files. `down` removes it."""


def cache() -> Path:
    """Build outputs by content; kept across `down`. The same directory for every checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "llmengine-operator"
