"""How a command fails: one line, and an exit code that a CI job can tell apart."""

from __future__ import annotations

REFUSED = 1
"""The planner says no, or what was asked about is not ready."""
BAD_INPUT = 3
"""A file, a name or a model can't be used; 2 is a wrong command line, as in every shell tool."""
UNREACHABLE = 4
"""The hub or the cluster did not answer as it should: no network, no token, no permission."""


class CliError(Exception):
    """Ends the command with one line on standard error."""

    def __init__(self, message: str, code: int = BAD_INPUT) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code
