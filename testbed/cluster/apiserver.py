"""etcd and a kube-apiserver alone, on loopback: what API-server integration tests run against.

No root, no namespace, no nodes. The processes die with the process that started them.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from testbed.cluster import build, components
from testbed.cluster.client import Client
from testbed.cluster.errors import ClusterError
from testbed.cluster.kubectl import kubectl
from testbed.cluster.waiting import wait_until

START_SECONDS = 60
STOP_SECONDS = 10
PR_SET_PDEATHSIG = 1


class ApiServer:
    """A context manager: a fresh API server with certificates, RBAC and the admission plugins of the local cluster.

    `controller_manager=True` also runs the controller-manager: ServiceAccounts, garbage collection, Jobs, Deployments.
    Without it a namespace has no `default` ServiceAccount, so Pods are refused. `definitions` are files with
    CustomResourceDefinitions that are there before the controllers are, which would notice later ones after 30 s only.
    """

    def __init__(self, *, controller_manager: bool = False, definitions: Sequence[Path] = ()) -> None:
        self._with_controller_manager = controller_manager
        self._definitions = definitions
        self._processes: list[subprocess.Popen[bytes]] = []
        self._directory: Path | None = None
        self._plane: components.ControlPlane | None = None

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig."""
        return self._running.kubeconfig("admin")

    @property
    def url(self) -> str:
        return self._running.url

    @property
    def directory(self) -> Path:
        """Holds the components' logs: etcd.log, apiserver.log, controller-manager.log."""
        return self._running.directory

    def start(self) -> None:
        binary = build.programs().kube
        self._directory = Path(tempfile.mkdtemp(prefix="llmengine-apiserver-"))
        secure, client, peer = _free_ports(3)
        plane = components.ControlPlane(
            directory=self._directory,
            address="127.0.0.1",
            secure_port=secure,
            etcd_client_port=client,
            etcd_peer_port=peer,
            service_cidr="198.51.100.0/24",
            service_address="198.51.100.1",
        )
        try:
            components.write_credentials(plane)
            self._run(binary, "etcd", components.etcd_flags(plane))
            self._run(binary, "apiserver", components.apiserver_flags(plane))
            api = Client(plane.kubeconfig("admin"))
            wait_until(lambda: self._alive() and api.ready(), START_SECONDS, "the API server to be ready")
            for path in self._definitions:
                kubectl(plane.kubeconfig("admin"), "apply", "--server-side", "-f", str(path))
            if self._with_controller_manager:
                self._run(binary, "controller-manager", components.controller_manager_flags(plane))
                wait_until(
                    lambda: self._alive() and api.exists("/api/v1/namespaces/default/serviceaccounts/default"),
                    START_SECONDS,
                    "the controller-manager to make the default ServiceAccount",
                )
        except BaseException:
            self.stop()
            raise
        self._plane = plane

    def freeze(self) -> None:
        """Neither the API server nor its store gets any more time, as on a machine that hangs."""
        for process in self._processes[:2]:
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """They go on where they were."""
        for process in self._processes[:2]:
            process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends the processes and removes everything they wrote. Safe to call twice."""
        # The API server goes before its store.
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
        self._processes.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = self._plane = None

    def __enter__(self) -> ApiServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _running(self) -> components.ControlPlane:
        if self._plane is None:
            raise RuntimeError("the API server is not running: use `with ApiServer() as server`")
        return self._plane

    def _run(self, binary: Path, component: str, flags: list[str]) -> None:
        assert self._directory is not None
        with (self._directory / f"{component}.log").open("wb") as log:
            process = subprocess.Popen(
                [binary, component, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                preexec_fn=die_with_parent,
            )
        self._processes.append(process)

    def _alive(self) -> bool:
        for process in self._processes:
            if process.poll() is not None:
                assert self._directory is not None
                component = str(process.args[1])  # type: ignore[index]
                log = (self._directory / f"{component}.log").read_text(errors="replace")
                raise ClusterError(f"{component} ended with {process.returncode}; its last words:\n{log[-2000:]}")
        return True


def die_with_parent() -> None:
    """For a process about to be started: it ends when the one that starts it does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()
