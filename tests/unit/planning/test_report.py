"""The report of an inspection: what of config.json it carries, and that it always fits."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.planning.report import DTYPE_BITS, MAX_REPORT_BYTES, TensorHeader, make_report

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "deep": {"a": {"b": {"c": {"d": 1}}}}},
    "quantization_config": {"quant_method": "fp8", "ignored_layers": ["lm_head"] * 100},
    "text_config": {"num_attention_heads": 28, "text_config": {"head_dim": 64}},
    "tie_word_embeddings": True,
    "vocab_size": None,
    "unknown": 1,
    "model_type": "x" * 129,
}


def test_what_is_known_of_a_config_is_taken_and_the_rest_left() -> None:
    report = make_report(CONFIG, None, {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})
    assert report["config"] == {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "deep": {"a": {"b": {}}}},
        "quantization_config": {"quant_method": "fp8"},
        "text_config": {"num_attention_heads": 28, "text_config": {"head_dim": 64}},
        "tie_word_embeddings": True,
        "hf_quant_config": {"quantization": {"quant_algo": "FP8"}},
    }


@given(
    st.dictionaries(
        st.from_regex(r"model\.layers\.[0-9]{1,3}\.[a-z]{1,12}\.weight", fullmatch=True),
        st.builds(
            TensorHeader,
            dtype=st.sampled_from(sorted(DTYPE_BITS)),
            shape=st.lists(st.integers(0, 10_000), max_size=3).map(tuple),
        ),
        max_size=200,
    )
)
def test_no_tensor_is_lost_and_the_report_fits(tensors: dict[str, TensorHeader]) -> None:
    report = make_report(CONFIG, tensors)
    assert len(json.dumps(report, separators=(",", ":"))) <= MAX_REPORT_BYTES
    told = report["tensors"]
    assert sum(how_many for *_, how_many in told["groups"]) + told["rest"][0] == told["count"] == len(tensors)
