"""What the front costs: `python -m benchmarks.front`. Its server answers at once: the front is what is measured.

Front, server and clients are processes of their own on this machine. CPU seconds of the front's process and bytes of
its memory are counted, which other work on the machine does not blur. The first-token overhead is the difference of
medians with and without the front, taken in turns in one run.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from tests.unit.front.triton import Asked, FakeTriton
from tests.unit.front.world import MODEL, NAME, write_model
from trtllm_operator.front.backends import Backend, Limits
from trtllm_operator.front.triton import Generation, Sampling, Server

STREAMS, TOKENS, ROUNDS = 32, 256, 6
CROWD, CROWD_TOKENS = 200, 64
SINGLES = 100
LIMITS = Limits(max_batch_size=8, max_input_len=1024, max_seq_len=2048)
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Result:
    """Of one run."""

    tokens_per_cpu_second: float
    cpu_microseconds_per_request: float
    peak_rss_mib: float
    crowd_served: int
    crowd_refused: int
    direct_first_token_ms: float
    front_first_token_ms: float

    def table(self) -> str:
        """As Markdown."""
        over = self.front_first_token_ms - self.direct_first_token_ms
        rows = [
            (f"tokens per CPU second of the front, {STREAMS} streams", f"{self.tokens_per_cpu_second:,.0f}", "5,000"),
            ("CPU of one short request", f"{self.cpu_microseconds_per_request:,.0f} µs", "-"),
            (f"memory, peak, {CROWD} clients against maxBatchSize 8", f"{self.peak_rss_mib:.0f} MiB", "150 MiB"),
            (f"served / refused of {CROWD} clients", f"{self.crowd_served} / {self.crowd_refused}", "all of them"),
            ("first token, one client, median over direct gRPC", f"+{over:.1f} ms", "5 ms"),
        ]
        return "\n".join(
            ["| figure | measured | aim |", "|---|---|---|", *(f"| {a} | {b} | {c} |" for a, b, c in rows)]
        )


def _answer(asked: Asked) -> Sequence[int]:
    return [64 + i % 26 for i in range(asked.max_tokens)]


def _triton(port: Any, stop: Event) -> None:
    async def serve() -> None:
        async with FakeTriton(_answer) as server:
            port.put(server.address)
            await asyncio.to_thread(stop.wait)

    asyncio.run(serve())


def _front(directory: Path, address: str, batch: int, url: Any, stop: Event) -> None:
    from tests.unit.front.world import front

    async def serve() -> None:
        limits = Limits(batch, LIMITS.max_input_len, LIMITS.max_seq_len)
        async with front(directory, Backend(address, "h100", "r", MODEL, limits), seconds=600) as served:
            url.put(served.url)
            await asyncio.to_thread(stop.wait)

    asyncio.run(serve())


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def _peak_rss_mib(pid: int) -> float:
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


async def _stream(port: int, max_tokens: int) -> tuple[int, int, float]:
    """Status, tokens and seconds to the first of them, of one streamed request on a connection of its own."""
    body = json.dumps({"model": NAME, "prompt": "x" * 32, "max_tokens": max_tokens, "stream": True}).encode()
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    status = int((await reader.readline()).split()[1])
    tokens, first = 0, 0.0
    async for line in reader:
        if line.startswith(b'data: {"id"'):
            first = first or time.perf_counter() - begun
            tokens += 1
    writer.close()
    return status, tokens, first


async def _measure(port: int, address: str, pid: int) -> Result:
    await asyncio.gather(*(_stream(port, 8) for _ in range(8)))  # what is loaded lazily is loaded
    before, tokens = _cpu_seconds(pid), 0
    for _ in range(ROUNDS):
        tokens += sum(t for _, t, _ in await asyncio.gather(*(_stream(port, TOKENS) for _ in range(STREAMS))))
    per_second = tokens / (_cpu_seconds(pid) - before)
    direct, through = [], []
    server = Server(address)
    before = _cpu_seconds(pid)
    for number in range(SINGLES):
        begun = time.perf_counter()
        await anext(server.generate(Generation([65] * 32, 1, Sampling(top_k=1)), str(number)))
        direct.append(time.perf_counter() - begun)
        through.append((await _stream(port, 1))[2])
    per_request = (_cpu_seconds(pid) - before) / SINGLES
    await server.close()
    crowd = await asyncio.gather(*(_stream(port, CROWD_TOKENS) for _ in range(CROWD)))
    return Result(
        tokens_per_cpu_second=per_second,
        cpu_microseconds_per_request=per_request * 1e6,
        peak_rss_mib=_peak_rss_mib(pid),
        crowd_served=sum(status == 200 for status, _, _ in crowd),
        crowd_refused=sum(status in (429, 503) for status, _, _ in crowd),
        direct_first_token_ms=statistics.median(direct) * 1000,
        front_first_token_ms=statistics.median(through) * 1000,
    )


def measure() -> Result:
    """One run."""
    context = multiprocessing.get_context("spawn")
    stop, ports, urls = context.Event(), context.Queue(), context.Queue()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_model(directory / MODEL)
        triton = context.Process(target=_triton, args=(ports, stop), daemon=True)
        triton.start()
        address = ports.get(timeout=60)
        front = context.Process(
            target=_front, args=(directory, address, LIMITS.max_batch_size, urls, stop), daemon=True
        )
        front.start()
        url = urls.get(timeout=60)
        assert front.pid is not None
        try:
            return asyncio.run(_measure(int(url.rsplit(":", 1)[1]), address, front.pid))
        finally:
            stop.set()
            for process in (front, triton):
                process.join(20)


if __name__ == "__main__":
    print(measure().table())
