"""Reading a Triton model's `parameters` as the C++ backend does: a value that is missing or unfilled is its default."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .executor import DEFAULT_FREE_MEMORY_FRACTION, EngineError
from .log import runtime_log

T = TypeVar("T")

BATCHING_STRATEGIES = ("v1", "inflight_batching", "inflight_fused_batching")


def to_bool(text: str) -> bool:
    if text.lower() in ("true", "1"):
        return True
    if text.lower() in ("false", "0"):
        return False
    raise ValueError(text)


class Parameters:
    """The `parameters` of a model's configuration."""

    def __init__(self, model_config: Mapping[str, Any]) -> None:
        self._values: dict[str, str] = {
            key: entry["string_value"] for key, entry in model_config.get("parameters", {}).items()
        }

    def text(self, name: str) -> str | None:
        """The value, or None when it is missing, empty or still a `${placeholder}`."""
        value = self._values.get(name, "")
        return None if not value or (value.startswith("${") and value.endswith("}")) else value

    def get(self, name: str, convert: Callable[[str], T], default: T, warning: str) -> T:
        """The converted value; otherwise the default, with the backend's warning."""
        value = self.text(name)
        if value is not None:
            try:
                return convert(value)
            except ValueError:
                pass
        runtime_log("WARNING", warning)
        return default

    def check_batching_strategy(self) -> None:
        strategy = self.text("gpt_model_type")
        if strategy is None or strategy.lower() not in BATCHING_STRATEGIES:
            raise EngineError("Invalid gpt_model_type. Must be v1/inflight_batching/inflight_fused_batching.")

    def max_tokens_in_paged_kv_cache(self) -> int | None:
        return self.get(
            "max_tokens_in_paged_kv_cache",
            int,
            None,
            "max_tokens_in_paged_kv_cache is not specified, will use default value",
        )

    def kv_cache_fraction(self) -> float:
        return self.get(
            "kv_cache_free_gpu_mem_fraction",
            float,
            DEFAULT_FREE_MEMORY_FRACTION,
            "kv_cache_free_gpu_mem_fraction is not specified, will use default value of 0.9 or "
            "max_tokens_in_paged_kv_cache",
        )

    def kv_cache_reuse(self) -> bool:
        return self.get(
            "enable_kv_cache_reuse", to_bool, True, "enable_kv_cache_reuse is not specified, will be set to true"
        )

    def chunked_context(self) -> bool:
        enabled = self.get(
            "enable_chunked_context", to_bool, False, "enable_chunked_context is not specified, will be set to false."
        )
        if enabled:
            runtime_log(
                "WARNING",
                "enable_chunked_context is set to true, will use context chunking (requires building the model with "
                "use_paged_context_fmha).",
            )
        return enabled

    def exclude_input_in_output(self) -> bool:
        return self.get(
            "exclude_input_in_output", to_bool, False, "exclude_input_in_output is not specified, will be set to false"
        )

    def cancellation_check_seconds(self) -> float:
        milliseconds = self.get(
            "cancellation_check_period_ms",
            int,
            100,
            "cancellation_check_period_ms is not specified, will be set to 100 (ms)",
        )
        return milliseconds / 1000

    def stats_check_seconds(self) -> float:
        milliseconds = self.get(
            "stats_check_period_ms", int, 100, "stats_check_period_ms is not specified, will be set to 100 (ms)"
        )
        return milliseconds / 1000
