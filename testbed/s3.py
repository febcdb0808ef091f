"""A real S3 server on this machine: versitygw over a directory, built once from its Go module."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import botocore.session
from botocore.config import Config

from testbed.cluster.build import build_extra

ACCESS_KEY, SECRET_KEY = "llmengine-test", "llmengine-test-secret"
READY_SECONDS = 30


class S3Server:
    """Serves the buckets below `root` on `address`, for the time of a `with`."""

    def __init__(self, root: Path, address: str = "127.0.0.1", port: int = 0) -> None:
        self._root, self._address = root, address
        self._port = port or _free_port(address)
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"http://{address}:{self._port}"
        self._log = root / "server.log"

    def __enter__(self) -> S3Server:
        program = build_extra("versitygw")
        buckets = self._root / "buckets"
        buckets.mkdir(parents=True, exist_ok=True)
        secrets = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        self._process = subprocess.Popen(
            [program, "--port", f"{self._address}:{self._port}", "--quiet", "posix", buckets],
            env={**os.environ, **secrets},
            stdout=self._log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise AssertionError(f"the S3 server does not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    @cached_property
    def client(self) -> Any:
        return client_of(self.endpoint)

    def stop(self) -> None:
        """Stop answering, as a server that hangs: connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # The signal is only queued when the call returns: a last answer might still go out.
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.endpoint, timeout=2):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False


def client_of(endpoint: str) -> Any:
    """A plain client of a server, for what tests do and look at."""
    return botocore.session.Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(s3={"addressing_style": "path"}),
    )


def write_credentials(directory: Path, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> Path:
    """The Secret as a Pod sees it: a file for each key."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "AWS_ACCESS_KEY_ID").write_text(access_key)
    (directory / "AWS_SECRET_ACCESS_KEY").write_text(f"{secret_key}\n")
    return directory


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
