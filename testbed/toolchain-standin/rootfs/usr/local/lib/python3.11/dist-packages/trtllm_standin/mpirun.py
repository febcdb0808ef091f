"""`mpirun` of the stand-in: starts the ranks of one machine, passes signals on, ends when they end.

Of Open MPI's command line it takes what a single node needs: `--allow-run-as-root`, `--oversubscribe`,
`-x NAME[=VALUE]` and application contexts `-n N COMMAND...` separated by `:`. There is no message passing: rank 0's
process computes every rank's shard itself.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import HELP_EPILOG

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
KILL_AFTER_SECONDS = 10.0
EXIT_BAD_USAGE = 1


class UsageError(Exception):
    """The command line is not one that the stand-in takes."""


@dataclass
class Launch:
    """One command per rank, in rank order, and what `-x` adds to every rank's environment."""

    commands: list[list[str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Launch:
    """The launch that a command line means; a `:` at either end is ignored, as launch_triton_server.py leaves one."""
    launch = Launch()
    contexts: list[list[str]] = [[]]
    for argument in arguments:
        if argument == ":":
            contexts.append([])
        else:
            contexts[-1].append(argument)
    for context in filter(None, contexts):
        count, position = 1, 0
        while position < len(context) and context[position].startswith("-"):
            option = context[position]
            position += 1
            if option in ("--allow-run-as-root", "--oversubscribe"):
                continue
            if option not in ("-n", "-np", "--n", "--np", "-x") or position == len(context):
                raise UsageError(f"STAND-IN mpirun does not take {option}")
            value = context[position]
            position += 1
            if option == "-x":
                name, separator, text = value.partition("=")
                if separator or name in environ:
                    launch.environment[name] = text if separator else environ[name]
            elif value.isdigit() and int(value) > 0:
                count = int(value)
            else:
                raise UsageError(f"mpirun: {option} needs a positive number, got {value!r}")
        if position == len(context):
            raise UsageError("mpirun could not find anything to do: an application context names no executable")
        launch.commands += [context[position:]] * count
    if not launch.commands:
        raise UsageError("mpirun could not find anything to do")
    return launch


def run(launch: Launch, environ: Mapping[str, str]) -> int:
    """Run all ranks to their end.

    The status is rank 0's when it is the first to end (the others then get SIGTERM, which stands for the leader's
    shutdown message), else that of the first rank that failed; 128 + n for a rank killed by signal n. After a signal
    to end, rank 0 alone counts: it may drain while the others are gone already.
    """
    world = len(launch.commands)
    # Blocked from before the first fork until handlers are in place, so that no signal is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    ranks: list[subprocess.Popen[bytes]] = []
    for rank, command in enumerate(launch.commands):
        environment = {
            **environ,
            **launch.environment,
            "OMPI_COMM_WORLD_SIZE": str(world),
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(world),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        }
        try:
            ranks.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {*FORWARDED, signal.SIGCHLD}),
                )
            )
        except OSError as error:
            print(f"mpirun was unable to launch the specified application: {command[0]}: {error}", file=sys.stderr)
            _terminate(ranks)
            return 1

    ending = False
    while True:
        received = signal.sigwait({*FORWARDED, signal.SIGCHLD})
        if received in FORWARDED:
            ending = ending or received in (signal.SIGTERM, signal.SIGINT)
            for process in ranks:
                if process.poll() is None:
                    process.send_signal(received)
            continue
        ended = {rank: process.poll() for rank, process in enumerate(ranks) if process.poll() is not None}
        failed = next((rank for rank, status in ended.items() if status), None)
        if failed is not None and 0 not in ended and not ending:
            print(
                "mpirun (STAND-IN): Primary job terminated normally, but 1 process returned a non-zero exit code. "
                f"Rank {failed} ended with {_exit_status(ranks[failed])}; the job is aborted.",
                file=sys.stderr,
            )
            _terminate(ranks)
            return _exit_status(ranks[failed])
        if 0 in ended:
            _terminate(ranks)
            return _exit_status(ranks[0])


def _exit_status(process: "subprocess.Popen[bytes]") -> int:
    status = process.returncode
    return 128 - status if status < 0 else status


def _terminate(ranks: Sequence["subprocess.Popen[bytes]"]) -> None:
    """SIGTERM to those that still run, SIGKILL to those that ignore it for KILL_AFTER_SECONDS."""
    for process in ranks:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + KILL_AFTER_SECONDS
    for process in ranks:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(arguments: Sequence[str]) -> int:
    if any(argument in ("-h", "--help") for argument in arguments):
        print(f"{__doc__}\n{HELP_EPILOG}")
        return 0
    if "--version" in arguments:
        print(f"mpirun (STAND-IN) 4.1\n{HELP_EPILOG}")
        return 0
    try:
        launch = parse(arguments, os.environ)
    except UsageError as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_USAGE
    return run(launch, os.environ)
