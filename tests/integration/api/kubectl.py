"""kubectl against the test's API server."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.cluster.binaries import kubectl

TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Kubectl:
    kubeconfig: Path
    namespace: str

    def run(self, *arguments: str, given: object = None) -> subprocess.CompletedProcess[str]:
        """Runs kubectl; `given` goes to its standard input as JSON."""
        return subprocess.run(
            [kubectl(), f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments],
            input=None if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def ok(self, *arguments: str, given: object = None) -> str:
        """Standard output of a run that must succeed without a warning."""
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        assert "Warning" not in done.stderr, done.stderr
        return done.stdout

    def refused(self, *arguments: str, given: object = None) -> str:
        """What kubectl says of a run that must fail."""
        done = self.run(*arguments, given=given)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)} was accepted: {done.stdout}"
        return done.stderr

    def get(self, *arguments: str) -> Any:
        return json.loads(self.ok("get", "-o", "json", *arguments))
