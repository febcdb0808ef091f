"""Who may see a repository, decided and worded as the hub does."""

from __future__ import annotations

import enum
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class Visibility(enum.StrEnum):
    """What a repository asks of those who read it."""

    PUBLIC = "public"
    PRIVATE = "private"
    """Does not exist for anyone without access."""
    GATED = "gated"
    """Everyone sees what it holds; its files are for those whose request was granted."""


@dataclass(frozen=True)
class User:
    """Whom a token stands for."""

    name: str
    repositories: frozenset[str]
    """The private and gated ones that this user may read."""


@dataclass(frozen=True)
class Denial:
    """A refusal: the status and the headers X-Error-Code and X-Error-Message that clients read."""

    status: int
    message: str
    code: str | None = None


class Tokens:
    """The tokens in a JSON file: `{"hf_...": {"name": "ada", "repositories": ["owner/model"]}}`.

    Read again for each request, so that a Secret mounted at that path can change. Without the file there are none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def user(self, authorization: str | None) -> User | Denial | None:
        """The user of an Authorization header; None if there is no header; a denial if its token is not known."""
        if authorization is None:
            return None
        scheme, _, presented = authorization.partition(" ")
        for token, user in self._read().items():
            if scheme.lower() == "bearer" and hmac.compare_digest(token.encode(), presented.strip().encode()):
                return User(user["name"], frozenset(user["repositories"]))
        return Denial(401, "Invalid credentials in Authorization header")

    def _read(self) -> Mapping[str, Mapping[str, str]]:
        if self._path is None or not self._path.is_file():
            return {}
        tokens: dict[str, dict[str, str]] = json.loads(self._path.read_text())
        return tokens


def not_found(user: User | None) -> Denial:
    """What is said of a repository that is not there, or not for this user: strangers learn no difference."""
    return Denial(401 if user is None else 404, "Repository not found", "RepoNotFound")


def deny(name: str, visibility: Visibility, user: User | None, *, contents: bool) -> Denial | None:
    """Why `user` (None: nobody in particular) may not read the repository `name`; None if they may.

    `contents` tells its files from what is known about them.
    """
    if visibility is Visibility.PUBLIC or (user is not None and name in user.repositories):
        return None
    if visibility is Visibility.PRIVATE:
        return not_found(user)
    if not contents:
        return None
    if user is None:
        return Denial(
            401,
            f"Access to model {name} is restricted. You must have access to it and be authenticated to access it. "
            "Please log in.",
            "GatedRepo",
        )
    return Denial(
        403,
        f"Access to model {name} is restricted and you are not in the authorized list. Ask for access on its page.",
        "GatedRepo",
    )
