"""Pieces of one stream never overtake each other."""

from __future__ import annotations

from trtllm_operator.api.llmengine import Budgets, Serving
from trtllm_operator.serving.repository import template_values


def test_one_process_alone_turns_tokens_into_text() -> None:
    """Two of them answer in any order: a public report of the release's own (tensorrtllm_backend#614)."""
    budgets = Budgets(max_batch_size=64, max_input_len=1024, max_seq_len=2048, max_num_tokens=8192)
    values = template_values(
        directory="/store", engine="e", model="m", budgets=budgets, serving=Serving(), paged_context=True
    )
    assert values["postprocessing"]["postprocessing_instance_count"] == "1"
