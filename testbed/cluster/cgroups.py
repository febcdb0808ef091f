"""The cluster's cgroups, on cgroup v1 (hybrid) and v2 machines.

Every process of the cluster is in a group below `llmengine`, containers included. So membership says what runs, and
killing a group's members ends a node however it was started; no process id is kept in a file.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.cluster.errors import ClusterError
from testbed.cluster.waiting import wait_until

ROOT = Path("/sys/fs/cgroup")
KILL_SECONDS = 20
FREEZE_SECONDS = 10


def unified() -> bool:
    """Whether this is a cgroup v2 machine."""
    return (ROOT / "cgroup.controllers").is_file()


@dataclass(frozen=True)
class Group:
    """A group by its path below the root, such as `llmengine/nodes/a100`; the same in every v1 hierarchy."""

    path: str

    def child(self, name: str) -> Group:
        return Group(f"{self.path}/{name}")

    def create(self) -> None:
        for hierarchy in _hierarchies():
            parent = hierarchy
            for part in self.path.split("/"):
                if unified():
                    _delegate(parent)
                directory = parent / part
                directory.mkdir(exist_ok=True)
                # A v1 cpuset takes no process before it is told its processors.
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    wanted, present = parent / setting, directory / setting
                    if not unified() and wanted.is_file() and not present.read_text().strip():
                        present.write_text(wanted.read_text())
                parent = directory

    def join(self) -> None:
        """Moves the calling process into the group."""
        for hierarchy in _hierarchies():
            (hierarchy / self.path / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self) -> list[int]:
        """Processes in the group and below it."""
        found: list[int] = []
        for directory in _below(_membership() / self.path):
            try:
                found += [int(line) for line in (directory / "cgroup.procs").read_text().split()]
            except OSError:  # removed meanwhile
                continue
        return found

    @property
    def populated(self) -> bool:
        return bool(self.pids())

    @property
    def frozen(self) -> bool:
        base = _membership() / self.path
        try:
            if unified():
                return (base / "cgroup.freeze").read_text().strip() == "1"
            return (base / "freezer.state").read_text().strip() != "THAWED"
        except OSError:
            return False

    def freeze(self, frozen: bool = True) -> None:
        """Stops every process of the group at once, as a hung machine would, or lets them go on."""
        base = _membership() / self.path
        if unified():
            (base / "cgroup.freeze").write_text(str(int(frozen)))
            return
        state = "FROZEN" if frozen else "THAWED"

        def settled() -> bool:
            # The kernel may say FREEZING for a while, and wants to be asked again.
            (base / "freezer.state").write_text(state)
            return (base / "freezer.state").read_text().strip() == state

        wait_until(settled, FREEZE_SECONDS, f"the processes of {self.path} to be {state.lower()}")

    def kill(self) -> None:
        """Ends every process of the group and below it."""
        if self.frozen:
            self.freeze(False)

        def dead() -> bool:
            for pid in self.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return not self.populated

        wait_until(dead, KILL_SECONDS, f"the processes of {self.path} to end", interval_seconds=0.05)

    def remove(self) -> None:
        """Removes the group and those below it from every hierarchy; they must be empty."""
        for hierarchy in _hierarchies():
            for directory in reversed(list(_below(hierarchy / self.path))):
                # A process that has just ended may hold its group for a moment.
                wait_until(partial(_removed, directory), KILL_SECONDS, f"{directory} to be empty")


CLUSTER = Group("llmengine")
CONTROL_PLANE = CLUSTER.child("control-plane")
NODES = CLUSTER.child("nodes")


def _hierarchies() -> list[Path]:
    if unified():
        return [ROOT]
    return [entry for entry in sorted(ROOT.iterdir()) if not entry.is_symlink() and (entry / "cgroup.procs").is_file()]


def _membership() -> Path:
    """The hierarchy asked for members: on v1 the freezer's, where containers are as well."""
    return ROOT if unified() else ROOT / "freezer"


def _below(directory: Path) -> Iterator[Path]:
    """A directory and those below it, parents first."""
    try:
        children = [entry for entry in directory.iterdir() if entry.is_dir()]
    except OSError:
        return
    yield directory
    for child in children:
        yield from _below(child)


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    return True


def _delegate(directory: Path) -> None:
    """Hands every controller on to the groups below (v2)."""
    available = (directory / "cgroup.controllers").read_text().split()
    enabled = (directory / "cgroup.subtree_control").read_text().split()
    for controller in available:
        if controller in enabled:
            continue
        try:
            (directory / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise ClusterError(
                    f"cgroup {directory} holds processes, so it cannot hand controllers on: this is a container with "
                    "cgroups of its own; start it with --cgroupns=host, or set KUBECONFIG to use an existing cluster"
                ) from error
            raise
