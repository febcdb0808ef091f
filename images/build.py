"""Builds the images that are out of date, beside each other where they do not depend on each other."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from images import base, buildah, content, oci, smollm2, tools, wheels
from images.definitions import IMAGES, ImageDefinition
from images.errors import BuildError
from images.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
"""The repository's root."""

_BASE = "base"
_KEPT_BUILDS = 2
"""Of each image, counting the newest; what is older goes when a new one is built."""
_LOCK_SECONDS = 1200
_PARALLEL_BUILDS = 2


@dataclass(frozen=True)
class BuiltImage:
    """An image in the cache."""

    name: str
    reference: str
    digest: str
    archive: str
    """Absolute path of the OCI archive."""
    size_bytes: int
    layers: tuple[str, ...]
    key: str
    """Of everything it was built from."""


def cache_directory() -> Path:
    """Where images are kept: under XDG_CACHE_HOME, by default ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "llmengine-operator" / "images"


class Cache:
    """The built images in a directory, each found by the hash of what it was built from."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, name: str, key: str) -> BuiltImage | None:
        """The image `name` built from what `key` stands for, if it is there whole."""
        try:
            record = json.loads(self._record(name, key).read_text())
        except FileNotFoundError:
            return None
        image = BuiltImage(**{**record, "layers": tuple(record["layers"]), "archive": str(self.archive(name, key))})
        archive = Path(image.archive)
        return image if archive.is_file() and archive.stat().st_size == image.size_bytes else None

    def add(self, name: str, key: str, archive: Path) -> BuiltImage:
        """Take over a finished archive; older builds of `name` beyond the few that are kept go."""
        image = oci.read(archive)
        built = BuiltImage(
            name=name,
            reference=image.reference,
            digest=image.digest,
            archive=str(self.archive(name, key)),
            size_bytes=archive.stat().st_size,
            layers=image.layers,
            key=key,
        )
        archive.replace(built.archive)
        record = self._record(name, key)
        partial = record.with_suffix(".part")
        partial.write_text(json.dumps(asdict(built), indent=2))
        partial.replace(record)
        records = sorted(self.directory.glob(f"{name}@*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for outdated in records[_KEPT_BUILDS:]:
            outdated.unlink()
            outdated.with_suffix(".tar").unlink(missing_ok=True)
        return built

    def archive(self, name: str, key: str) -> Path:
        return self._record(name, key).with_suffix(".tar")

    def _record(self, name: str, key: str) -> Path:
        return self.directory / f"{name}@{key[:20]}.json"

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[Path]:
        """Hold the cache alone; yields an empty work directory that is gone afterwards.

        Raises:
            BuildError: another build does not end in time.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        work = self.directory / "work"
        with (self.directory / "lock").open("w") as lock:
            deadline = time.monotonic() + _LOCK_SECONDS
            with progress.step("wait for the cache"):
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        if time.monotonic() > deadline:
                            raise BuildError(
                                f"another build has held {lock.name} for {_LOCK_SECONDS} s; end it and try again"
                            ) from None
                        time.sleep(0.5)
            # Left by a build that was killed: only the holder of the lock works here.
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)


def base_key(root: Path) -> str:
    """Of what the base image is made from. Debian's packages are those of the day it is bootstrapped."""
    recipe = ("images/base.py", "images/oci.py", base.REQUIREMENTS)
    return content.key_of({"files": content.fingerprint(content.files_of(root, recipe))})


def model_key(root: Path) -> str:
    """Of what the model is made from."""
    recipe = ("images/smollm2", smollm2.REQUIREMENTS)
    return content.key_of({"files": content.fingerprint(content.files_of(root, recipe))})


def image_key(root: Path, image: ImageDefinition, base_digest: str) -> str:
    """Of everything that goes into `image`, the base's digest included."""
    recipe = content.files_of(root, ("images/buildah.py", "images/wheels.py"))
    return content.key_of(
        {
            "reference": image.reference,
            "base": base_digest,
            "files": content.fingerprint(image_files(root, image) | recipe),
            "model": model_key(root) if image.model_directory else None,
        }
    )


def image_files(root: Path, image: ImageDefinition) -> dict[str, Path]:
    """The files of the repository that `image` is built from, by their path in the build's context."""
    return content.files_of(root, (image.containerfile, image.requirements, *image.sources))


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


class _Build:
    """One run of what is missing, with the cache's lock held."""

    def __init__(self, cache: Cache, progress: Progress, root: Path, work: Path) -> None:
        self._cache = cache
        self._progress = progress
        self._root = root
        self._work = work

    def run(self, images: Sequence[ImageDefinition]) -> dict[str, BuiltImage]:
        with ThreadPoolExecutor(max_workers=_PARALLEL_BUILDS + 1) as pool:
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
            if image.model_directory and not self._model().is_dir():
                with self._progress.step(f"{image.name}: convert the model"):
                    self._convert()

    def _download(self, image: ImageDefinition) -> None:
        work = self._directory(f"{image.name}-wheels")
        wheels.download(self._root / image.requirements, work / "wheels", self._log(f"{image.name}-packages"))
        self._wheels(image).parent.mkdir(exist_ok=True)
        (work / "wheels").replace(self._wheels(image))

    def _convert(self) -> None:
        work = self._directory("smollm2")
        smollm2.make(self._root, work / "model", work, self._log("smollm2"))
        self._model().parent.mkdir(exist_ok=True)
        (work / "model").replace(self._model())

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
                content.stage(content.files_of(self._model(), (".",)), context / image.model_directory)
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

    def _model(self) -> Path:
        return self._cache.directory / "models" / f"smollm2-{model_key(self._root)[:20]}"

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
