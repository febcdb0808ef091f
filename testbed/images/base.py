"""The local base image: Debian bookworm with Python and pip, bootstrapped from Debian's packages.

It stands where python:3.12-slim stands in the world and offers the same: python3 with its shared library, a pip that
installs into the system's site-packages, and CA certificates.
"""

from __future__ import annotations

from pathlib import Path

from testbed.images import oci, wheels
from testbed.images.tools import run

REFERENCE = "docker.io/llmengine/debian-python:bookworm"
REQUIREMENTS = "requirements/base.txt"

_SUITE = "bookworm"
_PACKAGES = ("ca-certificates", "libpython3.11", "python3")
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")
_SITE_PACKAGES = "usr/local/lib/python3.11/dist-packages"
_EPOCH = "0"
"""Time stamp of every file. It also makes Python's own packages compile to .pyc files that are checked by hash,
which stay valid when an image build changes time stamps."""
_CONFIG = {
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
    "Cmd": ["python3"],
    "Labels": {"org.opencontainers.image.description": "Debian bookworm with Python 3.11, bootstrapped locally"},
}
_BOOTSTRAP_SECONDS = 600


def build(root: Path, archive: Path, work: Path, log: Path) -> None:
    """Bootstrap the base image into `archive`; `root` is the repository's, `work` an empty directory.

    Raises:
        BuildError: Debian's packages or pip cannot be had.
    """
    pip_wheels = work / "pip"
    wheels.download(root / REQUIREMENTS, pip_wheels, log)
    (pip_wheel,) = pip_wheels.glob("pip-*.whl")
    layer = work / "base.tar"
    command: list[str | Path] = [
        *("mmdebstrap", "--variant=minbase", "--skip=output/dev,cleanup/apt", f"--include={','.join(_PACKAGES)}"),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED),
        # pip goes where the system's own would; Debian's mark against installing beside it has no place in an image.
        f'--customize-hook=python3 -m zipfile -e {pip_wheel} "$1/{_SITE_PACKAGES}"',
        '--customize-hook=rm "$1/usr/lib/python3.11/EXTERNALLY-MANAGED"',
        f'--customize-hook=PYTHONHASHSEED=0 chroot "$1" python3 -m compileall -qf --invalidation-mode unchecked-hash'
        f" /{_SITE_PACKAGES}",
        # What differs from one bootstrap to the next and what a container gets from its runtime.
        '--customize-hook=rm -f "$1/var/log/dpkg.log" "$1/var/log/alternatives.log" "$1/var/cache/ldconfig/aux-cache"',
        '--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*',
        '--customize-hook=: > "$1/etc/hosts"; : > "$1/etc/resolv.conf"; : > "$1/etc/hostname"',
        *(_SUITE, layer),
    ]
    run(
        command,
        log=log,
        timeout_seconds=_BOOTSTRAP_SECONDS,
        environment={"SOURCE_DATE_EPOCH": _EPOCH, "TMPDIR": str(work)},
    )
    oci.write_single_layer(archive, layer, REFERENCE, _CONFIG)
