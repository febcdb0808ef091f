"""A real API server for every test process."""

from __future__ import annotations

from testbed.fixtures import apiserver

__all__ = ["apiserver"]
