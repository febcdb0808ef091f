"""Properties hold on a busy machine too: how long an example takes says nothing about the planner."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("planning", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("planning")
