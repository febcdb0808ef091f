"""What users met, by the number of the public report each comes from: tokenizers and where a text ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.planning.build import SMOLLM2
from tests.unit.planning.models import plan, refused_for, said
from trtllm_operator.planning import ModelFacts, TargetPlan, read_config
from trtllm_operator.planning.nearest import nearest
from trtllm_operator.planning.report import MAX_REPORT_BYTES, make_report, text_report
from trtllm_operator.planning.text_processing import end_token_ids

from .build import engine_spec
from .models import H100, RELEASE

FAST = ("config.json", "tokenizer.json", "tokenizer_config.json")
IM_END = {"eos_token": "<|im_end|>", "added_tokens_decoder": {"151645": {"content": "<|im_end|>"}}}


def facts(*, names: tuple[str, ...] = FAST, config: dict[str, Any] | None = None, **files: Any) -> ModelFacts:
    """Of a model whose small files are given by name, with _ for the dot before json."""
    whole = SMOLLM2 | (config or {})
    by_name = {name.replace("_json", ".json"): content for name, content in files.items()}
    return read_config(whole, None, None, text_report(whole, by_name, names))


def warnings(verdict: TargetPlan) -> set[str]:
    return {check.id for check in verdict.warnings}


class TestEndTokens:
    def test_c70_the_list_of_generation_config_decides_and_is_kept_whole(self) -> None:
        """Qwen2.5 as in report 486: three files, three answers."""
        model = facts(
            config={"eos_token_id": 151643},
            generation_config_json={"eos_token_id": [151645, 151643]},
            tokenizer_config_json=IM_END,
        )
        assert end_token_ids(model) == (151645, 151643)
        verdict = plan(model)
        assert verdict.ok, "a conflict is no reason to refuse"
        assert "end-tokens" in warnings(verdict)
        message = said(verdict, "end-tokens")
        assert "a text ends at 151645, 151643, where config.json says 151643" in message
        assert "the tokenizer's <|im_end|> (151645) alone, and not at 151643" in message
        assert "stop_words" in message

    @pytest.mark.parametrize(
        ("files", "ids"),
        [
            ({"config": {"eos_token_id": 2}}, (2,)),
            ({"config": {"eos_token_id": 2}, "generation_config_json": {"eos_token_id": 3}}, (3,)),
            ({"config": {"eos_token_id": 2}, "generation_config_json": {"eos_token_id": None}}, (2,)),
            ({"config": {"eos_token_id": -1}, "tokenizer_config_json": IM_END}, (151645,)),
            ({"config": {"text_config": {"eos_token_id": [106, 1]}}}, (106, 1)),
            ({"config": {"eos_token_id": True}}, ()),
            ({"generation_config_json": {"eos_token_id": [7, 7, "x", 8]}}, (7, 8)),
        ],
    )
    def test_c70_which_file_decides(self, files: dict[str, Any], ids: tuple[int, ...]) -> None:
        assert end_token_ids(facts(**files)) == ids

    def test_c70_files_that_agree_are_no_warning(self) -> None:
        for token in ("<|im_end|>", {"content": "<|im_end|>"}):
            model = facts(
                config={"eos_token_id": 151645},
                generation_config_json={"eos_token_id": [151645]},
                tokenizer_config_json=IM_END | {"eos_token": token},
            )
            assert "end-tokens" not in warnings(plan(model))

    def test_c70_a_tokenizer_that_ends_elsewhere_is_a_warning(self) -> None:
        verdict = plan(facts(config={"eos_token_id": 151643}, tokenizer_config_json=IM_END))
        assert "servers end it at the tokenizer's <|im_end|> (151645) alone, and not at 151643" in said(
            verdict, "end-tokens"
        )

    def test_c70_no_end_token_anywhere_is_a_warning_and_never_a_number(self) -> None:
        model = facts(config={"eos_token_id": -1})
        assert end_token_ids(model) == ()
        assert "end-tokens" in warnings(plan(model))
        assert "no file of the model names an end token" in said(plan(model), "end-tokens")

    def test_c70_a_tokenizer_without_end_token_is_a_warning(self) -> None:
        assert "the tokenizer names no end token" in said(plan(facts(config={"eos_token_id": 2})), "end-tokens")

    def test_c70_the_token_may_be_in_special_tokens_map(self) -> None:
        model = facts(config={"eos_token_id": 2}, special_tokens_map_json={"eos_token": {"content": "</s>"}})
        assert "servers end it at </s>" in said(plan(model), "end-tokens")
        assert "end-tokens" not in warnings(plan(model))

    def test_c70_what_nobody_has_looked_at_is_not_judged(self) -> None:
        """A model that an earlier version of the operator inspected."""
        model = read_config(SMOLLM2, None)
        assert model.end_token_ids is None
        assert not {"end-tokens", "remote-code", "streaming"} & {check.id for check in plan(model).checks}

    def test_c70_the_facts_survive_the_status(self) -> None:
        model = facts(generation_config_json={"eos_token_id": [1, 2]}, tokenizer_config_json=IM_END)
        assert ModelFacts.from_facts(json.loads(json.dumps(model.to_facts()))) == model


class TestRemoteCode:
    @pytest.mark.parametrize(
        ("files", "told"),
        [
            (
                {"tokenizer_config_json": {"auto_map": {"AutoTokenizer": ["tokenization_x.XTokenizer", None]}}},
                "auto_map of tokenizer_config.json names tokenization_x.XTokenizer",
            ),
            (
                {"tokenizer_config_json": {"auto_map": ["tokenization_x.XTokenizer", None]}},
                "auto_map of tokenizer_config.json names tokenization_x.XTokenizer",
            ),
            (
                {"config": {"auto_map": {"AutoConfig": "configuration_x.XConfig"}}},
                "auto_map of config.json names configuration_x.XConfig",
            ),
        ],
    )
    def test_c67_code_of_the_repository_is_refused_by_its_name(self, files: dict[str, Any], told: str) -> None:
        verdict = plan(facts(**files))
        assert refused_for(verdict) == {"remote-code"}
        assert told in said(verdict, "remote-code")
        assert "no parameter" in said(verdict, "remote-code")
        assert nearest(engine_spec(), facts(**files), RELEASE, H100) == (), "no field of the spec helps"

    @pytest.mark.parametrize(
        "auto_map", [None, {}, {"AutoTokenizer": [None, None]}, {"AutoModelForSequenceClassification": "modeling_x.X"}]
    )
    def test_c67_what_nothing_here_loads_is_accepted(self, auto_map: Any) -> None:
        assert plan(facts(config={"auto_map": auto_map}, tokenizer_config_json={"auto_map": auto_map})).ok

    def test_c67_no_template_of_any_release_has_a_parameter_for_it(self) -> None:
        """When one has, this refusal has to become a field of the spec."""
        placeholders = {p.name for model in RELEASE.templates.values() for p in model}
        assert placeholders
        assert not [name for name in placeholders if "trust" in name or "remote" in name]


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model"])
def test_c69_streaming_of_a_sentencepiece_tokenizer_is_warned_of(name: str) -> None:
    verdict = plan(facts(names=(*FAST, name)))
    assert "streaming" in warnings(verdict)
    assert "without the spaces" in said(verdict, "streaming")
    assert "streaming" not in warnings(plan(facts()))


def test_a_model_without_tokenizer_files_is_not_judged_for_them() -> None:
    """`llmengine plan` with a directory that holds config.json alone."""
    assert text_report(SMOLLM2, {}, ("config.json",)) is None


def test_whatever_the_files_say_the_report_fits() -> None:
    long = "x" * 5000
    whole = SMOLLM2 | {"eos_token_id": list(range(2**40, 2**40 + 100)), "auto_map": {"AutoConfig": long}}
    files: dict[str, Any] = {
        "generation_config.json": {"eos_token_id": list(range(2**40, 2**40 + 100))},
        "tokenizer_config.json": {"eos_token": "\u20ac" * 80, "auto_map": [long]},
    }
    text = text_report(whole, files, FAST)
    assert text is not None
    assert len(json.dumps(make_report(whole, {}, None, text), separators=(",", ":"))) <= MAX_REPORT_BYTES
    assert len(text["endTokens"]["generation_config.json"]) == 16
