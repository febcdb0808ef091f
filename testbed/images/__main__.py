"""`python -m testbed.images`: build the images, or list those that are built."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from testbed.hub import repository
from testbed.images.build import build_all, ensure_model, find_all, select
from testbed.images.cache import Cache, cache_directory
from testbed.images.definitions import MODEL
from testbed.images.errors import BuildError
from testbed.progress import PROGRESS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, or 1 after one message that says what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m testbed.images", description="Build the container images.")
    parser.add_argument("--cache", type=Path, default=cache_directory(), help="directory of the images (%(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build what is missing or out of date, then list")
    listing = commands.add_parser("list", help="print name, reference, digest and archive of each image as JSON")
    commands.add_parser("model", help="make the model that the hub serves; print its directory and commit as JSON")
    for command in (build, listing):
        command.add_argument("--only", default="", metavar="NAME[,NAME]", help="these images alone")
    options = parser.parse_args(arguments)
    cache = Cache(options.cache.resolve())
    try:
        if options.command == "model":
            path = ensure_model(cache, PROGRESS)
            commit = repository.load(MODEL, path).commit
            print(json.dumps({"repository": MODEL, "commit": commit, "directory": str(path)}, indent=2))
            return 0
        images = select([name for name in options.only.split(",") if name])
        listed = options.command == "list"
        found = find_all(cache, images) if listed else dict(build_all(cache, images, PROGRESS))
    except BuildError as error:
        return _fail(str(error))
    missing = [name for name, image in found.items() if image is None]
    if missing:
        return _fail(f"not built, or out of date: {', '.join(missing)}; run: python -m testbed.images build")
    print(json.dumps({name: asdict(image) for name, image in found.items() if image}, indent=2))
    return 0


def _fail(message: str) -> int:
    print(f"images: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
