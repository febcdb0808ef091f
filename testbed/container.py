"""Runs commands in the toolchain stand-in's image without a cluster: its layers unpacked, namespaces of its own."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from testbed.images.cache import BuiltImage

# Its arguments: the root directory, then mounts as `source:target`, then `--` and the command. Run by unshare with a
# new mount and process namespace, so that everything started in it ends with it and nothing stays mounted.
_ENTER = """
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs tmpfs "$root/tmp"
while [ "$1" != -- ]; do mkdir -p "$root/${1#*:}"; mount --bind "${1%%:*}" "$root/${1#*:}"; shift; done
shift
exec chroot "$root" "$@"
"""


def unpack(image: BuiltImage, root: Path) -> None:
    """Lay the image's layers over each other in the new directory `root`."""
    root.mkdir()
    with tarfile.open(image.archive) as archive:
        for digest in image.layers:
            layer = archive.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
            assert layer is not None
            with tarfile.open(fileobj=layer) as files:
                files.extractall(root, filter="fully_trusted")  # noqa: S202 (our own image)


@dataclass(frozen=True)
class Container:
    """The unpacked image, and the directories that are mounted into it under other names."""

    root: Path
    mounts: Mapping[str, Path]

    def command(self, words: Sequence[str]) -> list[str]:
        mounts = [f"{source}:{target}" for target, source in self.mounts.items()]
        enter = ["sh", "-euc", _ENTER, "enter", str(self.root), *mounts, "--", *words]
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", *enter]

    def environment(self, gpus: Sequence[Mapping[str, object]]) -> dict[str, str]:
        path = "/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environ = {"PATH": path, "HOME": "/tmp"}
        return environ | {"LLMENGINE_STANDIN_GPUS": json.dumps(gpus)} if gpus else environ

    def run(self, *words: str, gpus: Sequence[Mapping[str, object]] = ()) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(words), env=self.environment(gpus), capture_output=True, text=True, timeout=120, check=False
        )

    def start(self, *words: str, gpus: Sequence[Mapping[str, object]] = (), log: IO[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(words), env=self.environment(gpus), stdout=log, stderr=subprocess.STDOUT, text=True
        )
