"""Kubernetes for an operator: client, cache, queue, resync, lease and the host that runs them. Knows no engines."""
