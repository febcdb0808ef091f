"""Jobs of each artefact, what their Pods say, and what to do next: pure functions."""
