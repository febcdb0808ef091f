from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trtllm_operator.runner import child


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_output_is_passed_on_and_its_end_remembered(capfd: pytest.CaptureFixture[str]) -> None:
    outcome = child.run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (outcome.status, outcome.tail) == (3, ("out", "err"))
    assert capfd.readouterr().out == "out\nerr\n"


def test_a_progress_bar_arrives_as_lines() -> None:
    outcome = child.run(python(r"print('10%\r20%\r', end=''); print('done')"))
    assert outcome.tail == ("10%", "20%", "done")


def test_only_the_last_lines_are_remembered_but_those_asked_for_are_kept() -> None:
    program = "print('E1129 the cause'); [print('option', n) for n in range(500)]"
    outcome = child.run(python(program), keep=lambda line: line.startswith("E1129"))
    assert len(outcome.tail) == child.TAIL_LINES
    assert outcome.kept == ("E1129 the cause",)


def test_output_without_line_ends_does_not_grow_without_limit() -> None:
    outcome = child.run(python("import sys; sys.stdout.write('x' * 1_000_000)"))
    assert max(map(len, outcome.tail)) <= 4096


def test_a_grandchild_that_holds_the_output_does_not_hold_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_DRAIN_SECONDS", 0.2)
    program = "import subprocess; print(subprocess.Popen(['sleep', '30']).pid, flush=True)"
    started = time.monotonic()
    outcome = child.run(python(program))
    os.kill(int(outcome.tail[0]), signal.SIGKILL)
    assert outcome.status == 0
    assert time.monotonic() - started < 10


def test_memory_of_the_largest_process_is_measured() -> None:
    assert child.run(python("x = b'x' * 300_000_000")).peak_process_bytes > 300_000_000


@pytest.mark.parametrize("forward", [os.killpg, os.kill])
def test_sigterm_is_passed_on(forward: Callable[[int, int], None], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = f"""
import signal, sys, pathlib
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
pathlib.Path({str(ready)!r}).touch()
signal.pause()
"""

    def terminate_once_ready() -> None:
        deadline = time.monotonic() + 30
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate_once_ready).start()
    outcome = child.run(python(program), forward=forward)
    assert (outcome.status, outcome.signalled) == (7, signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
