"""The user's own credentials, given to the steps as they expect them: as files."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def hub_token() -> None:
    """Point HF_TOKEN_PATH at the token: in HF_TOKEN, or where `hf auth login` left it."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    if "HF_TOKEN_PATH" in os.environ:
        return
    if token := os.environ.get("HF_TOKEN"):
        os.environ["HF_TOKEN_PATH"] = str(_written({"token": token}) / "token")
    elif (home / "token").is_file():
        os.environ["HF_TOKEN_PATH"] = str(home / "token")


def bucket_credentials() -> str | None:
    """Directory with the keys of the environment; None: there are none, and only a public bucket can be read."""
    found = {name: value for name in _AWS if (value := os.environ.get(name))}
    return str(_written(found)) if set(_AWS[:2]) <= set(found) else None


def _written(files: dict[str, str]) -> Path:
    """A directory that only the user can read, gone with the process."""
    directory = Path(tempfile.mkdtemp(prefix="llmengine-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory
