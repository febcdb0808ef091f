"""STAND-IN for the `preprocessing` model: text to token ids, words to the backend's word lists."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from trtllm_standin.log import runtime_log
from trtllm_standin.tokenizer import ModelTokenizer
from trtllm_standin.triton_parameters import Parameters

YES = ("true", "1", "t", "y", "yes")
NO = ("false", "0", "f", "n", "no")


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def word_list(rows: Sequence[Sequence[Sequence[int]]]) -> npt.NDArray[np.int32]:
    """(rows, 2, n): each row's words one after the other, and each word's end offset padded with -1."""
    width = max((sum(len(word) for word in row) for row in rows), default=0)
    result = np.zeros((len(rows), 2, width), np.int32)
    result[:, 1] = -1
    for index, row in enumerate(rows):
        tokens = [token for word in row for token in word]
        ends = np.cumsum([len(word) for word in row]) if row else []
        result[index, 0, : len(tokens)] = tokens
        result[index, 1, : len(row)] = ends
    return result


class TritonPythonModel:
    """One instance of the `preprocessing` model."""

    def initialize(self, args: Mapping[str, str]) -> None:
        parameters = Parameters(json.loads(args["model_config"]))
        special = (parameters.text("add_special_tokens") or "").lower()
        if special not in YES + NO:
            runtime_log("WARNING", "Don't setup 'add_special_tokens' correctly. Set it as True by default.")
        self._add_special_tokens = special not in NO
        directory = parameters.text("tokenizer_dir")
        try:
            self._tokenizer = ModelTokenizer(Path(directory or "${tokenizer_dir}"))
        except (OSError, ValueError) as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, requests: list[Any]) -> list[Any]:
        responses = []
        for request in requests:
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            try:
                outputs = self._convert(inputs)
            except ValueError as error:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
                continue
            tensors = [pb_utils.Tensor(name, array) for name, array in outputs.items()]
            responses.append(pb_utils.InferenceResponse(output_tensors=tensors))
        return responses

    def _convert(self, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        unbatched = inputs["QUERY"].ndim == 1
        if unbatched:
            inputs = {name: array[None] for name, array in inputs.items()}
        queries = inputs["QUERY"].reshape(-1)
        rows = len(queries)
        encoded = [self._encode(_text(query)) for query in queries]
        decoder = inputs.get("DECODER_QUERY")
        decoder_ids = (
            [self._encode(_text(query)) for query in decoder.reshape(-1)] if decoder is not None else [[1]] * rows
        )
        outputs = {
            "INPUT_ID": self._padded(encoded),
            "REQUEST_INPUT_LEN": np.array([[len(ids)] for ids in encoded], np.int32),
            "DECODER_INPUT_ID": self._padded(decoder_ids),
            "REQUEST_DECODER_INPUT_LEN": np.array([[len(ids)] for ids in decoder_ids], np.int32),
            "REQUEST_OUTPUT_LEN": inputs["REQUEST_OUTPUT_LEN"].astype(np.int32),
            "BAD_WORDS_IDS": self._words(inputs.get("BAD_WORDS_DICT"), rows),
            "STOP_WORDS_IDS": self._words(inputs.get("STOP_WORDS_DICT"), rows),
            "EMBEDDING_BIAS": self._bias(
                inputs.get("EMBEDDING_BIAS_WORDS"), inputs.get("EMBEDDING_BIAS_WEIGHTS"), rows
            ),
            "OUT_END_ID": self._given_or(inputs.get("END_ID"), self._tokenizer.end_id, rows),
            "OUT_PAD_ID": self._given_or(inputs.get("PAD_ID"), self._tokenizer.pad_id, rows),
            "OUT_PROMPT_TABLE_EXTRA_IDS": np.zeros((rows, 1), np.uint64),
        }
        return {name: array[0] for name, array in outputs.items()} if unbatched else outputs

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=self._add_special_tokens)

    def _padded(self, rows: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
        width = max(len(row) for row in rows)
        return np.array([[*row, *[self._tokenizer.pad_id] * (width - len(row))] for row in rows], np.int32)

    def _words(self, words: npt.NDArray[Any] | None, rows: int) -> npt.NDArray[np.int32]:
        if words is None:
            return np.zeros((rows, 2, 0), np.int32)
        return word_list(
            [
                [self._tokenizer.encode(_text(word), add_special_tokens=False) for word in row.reshape(-1) if word]
                for row in words
            ]
        )

    def _bias(
        self, words: npt.NDArray[Any] | None, weights: npt.NDArray[Any] | None, rows: int
    ) -> npt.NDArray[np.float32]:
        if words is None or weights is None:
            return np.zeros((rows, 0), np.float32)
        result = np.zeros((rows, self._tokenizer.vocab_size), np.float32)
        for index in range(rows):
            for word, weight in zip(words[index].reshape(-1), weights[index].reshape(-1), strict=True):
                ids = self._tokenizer.encode(_text(word), add_special_tokens=False)
                if len(ids) != 1:
                    raise ValueError(f"Embedding bias words must be one token, {_text(word)!r} has {len(ids)}")
                result[index, ids[0]] += weight
        return result

    @staticmethod
    def _given_or(given: npt.NDArray[Any] | None, default: int, rows: int) -> npt.NDArray[np.int32]:
        return np.full((rows, 1), default, np.int32) if given is None else given.astype(np.int32).reshape(rows, 1)
