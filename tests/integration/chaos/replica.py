"""One replica of the operator: the real process behind a proxy of its own, started again when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.integration.faults import FaultProxy, Trap
from tests.integration.kube.operator_process import HostProcess
from trtllm_operator.kube.kubeconfig import ClusterConfig

ROOT = Path(__file__).parents[3]


class Replica:
    """An async context manager. `lives`: how often it was started; `exits`: the codes it ended with."""

    def __init__(
        self, upstream: ClusterConfig, namespace: str, name: str, directory: Path, config: Mapping[str, Any]
    ) -> None:
        """`config` is the operator's configuration, but for the namespace, which is all that it looks after."""
        self.name = name
        self.lease_namespace = namespace
        self._config = {**config, "watchNamespaces": [namespace]}
        self.namespace = namespace
        self.proxy = FaultProxy(upstream)
        self.lives = 0
        self.exits: list[int] = []
        self.process: HostProcess | None = None
        self._directory = directory
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True)
        await self.proxy.__aenter__()
        self._kubeconfig = self.proxy.write_kubeconfig(self._directory / "kubeconfig")
        (self._directory / "config.yaml").write_text(yaml.safe_dump(self._config))
        self._task = asyncio.create_task(self._live())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.proxy.__aexit__(None, None, None)

    def check(self) -> None:
        """Raises what keeps it from being started, if anything does."""
        if self._task and self._task.done():
            self._task.result()

    @property
    def writes(self) -> int:
        """Up to now, those of the Lease not counted."""
        return len(self.proxy.numbered)

    def said(self) -> str:
        """The logs of all lives."""
        return "\n".join(p.read_text() for p in sorted(self._directory.glob("*.log")))

    def dies_at(self, number: int, *, after: bool) -> None:
        """SIGKILL at a write: before the server has it, or once it has carried it out."""

        self.proxy.trap = Trap(number, after, self._kill)

    def dies_at_every_write(self) -> None:
        """SIGKILL once the server has carried out any write: a life comes no further than its first."""
        self.proxy.trap = Trap(0, True, self._kill)

    async def _kill(self) -> bool:
        # Another write of the same moment may have killed it already.
        if self.process is not None:
            self.process.kill()
        return False

    async def restart(self) -> None:
        """SIGKILL now; back once its next life has begun."""
        life = self.lives
        if self.process is not None:
            self.process.kill()
        while self.lives == life or self.process is None:
            self.check()
            await asyncio.sleep(0.02)

    async def _live(self) -> None:
        environment = {
            "KUBECONFIG": str(self._kubeconfig),
            "LLMENGINE_CONFIG": str(self._directory / "config.yaml"),
            "LLMENGINE_PORT": "0",
            "POD_NAMESPACE": self.lease_namespace,
            "POD_NAME": self.name,
            "PYTHONPATH": str(ROOT / "operator"),
        }
        while True:
            log = self._directory / f"{self.lives:03}.log"
            async with HostProcess(["-m", "trtllm_operator.main"], environment, log) as process:
                self.process = process
                self.lives += 1
                self.exits.append(await process.over())
                self.process = None
