"""Measurements, run by hand; their results are committed in docs/."""
