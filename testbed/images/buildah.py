"""Builds a Containerfile into an OCI archive with buildah, with no network and the same digest each time."""

from __future__ import annotations

from pathlib import Path

from testbed.images.tools import run

_BUILD_SECONDS = 600
_PIP_CONFIGURATION = "[global]\nno-index = true\nfind-links = /root/wheels\n"


def build(
    *,
    containerfile: Path,
    context: Path,
    base: Path,
    wheels: Path,
    reference: str,
    archive: Path,
    work: Path,
    log: Path,
) -> None:
    """Build `containerfile` on the image in the archive `base`; write the image `reference` to `archive`.

    pip inside the build finds the files of the directory `wheels` and nothing else: they and its configuration are
    mounted over /root, which exists in any base image, so that the build leaves no trace of them. `work` is an empty
    directory for buildah's storage.

    Raises:
        BuildError: the build failed; with the end of its output.
    """
    home = work / "home"
    configuration = home / ".config" / "pip" / "pip.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(_PIP_CONFIGURATION)
    (home / "wheels").mkdir()
    for wheel in wheels.glob("*.whl"):
        (home / "wheels" / wheel.name).hardlink_to(wheel)
    command: list[str | Path] = [
        # A mount namespace of its own: whatever ends the build, no mount outlives it.
        *("unshare", "--mount", "--propagation", "private"),
        *("buildah", "--root", work / "storage", "--runroot", work / "run", "--storage-driver", "overlay", "build"),
        *("--isolation", "chroot", "--network", "host", "--format", "oci"),
        # One layer on the base's, with all time stamps 0: the digest depends on the content alone.
        *("--layers=false", "--timestamp", "0"),
        *("--volume", f"{home}:/root:ro"),
        *("--build-arg", f"BASE=oci-archive:{base}", "--file", containerfile),
        *("--tag", f"oci-archive:{archive}:{reference}", context),
    ]
    run(command, log=log, timeout_seconds=_BUILD_SECONDS, environment={"TMPDIR": str(work)})
