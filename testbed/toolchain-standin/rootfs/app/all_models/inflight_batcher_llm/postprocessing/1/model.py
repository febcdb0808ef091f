"""STAND-IN for the `postprocessing` model: token ids to text."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from trtllm_standin.log import runtime_log
from trtllm_standin.tokenizer import ModelTokenizer
from trtllm_standin.triton_parameters import Parameters

YES = ("true", "1", "t", "y", "yes")
NO = ("false", "0", "f", "n", "no")


class TritonPythonModel:
    """One instance of the `postprocessing` model."""

    def initialize(self, args: Mapping[str, str]) -> None:
        parameters = Parameters(json.loads(args["model_config"]))
        skip = (parameters.text("skip_special_tokens") or "").lower()
        if skip not in YES + NO:
            runtime_log("WARNING", "Don't setup 'skip_special_tokens' correctly. Set it as True by default.")
        self._skip_special_tokens = skip not in NO
        try:
            self._tokenizer = ModelTokenizer(Path(parameters.text("tokenizer_dir") or "${tokenizer_dir}"))
        except (OSError, ValueError) as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, requests: list[Any]) -> list[Any]:
        responses = []
        for request in requests:
            tokens = pb_utils.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy()
            lengths = pb_utils.get_input_tensor_by_name(request, "SEQUENCE_LENGTH").as_numpy().reshape(-1)
            sequences = tokens.reshape(len(lengths), -1)
            texts = [
                self._tokenizer.decode(sequence[:length].tolist(), skip_special_tokens=self._skip_special_tokens)
                for sequence, length in zip(sequences, lengths, strict=True)
            ]
            output = np.array([text.encode() for text in texts], dtype=object)
            responses.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUTPUT", output)]))
        return responses
