"""Facts of the model a command is about: a directory here, or a repository of the hub, whose weights stay there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..api.common import S3Model
from ..api.llmengine import ModelSource
from ..planning.model import ModelFacts, ModelUnreadable, read_config, read_report
from ..runner.report import StepError
from ..steps.source import CONFIG, Directory, check_usable, holds_weights, read_json, read_text, weight_files
from .credentials import bucket_credentials, hub_token
from .errors import BAD_INPUT, UNREACHABLE, CliError
from .judged import Model

_QUANT_CONFIG = "hf_quant_config.json"
_UNREACHABLE = frozenset(
    {"HubUnreachable", "HubRateLimited", "DownloadRefused", "ModelNotFound", "StorageUnreachable", "StorageRefused"}
)


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
    if source.s3 is not None:
        return _from_bucket(source.s3)
    claim = source.persistent_volume_claim
    assert claim is not None
    raise CliError(
        f"the model is {claim.path} on claim {claim.claim_name}, which can't be read from here: "
        "give its files or its repository with --model"
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
        has_weights = holds_weights(source.files)
        if (
            has_weights
        ):  # a whole model: what the operator's inspection refuses is refused; config.json alone may be planned
            check_usable(source.files)
        tensors = (
            {name: t for file in weight_files(source) for name, t in source.tensors(file).items()}
            if has_weights
            else None
        )
        config = read_json(source, CONFIG)
        return read_config(config, tensors, quantization, read_text(source, config))
    except StepError as error:
        raise CliError(f"{path}: {error.message}") from None
    except ModelUnreadable as error:
        raise CliError(f"{path}: {error}") from None
    except OSError as error:
        raise CliError(f"{path} can't be read: {error.strerror}") from None


def _from_hub(repo: str, revision: str) -> Model:
    hub_token()
    return _inspected({"model": {"huggingFace": {"repo": repo, "revision": revision}}}, f"{repo}@{revision}")


def _from_bucket(source: S3Model) -> Model:
    where = source.model_dump(by_alias=True, exclude={"credentials_secret_ref"}, exclude_none=True)
    asked = {"model": {"s3": where}, "credentials": bucket_credentials()}
    return _inspected(asked, f"s3://{source.bucket}/{source.prefix}")


def _inspected(asked: dict[str, Any], name: str) -> Model:
    """What the operator's own inspection says."""
    try:
        from ..steps.model import inspect

        report = inspect(asked)
        return Model(read_report(report), str(report["revision"]))
    except ImportError as error:
        raise CliError(
            f"reading {name} takes the package {error.name}: pip install 'llmengine-operator[cli]', or give a "
            "directory with --model",
            UNREACHABLE,
        ) from None
    except StepError as error:
        raise CliError(f"{name}: {error.message}", _code(error)) from None
    except ModelUnreadable as error:
        raise CliError(f"{name}: {error}") from None


def _code(error: StepError) -> int:
    return UNREACHABLE if error.reason in _UNREACHABLE else BAD_INPUT
