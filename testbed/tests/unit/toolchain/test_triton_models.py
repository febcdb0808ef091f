"""What runs inside Triton's Python processes, with its module `triton_python_backend_utils` replaced."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from trtllm_standin.executor import EngineError
from trtllm_standin.kv_cache import BlockPool
from trtllm_standin.scheduler import Limits, Statistics
from trtllm_standin.tokenizer import ModelTokenizer
from trtllm_standin.triton_metrics import MetricsReporter
from trtllm_standin.triton_parameters import Parameters

from testbed.tests.unit.toolchain.standin import ROOTFS

MODELS = ROOTFS / "app/all_models/inflight_batcher_llm"


@dataclass
class Tensor:
    tensor_name: str
    array: Any

    def name(self) -> str:
        return self.tensor_name

    def as_numpy(self) -> Any:
        return self.array


@dataclass
class Request:
    tensors: list[Tensor]

    def inputs(self) -> list[Tensor]:
        return self.tensors


@dataclass
class Response:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: Any = None

    def array(self, name: str) -> Any:
        return next(tensor.array for tensor in self.output_tensors if tensor.tensor_name == name)


def requests(**arrays: Any) -> list[Request]:
    return [Request([Tensor(name, array) for name, array in arrays.items()])]


@pytest.fixture
def load_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """An initialized model of the repository, with a tokenizer of the words w0 to w9 and the end token </s>."""
    utils = ModuleType("triton_python_backend_utils")
    utils.Tensor, utils.InferenceResponse = Tensor, Response  # type: ignore[attr-defined]
    utils.TritonError = str  # type: ignore[attr-defined]
    utils.TritonModelException = RuntimeError  # type: ignore[attr-defined]
    utils.get_input_tensor_by_name = lambda request, name: next(  # type: ignore[attr-defined]
        (tensor for tensor in request.tensors if tensor.tensor_name == name), None
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    tokenizer = Tokenizer(WordLevel({"</s>": 0, **{f"w{number}": number + 1 for number in range(10)}}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))

    def load(name: str, **parameters: str) -> Any:
        spec = importlib.util.spec_from_file_location(f"{name}_model", MODELS / name / "1/model.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = module.TritonPythonModel()
        values = {"tokenizer_dir": str(tmp_path), **parameters}
        config = {"parameters": {key: {"string_value": value} for key, value in values.items()}}
        model.initialize({"model_config": json.dumps(config)})
        return model

    return load


def test_a_batch_of_texts_becomes_padded_ids(load_model: Callable[..., Any]) -> None:
    model = load_model("preprocessing", add_special_tokens="false")
    (response,) = model.execute(
        requests(
            QUERY=np.array([[b"w1 w2 w3"], [b"w4"]], dtype=object),
            REQUEST_OUTPUT_LEN=np.array([[5], [6]], np.int32),
            STOP_WORDS_DICT=np.array([[b"w9", b"w7 w8"], [b"", b""]], dtype=object),
        )
    )
    assert response.array("INPUT_ID").tolist() == [[2, 3, 4], [5, 0, 0]]
    assert response.array("REQUEST_INPUT_LEN").tolist() == [[3], [1]]
    assert response.array("OUT_END_ID").tolist() == [[0], [0]]
    # Tokens of all words in a row, then where each word ends.
    assert response.array("STOP_WORDS_IDS").tolist() == [[[10, 8, 9], [1, 3, -1]], [[0, 0, 0], [-1, -1, -1]]]
    assert response.array("BAD_WORDS_IDS").shape == (2, 2, 0)


def test_given_end_tokens_and_biases_are_passed_on(load_model: Callable[..., Any]) -> None:
    model = load_model("preprocessing", add_special_tokens="false")
    texts = {"QUERY": np.array([[b"w1"]], dtype=object), "REQUEST_OUTPUT_LEN": np.array([[5]], np.int32)}
    bias = {"EMBEDDING_BIAS_WORDS": np.array([[b"w3"]], dtype=object), "EMBEDDING_BIAS_WEIGHTS": np.array([[2.5]])}
    (response,) = model.execute(requests(**texts, **bias, END_ID=np.array([[7]], np.int32)))
    assert response.array("OUT_END_ID").tolist() == [[7]]
    assert response.array("EMBEDDING_BIAS")[0].tolist() == [0, 0, 0, 0, 2.5, 0, 0, 0, 0, 0, 0]
    bias["EMBEDDING_BIAS_WORDS"] = np.array([[b"w3 w4"]], dtype=object)
    (refused,) = model.execute(requests(**texts, **bias))
    assert "must be one token" in refused.error


@pytest.mark.parametrize(("skip", "text"), [("true", b"w1 w2"), ("false", b"w1 w2 </s>"), ("${skip}", b"w1 w2")])
def test_ids_become_text_up_to_their_length(load_model: Callable[..., Any], skip: str, text: bytes) -> None:
    model = load_model("postprocessing", skip_special_tokens=skip)
    (response,) = model.execute(
        requests(TOKENS_BATCH=np.array([[[2, 3, 0, 9]]], np.int32), SEQUENCE_LENGTH=np.array([[3]], np.int32))
    )
    assert response.array("OUTPUT").tolist() == [text]


def test_an_empty_end_of_a_stream_is_an_empty_text(load_model: Callable[..., Any]) -> None:
    model = load_model("postprocessing", skip_special_tokens="true")
    (response,) = model.execute(
        requests(TOKENS_BATCH=np.zeros((1, 1, 0), np.int32), SEQUENCE_LENGTH=np.array([[0]], np.int32))
    )
    assert response.array("OUTPUT").tolist() == [b""]


def test_a_directory_without_a_tokenizer_is_named(load_model: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError, match=r"Can't load tokenizer for '/nosuch'"):
        load_model("preprocessing", tokenizer_dir="/nosuch")


def test_the_end_token_comes_from_whichever_file_names_it(load_model: Callable[..., Any], tmp_path: Path) -> None:
    load_model("postprocessing")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="names an end token"):
        ModelTokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [4, 5]}))
    assert ModelTokenizer(tmp_path).end_id == 4
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "w2"}, "pad_token": "w3"}))
    tokenizer = ModelTokenizer(tmp_path)
    assert (tokenizer.end_id, tokenizer.pad_id) == (3, 4)


def parameters(**values: str) -> Parameters:
    return Parameters({"parameters": {key: {"string_value": value} for key, value in values.items()}})


def test_unfilled_and_unreadable_parameters_are_defaults_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    unfilled = parameters(
        kv_cache_free_gpu_mem_fraction="${kv_cache_free_gpu_mem_fraction}", enable_chunked_context="x"
    )
    assert unfilled.kv_cache_fraction() == 0.9
    assert unfilled.chunked_context() is False
    assert unfilled.max_tokens_in_paged_kv_cache() is None
    warnings = capsys.readouterr().err
    assert "kv_cache_free_gpu_mem_fraction is not specified, will use default value of 0.9" in warnings
    assert "enable_chunked_context is not specified, will be set to false." in warnings


def test_filled_parameters_count() -> None:
    filled = parameters(
        kv_cache_free_gpu_mem_fraction="0.5", max_tokens_in_paged_kv_cache="99", cancellation_check_period_ms="250"
    )
    assert (filled.kv_cache_fraction(), filled.max_tokens_in_paged_kv_cache()) == (0.5, 99)
    assert filled.cancellation_check_seconds() == 0.25


@pytest.mark.parametrize("strategy", ["${batching_strategy}", "orbital"])
def test_an_unknown_batching_strategy_is_refused(strategy: str) -> None:
    with pytest.raises(EngineError, match="Invalid gpt_model_type"):
        parameters(gpt_model_type=strategy).check_batching_strategy()


class Family:
    """Records every write to its gauges."""

    GAUGE = "gauge"
    writes: list[tuple[str, dict[str, str], float]] = []

    def __init__(self, name: str, description: str, kind: str) -> None:
        assert "STAND-IN" in description
        self.name = name

    def Metric(self, labels: dict[str, str]) -> Any:  # noqa: N802 (Triton's name)
        return SimpleNamespace(set=lambda number: self.writes.append((self.name, labels, number)))


def test_gauges_have_the_real_names_and_only_changes_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Family, "writes", [])
    limits = Limits(8, 64, 128, 64, 0, packed_context=True, chunked_context=False)
    engine: Any = SimpleNamespace(limits=limits, pool=BlockPool(100, 32))
    idle = Statistics(0, 0, 0, 0, 0, 0, 0, used_blocks=0, free_blocks=100)
    reporter = MetricsReporter(SimpleNamespace(MetricFamily=Family), engine, "tensorrt_llm", "1", idle)
    first = {(name, *labels.items()): number for name, labels, number in Family.writes}
    shared = (("model", "tensorrt_llm"), ("version", "1"))
    assert first["nv_trt_llm_request_metrics", *shared, ("request_type", "max")] == 8
    assert first["nv_trt_llm_kv_cache_block_metrics", *shared, ("kv_cache_block_type", "tokens_per")] == 32

    Family.writes.clear()
    reporter.request_opened()
    reporter.report(lambda: idle)
    assert not Family.writes, "what has not changed is not written"
    reporter.report(lambda: Statistics(5, 3, 0, 3, 0, 0, 0, used_blocks=25, free_blocks=75))
    written = {tuple(labels.values())[-1]: number for _, labels, number in Family.writes}
    assert written == {
        "active": 5,
        "scheduled": 3,
        "waiting": 2,
        "free": 75,
        "used": 25,
        "fraction": 0.25,
        "generation_requests": 3,
    }


def test_gauges_are_set_only_while_a_response_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that unloads the model answers no gauge any more: one that is set then hangs the unload."""
    monkeypatch.setattr(Family, "writes", [])
    limits = Limits(8, 64, 128, 64, 0, packed_context=True, chunked_context=False)
    engine: Any = SimpleNamespace(limits=limits, pool=BlockPool(100, 32))
    idle = Statistics(0, 0, 0, 0, 0, 0, 0, used_blocks=0, free_blocks=100)
    busy = Statistics(2, 2, 0, 2, 0, 0, 0, used_blocks=25, free_blocks=75)
    reporter = MetricsReporter(SimpleNamespace(MetricFamily=Family), engine, "tensorrt_llm", "1", idle)

    def active() -> list[float]:
        written = [number for _, labels, number in Family.writes if labels.get("request_type") == "active"]
        Family.writes.clear()
        return written

    assert active() == [0]
    reporter.report(lambda: busy)
    assert active() == [], "nothing is set at rest"
    reporter.request_opened()
    reporter.request_opened()
    reporter.report(lambda: busy)
    assert active() == [2]
    reporter.request_closes(lambda: busy)
    reporter.request_closes(lambda: idle)
    assert active() == [0], "the last to close leaves the numbers of rest behind"
    reporter.report(lambda: busy)
    assert active() == []
    reporter.request_opened()
    reporter.stop()
    reporter.request_closes(lambda: busy)
    assert active() == [], "nothing is set once the model is being unloaded"
