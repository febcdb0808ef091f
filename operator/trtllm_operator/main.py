"""The operator's process: puts the parts together and runs them."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import kopf
from prometheus_client import CollectorRegistry

from .api.crd import engineartifact_crd, llmengine_crd, schema
from .catalog import Catalog, CatalogError, load_catalog
from .kube.apply import Applier
from .kube.cache import Cache
from .kube.client import Client
from .kube.errors import ConfigError as ClusterConfigError
from .kube.host import Host, run
from .kube.kubeconfig import load_config
from .kube.lease import LeaseSettings
from .objects import IDENTITY, Runner
from .operator_config import ConfigError, load
from .reconcile.metrics import DomainMetrics
from .reconcile.reader import Reader
from .reconcile.reconciler import Reconciler
from .reconcile.secret_reader import SecretReader
from .reconcile.watches import (
    ENGINE_ARTIFACT,
    INDEXED_LABELS,
    LLM_ENGINE,
    PRUNED,
    REDUCED,
    RESOURCES,
    WATCHES,
    Key,
    keys,
)
from .runner.package import build_zipapp

FIELD_MANAGER = "llmengine-operator"


def main() -> int:
    kopf.configure(log_format=kopf.LogFormat.JSON)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # else one line for every watch event
    try:
        config = load(Path(os.environ.get("LLMENGINE_CONFIG", "/etc/llmengine/config.yaml")))
        catalog = read_catalog(Path(os.environ.get("LLMENGINE_CATALOG", "/etc/llmengine-catalog")))
        cluster = load_config()
    except (ConfigError, CatalogError, ClusterConfigError) as error:
        sys.stderr.write(f"llmengine-operator: {error}\n")
        return 2
    client = Client(cluster, field_manager=FIELD_MANAGER)
    cache = Cache(RESOURCES, indexed_labels=INDEXED_LABELS, pruned=PRUNED, reduced=REDUCED)
    registry = CollectorRegistry()
    reconciler = Reconciler(
        client=client,
        cache=cache,
        applier=Applier(client, cache, RESOURCES, hash_annotation="llmengine.dev/applied", identity=IDENTITY),
        catalog=catalog,
        config=config,
        runner=Runner(build_zipapp()),
        reader=Reader(client),
        secrets=SecretReader(client),
        metrics=DomainMetrics(registry, cache, client),
    )
    namespace = os.environ.get("POD_NAMESPACE", cluster.namespace)
    host: Host[Key] = Host(
        client=client,
        cache=cache,
        watches=WATCHES,
        keys=keys,
        reconcile=reconciler.reconcile,
        lease=LeaseSettings(namespace=namespace, name=FIELD_MANAGER),
        namespaces=config.watch_namespaces,
        schemas={LLM_ENGINE: schema(llmengine_crd()), ENGINE_ARTIFACT: schema(engineartifact_crd())},
        metrics=registry,
        port=int(os.environ.get("LLMENGINE_PORT", "8080")),
    )
    return run(host)


def read_catalog(corrections: Path) -> Catalog:
    """The catalog with the cluster's own files merged over it: those of a ConfigMap, where there is one.

    Raises CatalogError for files that cannot be used. The process ends then rather than go on without them: what they
    correct would be built wrongly, and during a rollout the Pod with the catalog before goes on working.
    """
    texts: dict[str, str] = {}
    for path in sorted(corrections.glob("[!.]*")):
        try:
            texts[path.name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CatalogError(f"catalog file {path.name} cannot be read: {error}") from None
    return load_catalog(texts)


if __name__ == "__main__":
    raise SystemExit(main())
