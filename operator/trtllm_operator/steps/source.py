"""What a source of models is, which of a model's files are wanted, and the source that is a directory of a claim."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol

from ..planning.report import TEXT_FILES, TOKENIZER_FILES, TensorHeader, text_report
from ..runner.report import StepError
from .store import Meter

CONFIG = "config.json"
SAFETENSORS_INDEX = "model.safetensors.index.json"
_SMALL_FILES = ("*.json", "*.txt", "*.model", "*.tiktoken", "*.jinja")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_MAX_HEADER_BYTES = 100_000_000
"""The safetensors library's own limit."""


class Source(Protocol):
    """A model at one content."""

    revision: str
    """Commit of the hub, or digest of what tells the files' contents apart."""
    files: Mapping[str, int]
    """Size in bytes of every file at the top level."""

    def read(self, path: str) -> bytes:
        """The content of a small file."""

    def tensors(self, path: str) -> Mapping[str, TensorHeader]:
        """The header of a safetensors file."""

    def download(self, paths: tuple[str, ...], directory: Path) -> None:
        """Bring files into a directory, but those that an earlier run has left there whole."""


def read_json(source: Source, path: str) -> dict[str, Any]:
    """A JSON object among the model's files. Raises StepError ModelUnreadable."""
    try:
        value = json.loads(source.read(path))
    except (ValueError, RecursionError) as error:
        raise StepError("ModelUnreadable", f"the model's {path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise StepError("ModelUnreadable", f"the model's {path} is not a JSON object")
    return value


def read_text(source: Source, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the small files say of how text is made and where it ends, as `planning.report` defines it."""
    files = {name: read_json(source, name) for name in TEXT_FILES if name in source.files}
    return text_report(config, files, source.files.keys())


def check_usable(files: Iterable[str]) -> str:
    """The tokenizer file of a model with these files. Raises StepError for what no engine can be made of."""
    names = set(files)
    if CONFIG not in names:
        raise StepError(
            "ModelUnreadable",
            f"the model has no {CONFIG}: it is not a Transformers model, or the path leads to another directory. It "
            f"has {_some(names)}.",
        )
    tokenizer = next((name for name in TOKENIZER_FILES if name in names), None)
    if tokenizer is None:
        raise StepError(
            "TokenizerMissing",
            f"the model has no tokenizer: none of {', '.join(TOKENIZER_FILES)} is there. It has {_some(names)}.",
        )
    return tokenizer


def holds_weights(files: Iterable[str]) -> bool:
    """Whether a model with these files has any weights, usable or not, rather than its small files alone."""
    return any(fnmatch(name, pattern) for name in files for pattern in ("*.safetensors", SAFETENSORS_INDEX, *_PICKLES))


def weight_files(source: Source) -> tuple[str, ...]:
    """The safetensors files that make up the model, sorted: those of the index where there is one, so that a second
    copy of the weights in another layout is not taken. Raises StepError ModelUnreadable when one is missing."""
    if SAFETENSORS_INDEX in source.files:
        mapping = read_json(source, SAFETENSORS_INDEX).get("weight_map")
        named = mapping.values() if isinstance(mapping, dict) else ()
        if not all(isinstance(name, str) for name in named):
            raise StepError(
                "ModelUnreadable", f"{SAFETENSORS_INDEX} is damaged: weight_map has to name a file per tensor"
            )
        wanted = sorted(set(named))
    elif "model.safetensors" in source.files:
        wanted = ["model.safetensors"]
    else:
        wanted = sorted(name for name in source.files if fnmatch(name, "*.safetensors"))
    if missing := [name for name in wanted if name not in source.files]:
        raise StepError("ModelUnreadable", f"{SAFETENSORS_INDEX} names {', '.join(missing)}, which the model lacks")
    if not wanted:
        pickles = sorted(name for name in source.files if any(fnmatch(name, pattern) for pattern in _PICKLES))
        why = (
            f"its weights are pickles ({', '.join(pickles[:3])}), which run code when they are read; convert them to "
            "safetensors"
            if pickles
            else f"it has no safetensors files. It has {_some(source.files)}"
        )
        raise StepError("ModelUnreadable", f"the model has no weights that can be used: {why}.")
    return tuple(wanted)


def wanted_files(source: Source) -> tuple[str, ...]:
    """Everything an artifact of type Model holds: weights, configuration, tokenizer. Never code, never pickles."""
    small = (name for name in source.files if any(fnmatch(name, pattern) for pattern in _SMALL_FILES))
    return tuple(sorted({*small, *weight_files(source)}))


def parse_header(path: str, size: int, read: Callable[[int, int], bytes]) -> dict[str, TensorHeader]:
    """The header of a safetensors file of `size` bytes; `read` gives its bytes from a start up to an end.

    Raises StepError ModelUnreadable.
    """
    try:
        if size < 8:
            raise ValueError(f"a file of {size} bytes")  # noqa: TRY301
        (header_bytes,) = struct.unpack("<Q", read(0, 8))
        if header_bytes > min(size, _MAX_HEADER_BYTES):
            raise ValueError(f"a header of {header_bytes} bytes in a file of {size}")  # noqa: TRY301
        header = json.loads(read(8, 8 + header_bytes))
        header.pop("__metadata__", None)
        found = {name: TensorHeader(entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}
        end = 8 + header_bytes + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise StepError("ModelUnreadable", f"{path} is not a safetensors file: {error}") from None
    if end != size:
        raise StepError("ModelUnreadable", f"{path} has {size} bytes where its header says {end}: an unfinished copy?")
    return found


class Directory:
    """A model in a directory of a mounted claim.

    `revision` is a digest of the names, sizes and modification times of its files and of the content of the small ones:
    no weight is read for it, yet a directory that was written to since has another.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise StepError("ModelNotFound", f"{path} is not a directory of the claim")
        entries = sorted(entry for entry in path.iterdir() if entry.is_file())
        self.files: Mapping[str, int] = {entry.name: entry.stat().st_size for entry in entries}
        self.revision = self._digest(entries)

    def read(self, path: str) -> bytes:
        return (self.path / path).read_bytes()

    def tensors(self, path: str) -> Mapping[str, TensorHeader]:
        with (self.path / path).open("rb") as file:

            def read(start: int, end: int) -> bytes:
                file.seek(start)
                return file.read(end - start)

            return parse_header(path, self.files[path], read)

    def download(self, paths: tuple[str, ...], directory: Path) -> None:
        meter = Meter("copying", sum(self.files[path] for path in paths))
        for path in paths:
            shutil.copyfile(self.path / path, directory / path)
            meter.add(self.files[path])

    def _digest(self, entries: list[Path]) -> str:
        identity = [
            [
                entry.name,
                entry.stat().st_size,
                entry.stat().st_mtime_ns,
                hashlib.sha256(entry.read_bytes()).hexdigest() if fnmatch(entry.name, "*.json") else None,
            ]
            for entry in entries
        ]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return (", ".join(listed[:8]) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")) or "no files"
