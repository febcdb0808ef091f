"""The backend's own metric families on Triton's /metrics, under the real names and labels."""

import threading
from collections.abc import Callable, Mapping
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
    """Holds the gauges; `pb_utils` is Triton's module, which exists only inside the server.

    A gauge is set only while a request is open, the last time before the last one is closed. Each `set` waits for the
    server, and a server that is about to unload the model stops answering before it says so: the caller would wait for
    ever, and the unload with it. No server unloads a model that still owes a response.
    """

    def __init__(self, pb_utils: Any, engine: LoadedEngine, model: str, version: str, now: Statistics) -> None:
        self._engine = engine
        self._gauges: dict[tuple[str, str], Any] = {}
        self._sent: dict[tuple[str, str], float] = {}
        self._families = []
        self._lock = threading.Lock()
        self._open_requests = 0
        self._stopped = False
        for (family_name, description, label), values in gauge_values(engine, now).items():
            family = pb_utils.MetricFamily(
                name=family_name, description=f"{description} (STAND-IN)", kind=pb_utils.MetricFamily.GAUGE
            )
            self._families.append(family)
            for value in values:
                labels = {"model": model, "version": version, label: value}
                self._gauges[family_name, value] = family.Metric(labels=labels)
        self._set_changed(now)

    def request_opened(self) -> None:
        with self._lock:
            self._open_requests += 1

    def request_closes(self, statistics: Callable[[], Statistics]) -> None:
        """To be called before the request's last response goes out."""
        with self._lock:
            if self._open_requests == 1 and not self._stopped:
                self._set_changed(statistics())
            self._open_requests -= 1

    def report(self, statistics: Callable[[], Statistics]) -> None:
        """Set the gauges that changed, if a request is open."""
        with self._lock:
            if self._open_requests and not self._stopped:
                self._set_changed(statistics())

    def stop(self) -> None:
        """The model is being unloaded: nothing is set any more."""
        self._stopped = True

    def _set_changed(self, now: Statistics) -> None:
        for (family_name, _, _), values in gauge_values(self._engine, now).items():
            for value, number in values.items():
                if self._sent.get((family_name, value)) != number:
                    self._gauges[family_name, value].set(number)
                    self._sent[family_name, value] = number
