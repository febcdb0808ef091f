"""The reference page is up to date and names everything."""

from __future__ import annotations

from pathlib import Path

from trtllm_operator.api import docs

PAGE = Path(__file__).parents[3] / docs.FILE


def test_the_page_is_what_the_models_say() -> None:
    assert PAGE.read_text() == docs.reference(), (
        "docs/api.md is not up to date: run `python -m trtllm_operator.api.docs`"
    )


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    docs.main([str(tmp_path / "api.md")])
    assert (tmp_path / "api.md").read_text() == docs.reference()


def test_a_field_is_shown_with_its_type_its_limits_and_its_default() -> None:
    page = docs.reference()
    assert "| **`budgets.maxBatchSize`** | integer 1 to 65,536 | Sequences in flight at once. |" in page
    assert "| `parallelism.tensor` | integer 1 to 64 | " in page
    assert "Default: 1. |" in page
    assert "| **`targets[].name`** | string of 1 to 16 characters |" in page
    assert "| `precision.kvCache` | `auto`, `fp8`, `int8` |" in page


def test_the_rules_are_listed_where_they_hold() -> None:
    page = docs.reference()
    assert "| `spec.budgets` | maxInputLen must be less than maxSeqLen" in page
    assert "| the object | the name must be at most 36 characters" in page
    assert "| `spec.build.resources.limits[*]` | must be a quantity that is not negative" in page
