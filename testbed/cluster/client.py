"""The few calls the tooling itself makes to an API server, over a kubeconfig with certificates inside."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

TIMEOUT_SECONDS = 5


class Client:
    """GET and POST of JSON with a client certificate. For more, use kubectl or a Kubernetes client."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        self._server: str = cluster["server"]
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        # The ssl module takes a client certificate from a file only.
        with tempfile.NamedTemporaryFile(prefix="llmengine-client-") as pem:
            pem.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            pem.flush()
            self._tls.load_cert_chain(pem.name)

    def ready(self) -> bool:
        """Whether the server answers and says it is ready."""
        try:
            return self._request("GET", "/readyz") == b"ok"
        except (OSError, urllib.error.URLError):
            return False

    def get(self, path: str) -> Any:
        """The object at an API path, or None where there is none."""
        try:
            return json.loads(self._request("GET", path))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def exists(self, path: str) -> bool:
        return self.get(path) is not None

    def _request(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self._server + path, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=self._tls) as response:
            body: bytes = response.read()
        return body
