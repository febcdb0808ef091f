"""Fetches the wheels that hash-pinned requirements name, so that a build step needs no network.

The machine's own pip fetches them, set up as it is for this machine; nothing of that set-up gets into an image.
"""

from __future__ import annotations

import sys
from pathlib import Path

from packaging.requirements import Requirement

from testbed.images.tools import run

PYTHON = (3, 11)
"""The Python of the Debian base image."""
_GLIBC_MINOR = 36
"""bookworm's glibc 2.36: wheels for it or any older one fit."""
_OLDER_PLATFORMS = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")
"""Names that wheels for old versions of glibc go by."""
_DOWNLOAD_SECONDS = 600


def applicable(requirements: str) -> str:
    """The entries of a requirements file that apply to the base image, whatever Python reads it here."""
    version = ".".join(map(str, PYTHON))
    environment = {
        "python_version": version,
        "python_full_version": f"{version}.2",
        "implementation_name": "cpython",
        "implementation_version": f"{version}.2",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
    }
    kept = []
    for entry in requirements.replace("\\\n", " ").splitlines():
        pin, *hashes = entry.split("--hash=")
        if not pin.strip() or pin.startswith("#"):
            continue
        requirement = Requirement(pin.strip())
        if requirement.marker is None or requirement.marker.evaluate(environment):
            requirement.marker = None
            kept.append(" ".join([str(requirement), *(f"--hash={value.strip()}" for value in hashes)]))
    return "".join(f"{line}\n" for line in kept)


def download(requirements: Path, directory: Path, log: Path) -> None:
    """Put the wheels of `requirements` into the new directory `directory`, checked against their hashes.

    Raises:
        BuildError: one cannot be had, or is not what was pinned.
    """
    directory.mkdir(parents=True)
    filtered = directory / "requirements.txt"
    filtered.write_text(applicable(requirements.read_text()))
    glibc = [f"manylinux_2_{minor}_x86_64" for minor in range(_GLIBC_MINOR, 4, -1)]
    command: list[str | Path] = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"),
        *("--implementation", "cp", "--python-version", ".".join(map(str, PYTHON))),
        *(f"--platform={platform}" for platform in (*glibc, *_OLDER_PLATFORMS)),
        *("--dest", directory, "--requirement", filtered),
    ]
    run(command, log=log, timeout_seconds=_DOWNLOAD_SECONDS)
