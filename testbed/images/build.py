"""Builds the images that are out of date, beside each other where they do not depend on each other."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from testbed import smollm2
from testbed.images import base, buildah, content, tools, wheels
from testbed.images.cache import BuiltImage, Cache
from testbed.images.definitions import IMAGES, ImageDefinition
from testbed.images.errors import BuildError
from testbed.images.keys import base_key, image_files, image_key, model_key
from testbed.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
"""The repository's root."""

_BASE = "base"
_PARALLEL_STEPS = 3


def select(names: Sequence[str]) -> list[ImageDefinition]:
    """The images called `names`; all for none.

    Raises:
        BuildError: there is no image of one of the names.
    """
    known = {image.name: image for image in IMAGES}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise BuildError(f"no image is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in known if not names or name in names]


def find_all(cache: Cache, images: Sequence[ImageDefinition], root: Path = ROOT) -> dict[str, BuiltImage | None]:
    """Per name the image that is up to date, or None; `base` is one of them."""
    found: dict[str, BuiltImage | None] = {_BASE: cache.find(_BASE, base_key(root))}
    debian = found[_BASE]
    for image in images:
        found[image.name] = cache.find(image.name, image_key(root, image, debian.digest)) if debian else None
    return found


def build_all(
    cache: Cache, images: Sequence[ImageDefinition], progress: Progress, root: Path = ROOT
) -> dict[str, BuiltImage]:
    """Build those of `images`, and their base, that are not up to date.

    Raises:
        BuildError: what is needed is missing, or a step failed.
    """
    found = find_all(cache, images, root)
    if all(found.values()):
        return {name: image for name, image in found.items() if image}
    tools.ensure(tuple(tools.DEBIAN_PACKAGES), progress)
    with cache.locked(progress) as work:
        return _Build(cache, progress, root, work).run(images)


def ensure_model(cache: Cache, progress: Progress, root: Path = ROOT) -> Path:
    """The directory with the checkpoint that the hub serves; made if it is not there.

    Raises:
        BuildError: it cannot be made.
    """
    path = model_path(cache, root)
    if not path.is_dir():
        with cache.locked(progress) as work:
            _Build(cache, progress, root, work).convert()
    return path


def model_path(cache: Cache, root: Path) -> Path:
    """Where the checkpoint made from `root`'s recipe is kept."""
    return cache.directory / "models" / f"smollm2-{model_key(root)[:20]}"


class _Build:
    """One run of what is missing, with the cache's lock held."""

    def __init__(self, cache: Cache, progress: Progress, root: Path, work: Path) -> None:
        self._cache = cache
        self._progress = progress
        self._root = root
        self._work = work

    def run(self, images: Sequence[ImageDefinition]) -> dict[str, BuiltImage]:
        with ThreadPoolExecutor(max_workers=_PARALLEL_STEPS) as pool:
            # What needs no base goes on beside the bootstrap.
            debian = pool.submit(self._base)
            inputs = pool.submit(self._fetch, images)
            _all_done([debian, inputs])
            built = {_BASE: debian.result()}
            builds = {image.name: pool.submit(self._image, image, debian.result()) for image in images}
            _all_done(list(builds.values()))
            return built | {name: future.result() for name, future in builds.items()}

    def _base(self) -> BuiltImage:
        key = base_key(self._root)
        found = self._cache.find(_BASE, key)
        if found:
            return found
        work = self._directory(_BASE)
        archive = work / "image.tar"
        with self._progress.step("base: bootstrap Debian with Python"):
            base.build(self._root, archive, work, self._log(_BASE))
        return self._cache.add(_BASE, key, archive)

    def _fetch(self, images: Sequence[ImageDefinition]) -> None:
        debian = self._cache.find(_BASE, base_key(self._root))
        for image in images:
            if debian and self._cache.find(image.name, image_key(self._root, image, debian.digest)):
                continue
            if not self._wheels(image).is_dir():
                with self._progress.step(f"{image.name}: download packages"):
                    self._download(image)
            if image.model_directory:
                self.convert()

    def _download(self, image: ImageDefinition) -> None:
        work = self._directory(f"{image.name}-wheels")
        wheels.download(self._root / image.requirements, work / "wheels", self._log(f"{image.name}-packages"))
        self._wheels(image).parent.mkdir(exist_ok=True)
        (work / "wheels").replace(self._wheels(image))

    def convert(self) -> None:
        """Make the model's checkpoint if it is not there."""
        path = model_path(self._cache, self._root)
        if path.is_dir():
            return
        with self._progress.step("convert the model SmolLM2-135M-Instruct"):
            work = self._directory("smollm2")
            smollm2.make(self._root, work / "model", work, self._log("smollm2"))
            path.parent.mkdir(exist_ok=True)
            (work / "model").replace(path)

    def _image(self, image: ImageDefinition, debian: BuiltImage) -> BuiltImage:
        key = image_key(self._root, image, debian.digest)
        found = self._cache.find(image.name, key)
        if found:
            return found
        work = self._directory(image.name)
        context, archive = work / "context", work / "image.tar"
        context.mkdir()
        with self._progress.step(f"{image.name}: build"):
            content.stage(image_files(self._root, image), context)
            copied = content.fingerprint(image_files(context, image))
            unchanged = copied == content.fingerprint(image_files(self._root, image))
            if not unchanged or image_key(self._root, image, debian.digest) != key:
                raise BuildError(f"{image.name}: its sources changed while it was being built; build it again")
            if image.model_directory:
                content.stage(
                    content.files_of(model_path(self._cache, self._root), (".",)), context / image.model_directory
                )
            buildah.build(
                containerfile=context / image.containerfile,
                context=context,
                base=Path(debian.archive),
                wheels=self._wheels(image),
                reference=image.reference,
                archive=archive,
                work=work,
                log=self._log(image.name),
            )
        built = self._cache.add(image.name, key, archive)
        shutil.rmtree(work)
        return built

    def _wheels(self, image: ImageDefinition) -> Path:
        requirements = content.sha256_of(self._root / image.requirements)
        return self._cache.directory / "wheels" / f"{image.name}-{requirements[:20]}"

    def _log(self, name: str) -> Path:
        return self._cache.directory / "logs" / f"{name}.log"

    def _directory(self, name: str) -> Path:
        directory = self._work / name
        directory.mkdir()
        return directory


def _all_done(futures: Sequence[Future[Any]]) -> None:
    """Wait for all of `futures`; raise the first failure as soon as it is one."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()
