"""A model repository as the hub shows it: files with git's object ids, and a commit made of them."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LFS_PATTERNS = ("*.safetensors", "*.bin", "*.gguf")
"""Kept outside git on the hub (Git LFS): described by a pointer, addressed by SHA-256."""
_AUTHOR = "hub-standin <hub-standin@localhost> 0 +0000"


@dataclass(frozen=True)
class RepositoryFile:
    """One file."""

    path: str
    """Relative, with slashes."""
    location: Path
    size: int
    blob_id: str
    """Git's id of what git stores: of the file itself, or of its LFS pointer. 40 hexadecimal digits."""
    lfs_sha256: str | None
    """Of the contents, for a file in LFS."""
    pointer_size: int | None

    @property
    def etag(self) -> str:
        """By which clients tell versions of the file apart."""
        return self.lfs_sha256 or self.blob_id


@dataclass(frozen=True)
class Repository:
    """A model at its one commit."""

    name: str
    """`owner/model`."""
    commit: str
    files: Mapping[str, RepositoryFile]
    """By path, sorted."""


def load(name: str, directory: Path) -> Repository:
    """The repository `name` with the files under `directory`.

    Its commit is the id that git gives the same files committed without a parent by a fixed author at the epoch: it
    changes with any content and with nothing else.
    """
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    files = {file.path: file for file in (_describe(path, directory) for path in paths)}
    tree = _tree_id({file.path: file.blob_id for file in files.values()})
    message = f"tree {tree}\nauthor {_AUTHOR}\ncommitter {_AUTHOR}\n\n{name}\n"
    return Repository(name=name, commit=_git_id("commit", message.encode()), files=files)


def _describe(path: Path, root: Path) -> RepositoryFile:
    relative = path.relative_to(root).as_posix()
    size = path.stat().st_size
    if any(fnmatch.fnmatch(path.name, pattern) for pattern in _LFS_PATTERNS):
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
        return RepositoryFile(relative, path, size, _git_id("blob", pointer), sha256, len(pointer))
    return RepositoryFile(relative, path, size, _git_id("blob", path.read_bytes()), None, None)


def _tree_id(blobs: Mapping[str, str]) -> str:
    """Git's id of the directory that holds `blobs` (path -> blob id), directories included."""
    entries: dict[str, tuple[str, str]] = {}
    inner: dict[str, dict[str, str]] = {}
    for path, blob in blobs.items():
        head, slash, rest = path.partition("/")
        if slash:
            inner.setdefault(head, {})[rest] = blob
        else:
            entries[head] = ("100644", blob)
    entries |= {name: ("40000", _tree_id(children)) for name, children in inner.items()}
    # Git sorts a directory as if its name ended in a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + ("/" if item[1][0] == "40000" else ""))
    return _git_id("tree", b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(i) for name, (mode, i) in ordered))


def _git_id(kind: str, data: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
