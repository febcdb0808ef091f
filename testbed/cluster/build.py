"""Builds the cluster's programs from Go modules, once for each content of the sources.

Everything comes from one Go module, kube/, and one `go build`, so that the programs share what they have in common.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from testbed.cluster import images
from testbed.cluster.errors import ClusterError
from testbed.cluster.locking import locked
from testbed.cluster.paths import PACKAGE, cache
from testbed.cluster.processes import run
from testbed.progress import PROGRESS

SOURCES = PACKAGE / "kube"
EXTRAS = {
    "kwok": "sigs.k8s.io/kwok/cmd/kwok@v0.8.0",
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
}
"""Programs that only some tests need; `build --with NAME` adds them."""
TAGS = "no_btrfs,no_zfs,no_devmapper,no_tracing"
# Measured on k8s.io/api/core/v1: no debugging information saves 8 % of the compiler's time, and fewer collections of
# its garbage 25 % more.
COMPILER_FLAGS = "all=-dwarf=false"
GARBAGE_COLLECTION_PERCENT = "400"
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
BUILD_SECONDS = 3600
KEPT_BUILDS = 2
"""Counting the newest; what is older goes when a new one is built."""
_CONTENT_HASH_CHARACTERS = 20


@dataclass(frozen=True)
class Programs:
    """A directory of built programs."""

    directory: Path

    @property
    def kube(self) -> Path:
        """Every component of Kubernetes, DNS and the GPU device plugin: the first argument says which."""
        return self.directory / "kube"

    @property
    def ctr(self) -> Path:
        return self.directory / "ctr"

    @property
    def helm(self) -> Path:
        return self.directory / "helm"

    @property
    def cni(self) -> Path:
        return self.directory / "cni"

    @property
    def pause_archive(self) -> Path:
        return self.directory / "pause.oci"

    @property
    def probe_archive(self) -> Path:
        return self.directory / "probe.oci"


def programs() -> Programs:
    """The programs, built where the cache does not have them for these sources."""
    built = Programs(cache() / "programs" / _content_hash() / "bin")
    if built.directory.is_dir():
        return built
    _require_go()
    with locked("build"):
        if not built.directory.is_dir():
            _build(built)
            _remove_old_builds(built.directory.parent.parent)
    return built


def build_extra(name: str) -> Path:
    """One of `EXTRAS`, built where the cache does not have it."""
    if name not in EXTRAS:
        raise ClusterError(f"no extra program is called {name}: there is {', '.join(EXTRAS)}")
    package = EXTRAS[name]
    directory = cache() / "programs" / package.replace("/", "_")
    if not (directory / name).is_file():
        _require_go()
        with locked("build"), PROGRESS.step(f"Build {name}"):
            environment = ("CGO_ENABLED=0", f"GOBIN={directory}")
            install = ("go", "install", "-trimpath", "-ldflags=-s -w", package)
            run("env", *environment, *install, timeout_seconds=BUILD_SECONDS)
    return directory / name


def kubernetes_version() -> str:
    """Of the pinned module: v1.36.2."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    if found is None:
        raise ClusterError(f"{SOURCES / 'go.mod'} names no k8s.io/kubernetes")
    return found.group(1)


def _content_hash() -> str:
    """Of all that decides what the build makes."""
    machine = os.uname().machine
    digest = hashlib.sha256(f"{machine} {TAGS} {COMPILER_FLAGS}".encode())
    for path in sorted((*SOURCES.rglob("*.go"), SOURCES / "go.mod", SOURCES / "go.sum")):
        digest.update(f"\n{path.relative_to(SOURCES)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:_CONTENT_HASH_CHARACTERS]


def _build(built: Programs) -> None:
    version = kubernetes_version()
    _, major, minor = re.split(r"[v.]", version)[:3]
    # Without these kubectl cannot make sense of the server's version.
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamped = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items())
    parent = built.directory.parent
    parent.mkdir(parents=True, exist_ok=True)
    # A build that was killed left this behind; the lock says that nobody is at it.
    for stale in parent.glob("bin.*"):
        shutil.rmtree(stale)
    directory = Path(tempfile.mkdtemp(prefix="bin.", dir=parent))
    with PROGRESS.step("Download the Go modules"):
        _go("mod", "download")
    packages = [".", "./pause", "./probe", *_go("list", "-f", "{{.ImportPath}}", "tool").split()]
    command = ["build", "-v", "-trimpath", f"-tags={TAGS}", f"-gcflags={COMPILER_FLAGS}", f"-ldflags=-s -w {stamped}"]
    with PROGRESS.step("Build the cluster's programs (some minutes where nothing is cached)") as progress:
        total = len(_go("list", f"-tags={TAGS}", "-deps", *packages).split())
        process = subprocess.Popen(
            ["go", *command, "-o", f"{directory}/", *packages],
            cwd=SOURCES,
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        timer = threading.Timer(BUILD_SECONDS, process.kill)
        timer.start()
        compiled = 0
        complaints: list[str] = []
        assert process.stderr is not None
        try:
            for line in process.stderr:
                # -v prints a package's path when it is compiled; all else is a complaint.
                if re.fullmatch(r"[\w./~-]+\n", line):
                    compiled += 1
                    progress.update(compiled, total)
                else:
                    complaints.append(line)
            if process.wait() != 0:
                raise ClusterError(f"go build failed: {''.join(complaints)[-2000:].strip()}")
        finally:
            timer.cancel()
            process.kill()
            process.wait()
        (directory / "localcluster").rename(directory / "kube")
    (directory / "cni").mkdir()
    for plugin in CNI_PLUGINS:
        (directory / plugin).rename(directory / "cni" / plugin)
    images.write_static(directory / "pause", images.PAUSE_IMAGE, directory / "pause.oci")
    images.write_static(directory / "probe", images.PROBE_IMAGE, directory / "probe.oci")
    directory.chmod(0o755)
    directory.rename(built.directory)


def _remove_old_builds(programs_directory: Path) -> None:
    """All but the newest few; extra programs stay."""
    builds = [
        d for d in programs_directory.iterdir() if re.fullmatch(rf"[0-9a-f]{{{_CONTENT_HASH_CHARACTERS}}}", d.name)
    ]
    for old in sorted(builds, key=lambda d: d.stat().st_mtime, reverse=True)[KEPT_BUILDS:]:
        shutil.rmtree(old)


def _require_go() -> None:
    wanted = re.search(r"^go (\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    if shutil.which("go") is None:
        version = wanted.group(1) if wanted else ""
        raise ClusterError(f"Go {version} or later is needed to build the cluster's programs: see https://go.dev/dl")


def _environment() -> dict[str, str]:
    return os.environ | {"CGO_ENABLED": "0", "GOGC": GARBAGE_COLLECTION_PERCENT, "GOFLAGS": "-buildvcs=false"}


def _go(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["go", *arguments],
            cwd=SOURCES,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`go {arguments[0]}` did not end within {BUILD_SECONDS} s") from error
    if done.returncode != 0:
        raise ClusterError(f"`go {' '.join(arguments[:2])}` failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
