"""An operator as a process of its own: started, asked and ended as a kubelet would."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from testbed.cluster.apiserver import die_with_parent
from tests.integration.kube.sample_operator import Options
from tests.integration.kube.waiting import eventually
from trtllm_operator.kube.resource import LEASE, Resource

_PORT = re.compile(r"/metrics on port (\d+)")


class HostProcess:
    """A process that runs a host; an async context manager. `log` is what it said."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self.log = log

    async def __aenter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command,
                env=os.environ | self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        self._session = aiohttp.ClientSession()
        try:
            self._port = int(await eventually(self._reported_port, "the operator to say its port", seconds=60))
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._session.close()
        # pytest shows this where a test failed.
        print(f"--- what the operator said ({self.log.name}):\n{self.log.read_text()}")

    async def ready(self) -> Self:
        """Wait until it has filled its cache (or stands by for the Lease)."""
        await eventually(self._is_ready, "the operator to be ready")
        return self

    async def settled(self) -> None:
        """Wait until no key waits or is worked on, twice in a row."""
        quiet = 0

        async def idle() -> bool:
            nonlocal quiet
            queued = await self.metric("llmengine_operator_queue_depth")
            busy = queued or await self.metric("llmengine_operator_queue_unfinished_work_seconds")
            quiet = 0 if busy else quiet + 1
            return quiet >= 2

        await eventually(idle, "the operator to come to rest")

    async def samples(self) -> list[Sample]:
        """All that it is watched by."""
        async with self._session.get(f"http://127.0.0.1:{self._port}/metrics") as response:
            text = await response.text()
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    async def metric(self, name: str, **labels: str) -> float:
        """One sample; 0 where it does not exist."""
        return sum(s.value for s in await self.samples() if s.name == name and labels.items() <= s.labels.items())

    async def calls(self, *methods: str, code: str = "") -> float:
        """Calls to the API server, all or of these methods, with any answer or this one; those for the Lease apart."""
        return sum(
            sample.value
            for sample in await self.samples()
            if sample.name == "llmengine_operator_api_requests_total"
            and sample.labels["resource"] != str(LEASE)
            and (not methods or sample.labels["verb"] in methods)
            and code in ("", sample.labels["code"])
        )

    async def writes(self) -> float:
        """Calls that could change the cluster, those for the Lease left out."""
        return await self.calls("apply", "create", "update", "delete")

    async def is_leader(self) -> bool:
        return bool(await self.metric("llmengine_operator_leader"))

    async def says(self, text: str) -> None:
        """Wait until it has said this."""

        async def said() -> bool:
            return text in self.log.read_text()

        await eventually(said, f"the operator to say {text!r}")

    def forgot(self, resource: Resource) -> Callable[[], Awaitable[bool]]:
        """A condition: it knows of no object of this kind."""

        async def none_known() -> bool:
            return await self.metric("llmengine_operator_cache_objects", resource=str(resource)) == 0

        return none_known

    async def terminate(self) -> tuple[int, float]:
        """SIGTERM; the exit code and the seconds it took."""
        begun = time.monotonic()
        self._process.terminate()
        code = await self.ended()
        return code, time.monotonic() - begun

    async def ended(self) -> int:
        """Wait until it ends by itself; the exit code."""
        async with asyncio.timeout(15):
            return await self._process.wait()

    async def over(self) -> int:
        """Wait for its end, however long it lives; the exit code."""
        return await self._process.wait()

    def kill(self) -> None:
        self._process.kill()

    def freeze(self) -> None:
        """It gets no more time, as on a machine that hangs."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        self._process.send_signal(signal.SIGCONT)

    async def _reported_port(self) -> str:
        if self._process.returncode is not None:
            raise AssertionError(f"the operator ended:\n{self.log.read_text()}")
        found = _PORT.search(self.log.read_text())
        return found[1] if found else ""

    async def _is_ready(self) -> bool:
        async with self._session.get(f"http://127.0.0.1:{self._port}/readyz") as response:
            return response.status == 200


class OperatorProcess(HostProcess):
    """The sample operator."""

    def __init__(self, kubeconfig: Path, options: Options, log: Path) -> None:
        program = str(Path(__file__).with_name("sample_operator.py"))
        super().__init__([program, json.dumps(asdict(options))], {"KUBECONFIG": str(kubeconfig)}, log)
