"""The step and the planner each have the report's format, as the step stands alone: here they are held together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.planning import report as planner
from trtllm_operator.steps import summary
from trtllm_operator.steps.report import StepError
from trtllm_operator.steps.source import Tensor

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "deep": {"a": {"b": {"c": 1}}}},
    "quantization_config": {"quant_method": "fp8", "ignored_layers": ["lm_head"] * 100},
    "text_config": {"num_attention_heads": 28, "text_config": {"head_dim": 64}},
    "tie_word_embeddings": True,
    "vocab_size": None,
    "unknown": 1,
    "model_type": "x" * 129,
}


def both(config: dict[str, Any], tensors: dict[str, Tensor], quantisation: dict[str, Any] | None) -> tuple[Any, Any]:
    headers = {name: planner.TensorHeader(tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    return summary.summarise(config, tensors, quantisation), planner.make_report(config, headers, quantisation)


@pytest.mark.parametrize("name", ["CONFIG_KEYS", "OBJECT_KEYS", "NESTED_KEYS", "DROPPED_KEYS", "DTYPE_BITS"])
def test_the_tables_are_the_same(name: str) -> None:
    assert getattr(summary, name) == getattr(planner, name)


def test_a_config_is_selected_alike() -> None:
    step, plan = both(CONFIG, {}, {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})
    assert step == plan
    assert step["config"]["text_config"] == {"num_attention_heads": 28, "text_config": {"head_dim": 64}}


@given(
    st.dictionaries(
        st.from_regex(r"model\.layers\.[0-9]{1,3}\.[a-z]{1,12}\.weight", fullmatch=True),
        st.builds(
            Tensor,
            dtype=st.sampled_from(sorted(summary.DTYPE_BITS)),
            shape=st.lists(st.integers(0, 10_000), max_size=3).map(tuple),
        ),
        max_size=200,
    )
)
def test_tensors_are_grouped_alike_and_fit(tensors: dict[str, Tensor]) -> None:
    step, plan = both(CONFIG, tensors, None)
    assert step == plan
    assert len(json.dumps(step, separators=(",", ":"))) <= summary.MAX_REPORT_BYTES


def test_a_type_of_tensor_that_is_not_known_is_told() -> None:
    with pytest.raises(StepError, match="tensors of type F3"):
        summary.summarise(CONFIG, {"a": Tensor("F3", (1,))}, None)
