"""Facts of the model a command is about: a directory here, or a repository of the hub, whose weights stay there."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from pathlib import Path

from ..api.llmengine import ModelSource
from ..planning.model import ModelFacts, ModelUnreadable, read_config, read_report
from ..runner.report import StepError
from ..steps.source import CONFIG, Directory, read_json, weight_files
from .errors import BAD_INPUT, UNREACHABLE, CliError
from .judged import Model

_QUANT_CONFIG = "hf_quant_config.json"
_UNREACHABLE = frozenset({"HubUnreachable", "HubRateLimited", "DownloadRefused", "ModelNotFound"})


def model_of(source: ModelSource, override: str | None) -> Model:
    """A spec's model, with the facts of `override` where it is given: a directory, or a repository with an optional
    @revision.

    Raises CliError.
    """
    hub = source.hugging_face
    pinned = hub.revision if hub and re.fullmatch(r"[0-9a-f]{40}", hub.revision) else None
    if override is not None:
        return Model(facts_of_name(override), pinned)
    if hub is not None:
        return _from_hub(hub.repo, hub.revision)
    claim, bucket = source.persistent_volume_claim, source.s3
    where = f"{claim.path} on claim {claim.claim_name}" if claim else f"in bucket {bucket.bucket if bucket else ''}"
    raise CliError(
        f"the model is {where}, which can't be read from here: give its files or its repository with --model"
    )


def facts_of_name(name: str) -> ModelFacts:
    """Facts of a directory, or else of a repository of the hub with an optional @revision. Raises CliError."""
    if Path(name).exists():
        return _from_directory(Path(name))
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise CliError(f"{name} is no directory here and no repository of the hub (owner/name)")
    repo, _, revision = name.partition("@")
    return _from_hub(repo, revision or "main").facts


def _from_directory(path: Path) -> ModelFacts:
    if not path.is_dir():
        raise CliError(f"{path} is not a directory: give the one that holds {CONFIG}")
    try:
        source = Directory(path)
        if CONFIG not in source.files:
            raise CliError(f"{path} has no {CONFIG}")
        quantization = read_json(source, _QUANT_CONFIG) if _QUANT_CONFIG in source.files else None
        has_weights = any(name.endswith(".safetensors") for name in source.files)
        tensors = (
            {name: t for file in weight_files(source) for name, t in source.tensors(file).items()}
            if has_weights
            else None
        )
        return read_config(read_json(source, CONFIG), tensors, quantization)
    except StepError as error:
        raise CliError(f"{path}: {error.message}") from None
    except ModelUnreadable as error:
        raise CliError(f"{path}: {error}") from None
    except OSError as error:
        raise CliError(f"{path} can't be read: {error.strerror}") from None


def _from_hub(repo: str, revision: str) -> Model:
    try:
        from ..steps.model import inspect
    except ImportError:
        raise CliError(
            f"{repo} is on the hub, and reading it takes the package huggingface_hub: "
            "pip install 'llmengine-operator[cli]', or give a directory with --model",
            UNREACHABLE,
        ) from None
    _use_the_users_token()
    try:
        report = inspect({"model": {"huggingFace": {"repo": repo, "revision": revision}}})
        return Model(read_report(report), str(report["revision"]))
    except StepError as error:
        raise CliError(f"{repo}@{revision}: {error.message}", _code(error)) from None
    except ModelUnreadable as error:
        raise CliError(f"{repo}@{revision}: {error}") from None


def _code(error: StepError) -> int:
    return UNREACHABLE if error.reason in _UNREACHABLE else BAD_INPUT


def _use_the_users_token() -> None:
    """The step reads a token from a file; on a laptop it is in HF_TOKEN, or where `hf auth login` left it."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    if "HF_TOKEN_PATH" in os.environ:
        return
    if token := os.environ.get("HF_TOKEN"):
        with tempfile.NamedTemporaryFile("w", prefix="llmengine-", delete=False) as file:
            file.write(token)
        atexit.register(Path(file.name).unlink, missing_ok=True)
        os.environ["HF_TOKEN_PATH"] = file.name
    elif (home / "token").is_file():
        os.environ["HF_TOKEN_PATH"] = str(home / "token")
