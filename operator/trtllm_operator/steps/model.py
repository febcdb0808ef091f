"""inspect and fetch: what a model is, before any weight is read; and the model itself, into the store."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..planning.report import DTYPE_BITS, TensorHeader, make_report
from ..runner.report import StepError, progress
from ..runner.volume import disk_full
from . import source as sources
from .hub import Hub
from .source import Directory, Source
from .store import Meter, Store

_HUB_FOLDER = ".cache"
"""Where the hub's client keeps what it needs to go on after an interruption."""
_HEADERS_AT_ONCE = 8
_QUANT_CONFIG = "hf_quant_config.json"


def inspect(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve a model's revision and say what it is: config.json, tokenizer, the headers of its weights.

    `spec`: {"model": {"huggingFace": {"repo", "revision"}} or {"persistentVolumeClaim": {"path"}}, "root": where the
    claim is mounted}. Returns the report that planning/report.py defines, with `revision` (commit, or digest of the
    directory), `tokenizer` (file) and `downloadBytes` beside it.
    """
    source = _source(spec, "revision")
    tokenizer = sources.check_usable(source.files)
    config = sources.read_json(source, sources.CONFIG)
    quantisation = sources.read_json(source, _QUANT_CONFIG) if _QUANT_CONFIG in source.files else None
    tensors: dict[str, TensorHeader] = {}
    with ThreadPoolExecutor(_HEADERS_AT_ONCE) as pool:
        for header in pool.map(source.tensors, sources.weight_files(source)):
            tensors.update(header)
    if unknown := sorted({tensor.dtype for tensor in tensors.values()} - DTYPE_BITS.keys()):
        raise StepError("ModelUnreadable", f"the model has tensors of type {', '.join(unknown)}, which is not known")
    return {
        **make_report(config, tensors, quantisation),
        "revision": source.revision,
        "tokenizer": tokenizer,
        "downloadBytes": sum(source.files[path] for path in sources.wanted_files(source)),
    }


def fetch(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a pinned model into the store and publish it. An interrupted download keeps the files it had finished.

    `spec`: {"artifact": name, "inputs": the artefact's, "model": {"huggingFace": {"repo", "commit"}} or
    {"persistentVolumeClaim": {"path", "digest"}}, "store": directory, "root": where the claim is mounted}.
    """
    store, artifact = Store(Path(spec["store"])), spec["artifact"]
    if store.has(artifact):
        return store.verify(artifact).report()
    staging = store.staging(artifact)
    staging.parent.mkdir(exist_ok=True)
    with _alone(staging.with_name(f"{artifact}.lock")):
        if store.has(artifact):
            return store.verify(artifact).report()
        started = time.monotonic()
        source = _source(spec, "commit")
        _check_unchanged(source, spec)
        sources.check_usable(source.files)
        paths = sources.wanted_files(source)
        staging.mkdir(exist_ok=True)
        for unfinished in staging.rglob("*.incomplete"):
            unfinished.unlink()  # the hub's client begins a file anew; only whole files are kept from an earlier run
        _check_space(staging, source, paths)
        _bring(source, paths, staging)
        if isinstance(source, Directory):
            _check_unchanged(Directory(source.path), spec)
        build = {"durationSeconds": round(time.monotonic() - started)}
        return store.publish(staging, artifact, "Model", spec["inputs"], build).report()


def _source(spec: Mapping[str, Any], revision: str) -> Source:
    model = spec["model"]
    if "huggingFace" in model:
        return Hub(model["huggingFace"]["repo"], model["huggingFace"][revision])
    root = Path(spec["root"]).resolve()
    path = (root / model["persistentVolumeClaim"]["path"].lstrip("/")).resolve()
    if not path.is_relative_to(root):
        raise StepError("ModelNotFound", f"{model['persistentVolumeClaim']['path']} leads out of the claim")
    return Directory(path)


def _check_unchanged(source: Source, spec: Mapping[str, Any]) -> None:
    pinned = spec["model"].get("persistentVolumeClaim")
    if pinned and source.revision != pinned["digest"]:
        raise StepError(
            "ModelChanged",
            f"the files in {pinned['path']} are not those that were inspected (digest {source.revision}, not "
            f"{pinned['digest']}): a model must not change in place. Put the new one into another directory and "
            "name that in spec.model.",
        )


def _check_space(staging: Path, source: Source, paths: tuple[str, ...]) -> None:
    """Refuse at the start what would fail after hours."""
    here = sum(path.stat().st_size for path in staging.rglob("*") if path.is_file())
    needed = sum(source.files[path] for path in paths) - here
    if needed > shutil.disk_usage(staging).free:
        raise disk_full(staging, needed)


def _bring(source: Source, paths: tuple[str, ...], staging: Path) -> None:
    progress("fetching", files=len(paths), totalBytes=sum(source.files[path] for path in paths))
    if isinstance(source, Hub):
        source.download(paths, staging)
        shutil.rmtree(staging / _HUB_FOLDER, ignore_errors=True)
    elif isinstance(source, Directory):
        meter = Meter("copying", sum(source.files[path] for path in paths))
        for path in paths:
            shutil.copyfile(source.path / path, staging / path)
            meter.add(source.files[path])
    for surplus in {entry.name for entry in staging.iterdir()} - set(paths):
        (staging / surplus).unlink()


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Keep two Pods from writing into the same staging directory; the kernel ends the lock with its holder."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting", why="another Pod fetches the same model")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
