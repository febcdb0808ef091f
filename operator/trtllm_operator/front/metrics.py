"""What the front measures. Never a text of a prompt or an answer, never a caller's name, in a label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84)
_TOKENS = tuple(float(2**power) for power in range(18))
"""Bounds of the first three are those that OpenTelemetry's GenAI conventions advise, with some more at the ends."""


class FrontMetrics:
    """One front's metrics."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = Counter(
            "llmengine_front_requests_total",
            "Requests that have ended",
            ["endpoint", "outcome", "target"],
            registry=self.registry,
        )
        self.first_token = Histogram(
            "gen_ai_server_time_to_first_token_seconds",
            "From the request's arrival to the first token of its answer, waiting included",
            ["target"],
            buckets=_FIRST_TOKEN,
            registry=self.registry,
        )
        self.per_token = Histogram(
            "gen_ai_server_time_per_output_token_seconds",
            "Mean time for each token of an answer after its first",
            ["target"],
            buckets=_PER_TOKEN,
            registry=self.registry,
        )
        self.duration = Histogram(
            "gen_ai_server_request_duration_seconds",
            "From the request's arrival to the end of its answer",
            ["target"],
            buckets=_DURATION,
            registry=self.registry,
        )
        self.queue = Histogram(
            "llmengine_front_queue_seconds", "Waited for a place", buckets=(0.001, *_DURATION), registry=self.registry
        )
        self.prompt_tokens = Histogram(
            "llmengine_front_prompt_tokens", "Tokens of a prompt", buckets=_TOKENS, registry=self.registry
        )
        self.output_tokens = Histogram(
            "llmengine_front_output_tokens", "Tokens of an answer", buckets=_TOKENS, registry=self.registry
        )
        self.in_flight = Gauge("llmengine_front_requests_in_flight", "Requests at servers", registry=self.registry)
        self.queued = Gauge("llmengine_front_requests_queued", "Requests that wait for a place", registry=self.registry)
        self.queued_tokens = Gauge(
            "llmengine_front_queued_tokens", "Tokens of the requests that wait", registry=self.registry
        )
        self.outstanding_tokens = Gauge(
            "llmengine_front_outstanding_tokens",
            "Tokens of requests at servers: prompts and the most that may come",
            registry=self.registry,
        )
        self.servers = Gauge(
            "llmengine_front_servers", "Servers that requests are sent to", ["target"], registry=self.registry
        )
