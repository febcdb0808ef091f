"""Whether what convert and build left behind is what was asked for; an exit status of 0 is not enough."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .report import StepError

_UNQUANTIZED = (None, "", "NO_QUANT")
_LIMITS = {
    "max_batch_size": "maxBatchSize",
    "max_input_len": "maxInputLen",
    "max_seq_len": "maxSeqLen",
    "max_num_tokens": "maxNumTokens",
    "max_beam_width": "maxBeamWidth",
}
_QUANTIZATION = {"quant_algo": "quantAlgo", "kv_cache_quant_algo": "kvCacheQuantAlgo"}


def verify_checkpoint(directory: Path, expected: Mapping[str, Any]) -> None:
    """A converted checkpoint against `expected`; raises StepError OutputInvalid that lists every difference."""
    config = _config(directory, "checkpoint")
    _report(
        "The converted checkpoint",
        [
            *_rank_files(directory, ".safetensors", _world_size(expected)),
            *_truncated(directory),
            *_model(config, expected),
        ],
    )


def verify_engine(directory: Path, expected: Mapping[str, Any]) -> None:
    """An engine directory against `expected`; raises StepError OutputInvalid that lists every difference.

    `expected` is the API's Expectation as Kubernetes stores it. A limit or dtype that it leaves out is not compared; a
    quantization that it leaves out must not be there.
    """
    config = _config(directory, "engine")
    build = config.get("build_config", {})
    limits = [(f"build_config.{name}", build.get(name), expected.get(field)) for name, field in _LIMITS.items()]
    _report(
        "The engine",
        [
            *_rank_files(directory, ".engine", _world_size(expected)),
            *_differences([("version", config.get("version"), expected.get("release")), *limits]),
            *_model(config.get("pretrained_config", {}), expected, "pretrained_config."),
        ],
    )


def _config(directory: Path, what: str) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise StepError("OutputInvalid", f"The {what} has no config.json, though the tool exited with 0.") from None
    except ValueError as error:
        raise StepError("OutputInvalid", f"The {what}'s config.json is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise StepError("OutputInvalid", f"The {what}'s config.json is not a JSON object.")
    return config


def _world_size(expected: Mapping[str, Any]) -> int:
    return int(expected.get("tensorParallel", 1)) * int(expected.get("pipelineParallel", 1))


def _rank_files(directory: Path, suffix: str, world_size: int) -> Iterator[str]:
    wanted = {f"rank{rank}{suffix}" for rank in range(world_size)}
    found = {path.name for path in directory.glob(f"rank*{suffix}") if not path.stem.endswith("_managed_weights")}
    if missing := sorted(wanted - found):
        yield f"{', '.join(missing)} missing of {world_size} rank files"
    if surplus := sorted(found - wanted):
        yield f"{', '.join(surplus)} beyond the {world_size} ranks"
    yield from (f"{name} is empty" for name in sorted(wanted & found) if not (directory / name).stat().st_size)


def _truncated(directory: Path) -> Iterator[str]:
    """Shards that are shorter or longer than their own headers say."""
    for path in sorted(directory.glob("rank*.safetensors")):
        size = path.stat().st_size
        if size == 0:
            continue
        try:
            with path.open("rb") as file:
                (header_bytes,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(header_bytes, size)))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (struct.error, ValueError, AttributeError, KeyError, TypeError, IndexError):
            yield f"{path.name} has no safetensors header"
            continue
        wanted = 8 + header_bytes + max(ends, default=0)
        if size != wanted:
            yield f"{path.name} has {size} bytes where its header says {wanted}"


def _model(config: Mapping[str, Any], expected: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    mapping = config.get("mapping", {})
    quantization = config.get("quantization") or {}
    yield from _differences(
        [
            (f"{prefix}mapping.world_size", mapping.get("world_size"), _world_size(expected)),
            (f"{prefix}mapping.tp_size", mapping.get("tp_size"), expected.get("tensorParallel", 1)),
            (f"{prefix}mapping.pp_size", mapping.get("pp_size"), expected.get("pipelineParallel", 1)),
            (f"{prefix}dtype", config.get("dtype"), expected.get("dtype")),
        ]
    )
    for name, field in _QUANTIZATION.items():
        found, wanted = quantization.get(name), expected.get(field)
        if found != wanted and not (found in _UNQUANTIZED and wanted in _UNQUANTIZED):
            yield f"{prefix}quantization.{name} is {found}, not {wanted}"


def _differences(rows: list[tuple[str, Any, Any]]) -> Iterator[str]:
    yield from (
        f"{name} is {found}, not {wanted}" for name, found, wanted in rows if wanted is not None and found != wanted
    )


def _report(what: str, problems: list[str]) -> None:
    if problems:
        raise StepError(
            "OutputInvalid", f"{what} is not what was asked for, though the tool exited with 0: {'; '.join(problems)}."
        )
