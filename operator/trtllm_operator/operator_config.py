"""How one installation is set up: what the chart writes and the operator reads at start."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from .api.markers import Object, problems


class ConfigError(ValueError):
    """The configuration file cannot be used; the message says what is wrong with it."""


class OperatorConfig(Object):
    operator_image: str
    """Image of the CPU steps: the operator's own."""
    toolchain_images: dict[str, str] = {}
    """TensorRT-LLM release -> image by digest, in place of the catalog's."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    hub_endpoint: str | None = None
    """Server with the Hugging Face hub's routes; the public hub when absent."""
    artifact_grace_seconds: int = 3600
    """How long an artifact that nothing needs is kept."""
    front_cluster_role: str = "llmengine-operator-front"
    """ClusterRole that the installation has for the endpoints' ServiceAccounts."""
    watch_namespaces: tuple[str, ...] = ()
    """Namespaces whose resources are looked after; all when empty."""


def load(path: Path) -> OperatorConfig:
    try:
        return OperatorConfig.model_validate(yaml.safe_load(path.read_text()) or {})
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {problems(error)}") from error
