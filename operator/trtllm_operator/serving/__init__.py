"""Triton's objects for one target, the values of its model repository, and the rollout: pure functions."""
