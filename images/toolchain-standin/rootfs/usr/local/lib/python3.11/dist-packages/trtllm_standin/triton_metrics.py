"""The backend's own metric families on Triton's /metrics, under the real names and labels."""

from collections.abc import Mapping
from typing import Any

from .executor import LoadedEngine
from .scheduler import Statistics

_REQUEST = ("nv_trt_llm_request_metrics", "TRT LLM request metrics", "request_type")
_KV_CACHE = ("nv_trt_llm_kv_cache_block_metrics", "TRT LLM KV cache block metrics", "kv_cache_block_type")
_BATCHER = (
    "nv_trt_llm_inflight_batcher_metrics",
    "TRT LLM inflight_batcher-specific metrics",
    "inflight_batcher_specific_metric",
)
_GENERAL = ("nv_trt_llm_general_metrics", "General TRT LLM metrics", "general_type")


def gauge_values(engine: LoadedEngine, now: Statistics) -> Mapping[tuple[str, str, str], Mapping[str, float]]:
    """(family, description, label) -> {label value: number}. `waiting` is active less scheduled."""
    return {
        _REQUEST: {
            "active": now.active,
            "max": engine.limits.max_batch_size,
            "scheduled": now.scheduled,
            "context": now.context,
            "waiting": now.active - now.scheduled,
        },
        _KV_CACHE: {
            "max": engine.pool.max_blocks,
            "free": now.free_blocks,
            "used": now.used_blocks,
            "tokens_per": engine.pool.tokens_per_block,
            "reused": 0,
            "fraction": now.used_blocks / engine.pool.max_blocks if engine.pool.max_blocks else 0.0,
        },
        _BATCHER: {
            "total_context_tokens": now.context_tokens,
            "generation_requests": now.generation,
            "micro_batch_id": 0,
            "paused_requests": 0,
        },
        _GENERAL: {"timestamp": now.last_step_seconds, "iteration_counter": now.iteration},
    }


class MetricsReporter:
    """Holds the gauges; `pb_utils` is Triton's module, which exists only inside the server."""

    def __init__(self, pb_utils: Any, engine: LoadedEngine, model: str, version: str, now: Statistics) -> None:
        self._engine = engine
        self._gauges: dict[tuple[str, str], Any] = {}
        self._sent: dict[tuple[str, str], float] = {}
        self._families = []
        for (family_name, description, label), values in gauge_values(engine, now).items():
            family = pb_utils.MetricFamily(
                name=family_name, description=f"{description} (STAND-IN)", kind=pb_utils.MetricFamily.GAUGE
            )
            self._families.append(family)
            for value in values:
                labels = {"model": model, "version": version, label: value}
                self._gauges[family_name, value] = family.Metric(labels=labels)
        self.report(now)

    def report(self, now: Statistics) -> None:
        """Set the gauges that changed.

        Each `set` waits for the server. At rest none may be made: a server that is about to unload the model stops
        answering before it says so, and the caller would wait for ever.
        """
        for (family_name, _, _), values in gauge_values(self._engine, now).items():
            for value, number in values.items():
                if self._sent.get((family_name, value)) != number:
                    self._gauges[family_name, value].set(number)
                    self._sent[family_name, value] = number
