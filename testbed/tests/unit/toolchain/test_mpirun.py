"""mpirun: ranks, environments, exit statuses and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from trtllm_standin.mpirun import UsageError, parse

from testbed.tests.unit.toolchain.standin import PACKAGES, ROOTFS

MPIRUN = [sys.executable, "-S", str(ROOTFS / "usr/local/bin/mpirun"), "--allow-run-as-root"]
ENVIRON = {**os.environ, "PYTHONPATH": str(PACKAGES)}


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def start(ranks: Sequence[str], cwd: Path) -> subprocess.Popen[str]:
    command = list(MPIRUN)
    for script in ranks:
        command += ["-n", "1", *sh(script), ":"]
    return subprocess.Popen(command, env=ENVIRON, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_ranks_are_told_who_they_are(tmp_path: Path) -> None:
    tell = "echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE > $OMPI_COMM_WORLD_RANK; exec sleep 60"
    ended = "while ! [ -s 1 ] || ! [ -s 2 ]; do sleep 0.05; done; echo 0 of $OMPI_COMM_WORLD_SIZE > 0"
    process = start([ended, tell, tell], tmp_path)
    assert process.wait(timeout=30) == 0, "rank 0's end ends the others"
    assert [(tmp_path / str(rank)).read_text() for rank in range(3)] == ["0 of 3\n", "1 of 3\n", "2 of 3\n"]


def test_a_failing_rank_ends_the_job_with_its_status(tmp_path: Path) -> None:
    process = start(["exec sleep 60", "exit 7"], tmp_path)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 7
    assert "STAND-IN" in output
    assert start(["exit 3", "exec sleep 60"], tmp_path).wait(timeout=30) == 3
    assert start(["kill -KILL $$", "exec sleep 60"], tmp_path).wait(timeout=30) == 128 + 9


def test_a_signal_reaches_all_ranks_and_rank_0_may_drain(tmp_path: Path) -> None:
    leader = "trap 'while kill -0 $(cat worker) 2>/dev/null; do sleep 0.05; done; exit 0' TERM; touch ready; "
    process = start(
        [leader + "while :; do sleep 0.05; done", "echo $$ > worker; touch also-ready; exec sleep 60"], tmp_path
    )
    while not ((tmp_path / "ready").exists() and (tmp_path / "also-ready").exists()):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0, "rank 0 ended cleanly after the worker was gone"


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    done = subprocess.run(
        [*MPIRUN, "-n", "1", "/no/such/program"], env=ENVIRON, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert "mpirun was unable to launch the specified application: /no/such/program" in done.stderr


def test_the_command_line() -> None:
    launch = parse(["--allow-run-as-root", "-x", "A=1", "-x", "HOME", "-n", "2", "a", "-n", ":", "b"], {"HOME": "/h"})
    assert launch.commands == [["a", "-n"], ["a", "-n"], ["b"]]
    assert launch.environment == {"A": "1", "HOME": "/h"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "could not find anything to do"),
        (["-n", "1"], "names no executable"),
        (["-n", "0", "a"], "needs a positive number"),
        (["--hostfile", "x", "a"], "STAND-IN mpirun does not take --hostfile"),
    ],
)
def test_other_command_lines_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(arguments, {})
