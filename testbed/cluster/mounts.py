"""Which mounts there are, as the kernel says: a bind mount within one file system looks like no mount to `stat`."""

from __future__ import annotations

from pathlib import Path

from testbed.cluster.processes import run


def points() -> list[Path]:
    """Every mount point of this mount namespace, in the order of mounting; a point may be listed several times."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [Path(line.split()[1].encode().decode("unicode_escape")) for line in lines]


def mounted(path: Path) -> bool:
    return path in points()


def unmount_below(directory: Path) -> None:
    """Unmounts all that is mounted below a directory, last first."""
    for point in reversed(points()):
        if point.is_relative_to(directory):
            run("umount", "--lazy", point)
