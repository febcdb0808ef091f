"""`releases`, `gpus` and `flags`: what the catalog knows."""

from __future__ import annotations

from typing import Any

from ..catalog import Catalog, Command, Release
from .errors import CliError
from .render import Output, structured, table


def show_releases(catalog: Catalog, output: Output) -> int:
    releases = [catalog.release(name) for name in catalog.release_names]
    if output != "table":
        structured([_release_object(r) for r in releases], output)
        return 0
    table(
        ("RELEASE", "STATUS", "TRITON", "TENSORRT", "CUDA", "GPUS", "NOTE"),
        [
            (r.name, r.status, r.images[0].triton if r.images else "-", r.tensorrt or "-", r.cuda or "-",
             " ".join(r.compute_capabilities) if r.status != "no-engines" else "-", r.reason)
            for r in releases
        ],
    )  # fmt: skip
    return 0


def _release_object(release: Release) -> dict[str, Any]:
    return {
        "release": release.name,
        "status": release.status,
        "reason": release.reason,
        "instead": release.instead,
        "images": [image.model_dump() for image in release.images],
        "tensorrt": release.tensorrt,
        "cuda": release.cuda,
        "driver": release.driver,
        "python": release.python,
        "computeCapabilities": list(release.compute_capabilities),
        "formats": {f.name: list(f.compute_capabilities) for f in release.formats.values()},
        "families": {f.name: list(f.architectures) for f in release.families.values() if f.command},
        "defects": [defect.text for defect in release.defects],
        "source": release.source,
    }


def show_gpus(catalog: Catalog, output: Output) -> int:
    if output != "table":
        structured([gpu.model_dump() for gpu in catalog.gpus], output)
        return 0
    table(
        ("GPU", "ARCHITECTURE", "COMPUTE", "MEMORY MiB", "LINK", "A NODE"),
        [
            (" ".join((g.name, *g.aliases)), g.architecture, g.compute_capability,
             str(g.memory_mib or "unknown"), g.link, str(g.max_gpus_per_node))
            for g in catalog.gpus
        ],
    )  # fmt: skip
    return 0


def show_flags(release: Release, command: str, output: Output) -> int:
    """Print a command's flags in a release. Raises CliError that lists the commands there are."""
    found = release.commands.get(command)
    if found is None:
        known = ", ".join(release.commands) or f"none: {release.reason}"
        raise CliError(f"release {release.name} has no command {command}; it has {known}")
    if output != "table":
        structured(_command_object(found), output)
        return 0
    table(
        ("FLAG", "TYPE", "DEFAULT", "EXTRA", "CHOICES", "NOTE"),
        [
            (
                " ".join((f.name, *f.aliases)),
                f.type,
                "-" if f.default is None else str(f.default),
                "yes" if f.extra else "",
                _wrapped(f.choices),
                f.note,
            )
            for f in found.flags.values()
        ],
    )
    return 0


def _wrapped(choices: tuple[str, ...], most: int = 8) -> str:
    """The first choices: a line stays readable, and `-o yaml` has them all."""
    return " ".join(choices[:most]) + (f" and {len(choices) - most} more" if len(choices) > most else "")


def _command_object(command: Command) -> dict[str, Any]:
    return {
        "command": command.name,
        "program": list(command.program) if command.program else None,
        "needsGpu": command.needs_gpu,
        "source": command.source,
        "flags": [
            {
                "name": f.name,
                "type": f.type,
                "default": f.default,
                "choices": list(f.choices),
                "allowedInExtraFlags": f.extra,
                "note": f.note,
            }
            for f in command.flags.values()
        ],
    }
