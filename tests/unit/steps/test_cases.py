"""Public reports about the small files of a model, by their number: what the inspection makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable

from trtllm_operator.planning import read_report
from trtllm_operator.planning.text_processing import end_token_ids

from .conftest import HubServer, Steps

Start = Callable[[], Steps]


def test_c66_a_model_without_a_tokenizer_is_refused_by_the_inspection(hub: HubServer, steps: Start) -> None:
    """A CPU step: nothing has been downloaded, and no GPU asked for."""
    directory = hub.add()
    (directory / "tokenizer.json").unlink()
    status, report, _ = steps().inspect()
    assert (status, report["failure"]["reason"]) == (64, "TokenizerMissing")
    assert "none of tokenizer.json, tokenizer.model, spiece.model, vocab.json is there" in report["failure"]["message"]


def test_c66_a_sentencepiece_tokenizer_is_enough(hub: HubServer, steps: Start) -> None:
    directory = hub.add()
    (directory / "tokenizer.json").rename(directory / "tokenizer.model")
    result = steps().inspect()[1]["result"]
    assert (result["tokenizer"], result["text"]["sentencePiece"]) == ("tokenizer.model", True)


def test_c67_code_is_named_by_the_inspection_and_never_fetched(hub: HubServer, steps: Start) -> None:
    directory = hub.add()
    auto_map = {"AutoTokenizer": ["tokenization_custom.CustomTokenizer", None]}
    (directory / "tokenizer_config.json").write_text(json.dumps({"auto_map": auto_map}))
    started = steps()
    result = started.inspect()[1]["result"]
    assert read_report(result).remote_code == "tokenizer_config.json: tokenization_custom.CustomTokenizer"
    assert started.fetch(result["revision"])[0] == 0
    assert not list((started.store / "model-1").glob("*.py"))
    assert not [request.path for request in hub.requests if request.path.endswith(".py")]


def test_c70_end_tokens_are_read_from_all_files_that_name_them(hub: HubServer, steps: Start) -> None:
    directory = hub.add()
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"eos_token_id": 151643}))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [151645, 151643]}))
    tokenizer = {"eos_token": "<|im_end|>", "added_tokens_decoder": {"151645": {"content": "<|im_end|>"}}}
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    facts = read_report(steps().inspect()[1]["result"])
    assert end_token_ids(facts) == (151645, 151643)
    assert facts.config_end_token_ids == "151643"
    assert (facts.tokenizer_end_token, facts.tokenizer_end_token_id) == ("<|im_end|>", 151645)
