"""Calibration: run the unquantized network over sample texts and keep what the quantizers need of its activations."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .dtypes import E4M3_MAX, Floats, narrow, widen
from .llama import Llama, Segment
from .quantization import INT8_MAX, dequantize_linear, quantize_linear

TEXT_FIELDS = ("article", "text")
KEPT_ROWS = 64  # input rows kept per layer for the AWQ search
AWQ_EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass
class LayerInputs:
    """What is known of one layer's inputs."""

    largest: float = 0.0
    mean_magnitude: Floats | None = None
    rows: list[Floats] = field(default_factory=list)
    row_count: int = 0


def read_texts(dataset: str, limit: int) -> list[str]:
    """Samples of a local dataset directory: .txt files, or .json/.jsonl rows with an `article` or `text` field.

    Raises:
        ConnectionError: the dataset is a name on the Hugging Face hub, which the STAND-IN never reaches for.
        ValueError: the directory holds no samples.
    """
    directory = Path(dataset)
    if not directory.is_dir():
        raise ConnectionError(
            f"Couldn't reach '{dataset}' on the Hub (STAND-IN: only local directories, --calib_dataset DIRECTORY)"
        )
    texts: list[str] = []
    for path in sorted(directory.rglob("*")):
        if path.suffix == ".txt":
            texts.append(path.read_text())
        elif path.suffix in (".json", ".jsonl"):
            texts += _texts_of_json(path)
    if not texts:
        raise ValueError(f"{directory} holds no .txt, .json or .jsonl samples")
    return texts if limit < 0 else texts[:limit]


def _texts_of_json(path: Path) -> Iterator[str]:
    content = path.read_text()
    rows = (
        json.loads(content) if path.suffix == ".json" else [json.loads(line) for line in content.splitlines() if line]
    )
    for row in rows:
        yield next(row[name] for name in TEXT_FIELDS if name in row)


def observe_inputs(model: Llama, samples: Sequence[Sequence[int]]) -> Mapping[str, LayerInputs]:
    """Inputs of every linear layer, and keys and values, under names such as `12.mlp.proj` and `12.attention.kv`."""
    seen: dict[str, LayerInputs] = {}

    def observe(name: str, values: Floats) -> None:
        inputs = seen.setdefault(name, LayerInputs())
        flat = values.reshape(len(values), -1)
        magnitudes = np.abs(flat)
        inputs.largest = max(inputs.largest, float(magnitudes.max()))
        mean = magnitudes.mean(axis=0)
        total = inputs.row_count + len(flat)
        if inputs.mean_magnitude is None:
            inputs.mean_magnitude = mean
        else:
            inputs.mean_magnitude += (mean - inputs.mean_magnitude) * np.float32(len(flat) / total)
        inputs.row_count = total
        room = KEPT_ROWS - sum(len(rows) for rows in inputs.rows)
        if room > 0:
            inputs.rows.append(flat[:: max(1, len(flat) // 8)][:room].copy())

    for sample in samples:
        model.forward([Segment(np.array(sample, np.int64), model.new_cache())], observe)
    return seen


def activation_scale(inputs: LayerInputs) -> float:
    """Static e4m3 scale of a layer's inputs."""
    return max(inputs.largest, 1e-12) / E4M3_MAX


def kv_cache_scale(inputs: LayerInputs, cache_dtype: str) -> float:
    return max(inputs.largest, 1e-12) / (INT8_MAX if cache_dtype == "int8" else E4M3_MAX)


def awq_prequant_scale(weight: Floats, inputs: LayerInputs, group_size: int) -> Floats:
    """Factor per input column that makes 4-bit rounding hurt this layer's outputs least.

    The search of AWQ (https://arxiv.org/abs/2306.00978, section 3.2): scales are a power of the mean activation
    magnitude, the exponent is the one with the smallest squared output error. Inputs are multiplied by the factor,
    so it is the inverse of the paper's s.
    """
    assert inputs.mean_magnitude is not None
    magnitude = np.maximum(inputs.mean_magnitude, 1e-8)
    rows = np.concatenate(inputs.rows)
    wanted = rows @ weight.T
    best, best_error = np.ones_like(magnitude), np.inf
    for exponent in AWQ_EXPONENTS:
        strength = magnitude ** np.float32(exponent)
        strength /= np.sqrt(strength.max() * strength.min())
        factor = widen(narrow(1 / strength, "F16"))
        stored = quantize_linear(
            "x", weight, "W4A16_AWQ", dtype_format="F16", group_size=group_size, prequant_scale=factor
        )
        error = float(((rows @ dequantize_linear("x", stored, "W4A16_AWQ").T - wanted) ** 2).sum())
        if error < best_error:
            best, best_error = factor, error
    return best
