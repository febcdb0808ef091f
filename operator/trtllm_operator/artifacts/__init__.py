"""Jobs of each artifact, what their Pods say, and what to do next: pure functions."""
