"""inspect and fetch: what a model is, before any weight is read; and the model itself, into the store."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..planning.report import DTYPE_BITS, TensorHeader, make_report
from ..runner.report import StepError, progress
from . import source as sources
from .open_store import open_store
from .same import same
from .source import Directory, Source
from .store import Content

_HEADERS_AT_ONCE = 8
_QUANT_CONFIG = "hf_quant_config.json"


def inspect(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve a model's revision and say what it is: config.json, tokenizer, the headers of its weights.

    `spec`: {"model": {"huggingFace": {"repo", "revision"}}, {"persistentVolumeClaim": {"path"}} or {"s3": {"bucket",
    "prefix", "endpoint", "region"}}, "root": where the claim is mounted, "credentials": directory of the bucket's
    Secret}. Returns the report that planning/report.py defines, with `revision` (commit, or digest of what the source
    holds), `tokenizer` (file), `downloadBytes` and `largestFileBytes` beside it.
    """
    source = _source(spec, "revision")
    tokenizer = sources.check_usable(source.files)
    config = sources.read_json(source, sources.CONFIG)
    quantization = sources.read_json(source, _QUANT_CONFIG) if _QUANT_CONFIG in source.files else None
    tensors: dict[str, TensorHeader] = {}
    with ThreadPoolExecutor(_HEADERS_AT_ONCE) as pool:
        for header in pool.map(source.tensors, sources.weight_files(source)):
            tensors.update(header)
    if unknown := sorted({tensor.dtype for tensor in tensors.values()} - DTYPE_BITS.keys()):
        raise StepError("ModelUnreadable", f"the model has tensors of type {', '.join(unknown)}, which is not known")
    sizes = [source.files[path] for path in sources.wanted_files(source)]
    return {
        **make_report(config, tensors, quantization, sources.read_text(source, config)),
        "revision": source.revision,
        "tokenizer": tokenizer,
        "downloadBytes": sum(sizes),
        "largestFileBytes": max(sizes),
    }


def fetch(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a pinned model into the store and publish it. An interrupted download keeps the files it had finished.

    `spec`: {"artifact": name, "inputs": the artifact's, "model": as `inspect`'s, but with "commit" or "digest" for the
    content that was inspected, "store": as `open_store`'s, "root" and "credentials" as `inspect`'s, "scratch":
    directory}.
    """
    store, artifact = open_store(spec["store"], Path(spec["scratch"])), spec["artifact"]
    if store.has(artifact):
        return same(store.verify(artifact), {**spec, "type": "Model"}).report()
    source = _source(spec, "commit")
    _check_unchanged(source, spec)
    sources.check_usable(source.files)
    files = {path: source.files[path] for path in sources.wanted_files(source)}
    progress("fetching", files=len(files), totalBytes=sum(files.values()))

    def download(paths: tuple[str, ...], directory: Path) -> None:
        source.download(paths, directory)
        if isinstance(source, Directory):
            _check_unchanged(Directory(source.path), spec)

    received = store.receive(Content(artifact, "Model", spec["inputs"], {}), files, download)
    return same(received, {**spec, "type": "Model"}).report()


def _source(spec: Mapping[str, Any], revision: str) -> Source:
    model = spec["model"]
    if hub := model.get("huggingFace"):
        from .hub import Hub

        return Hub(hub["repo"], hub[revision])
    if s3 := model.get("s3"):
        from .s3_model import open_model

        return open_model(s3, spec.get("credentials"))
    root = Path(spec["root"]).resolve()
    path = (root / model["persistentVolumeClaim"]["path"].lstrip("/")).resolve()
    if not path.is_relative_to(root):
        raise StepError("ModelNotFound", f"{model['persistentVolumeClaim']['path']} leads out of the claim")
    return Directory(path)


def _check_unchanged(source: Source, spec: Mapping[str, Any]) -> None:
    pinned = spec["model"].get("persistentVolumeClaim") or spec["model"].get("s3")
    if pinned and source.revision != pinned["digest"]:
        where = pinned["path"] if "path" in pinned else f"s3://{pinned['bucket']}/{pinned.get('prefix', '')}"
        raise StepError(
            "ModelChanged",
            f"the files in {where} are not those that were inspected (digest {source.revision}, not "
            f"{pinned['digest']}): a model must not change in place. Put the new one elsewhere and name that in "
            "spec.model.",
        )
