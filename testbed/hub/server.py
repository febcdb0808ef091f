"""The hub's routes that huggingface_hub calls to look at a model and to download it.

`python -m testbed.hub.server --repositories DIR --tokens FILE`, where DIR/<owner>/<model>/ holds the files of each.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from testbed.hub import access
from testbed.hub.access import Denial, Tokens, User, Visibility
from testbed.hub.repository import Repository, RepositoryFile, load

_BRANCH = "main"
_SETTINGS = "repositories.json"
_EPOCH = "1970-01-01T00:00:00.000Z"

_log = logging.getLogger("hub-standin")


class RefusedError(Exception):
    """Ends a request with the hub's error headers, which clients read even when there is no body (HEAD)."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(denial.message)
        self.denial = denial


class Hub:
    """Answers for a fixed set of repositories."""

    def __init__(
        self, repositories: Mapping[str, Repository], visibility: Mapping[str, Visibility], tokens: Tokens
    ) -> None:
        self._repositories = repositories
        self._visibility = visibility
        self._tokens = tokens

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(middlewares=[_errors])
        model = "/api/models/{owner}/{name}"
        application.add_routes(
            [
                web.get("/health", self._health),
                web.get("/api/whoami-v2", self._whoami),
                web.get(model, self._info),
                web.get(f"{model}/revision/{{revision}}", self._info),
                web.get(f"{model}/auth-check", self._auth_check),
                web.get(f"{model}/refs", self._refs),
                web.get(f"{model}/tree/{{revision}}", self._tree),
                web.get(f"{model}/tree/{{revision}}/{{path:.+}}", self._tree),
                web.post(f"{model}/paths-info/{{revision}}", self._paths_info),
                web.get("/{owner}/{name}/resolve/{revision}/{path:.+}", self._resolve),
                web.get("/{anything:.*}", self._unknown),
            ]
        )
        return application

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"repositories": {name: found.commit for name, found in self._repositories.items()}})

    async def _whoami(self, request: web.Request) -> web.Response:
        user = self._user(request)
        if user is None:
            raise RefusedError(Denial(401, "Invalid username or password."))
        return web.json_response({"type": "user", "name": user.name, "orgs": [], "auth": {"type": "access_token"}})

    async def _info(self, request: web.Request) -> web.Response:
        repository = self._repository(request, contents=False)
        _check_revision(request, repository)
        with_blobs = request.query.get("blobs", "").lower() == "true"
        return web.json_response(
            {
                "_id": repository.commit[:24],
                "id": repository.name,
                "modelId": repository.name,
                "author": repository.name.partition("/")[0],
                "sha": repository.commit,
                "lastModified": _EPOCH,
                "createdAt": _EPOCH,
                "private": self._visibility[repository.name] is Visibility.PRIVATE,
                "gated": "manual" if self._visibility[repository.name] is Visibility.GATED else False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": ["standin"],
                "siblings": [
                    {"rfilename": file.path, **(_blob(file) if with_blobs else {})}
                    for file in repository.files.values()
                ],
            }
        )

    async def _auth_check(self, request: web.Request) -> web.Response:
        self._repository(request, contents=True)
        return web.json_response({})

    async def _refs(self, request: web.Request) -> web.Response:
        repository = self._repository(request, contents=False)
        branch = {"name": _BRANCH, "ref": f"refs/heads/{_BRANCH}", "targetCommit": repository.commit}
        return web.json_response({"branches": [branch], "converts": [], "tags": []})

    async def _tree(self, request: web.Request) -> web.Response:
        repository = self._repository(request, contents=False)
        _check_revision(request, repository)
        path = request.match_info.get("path", "").strip("/")
        recursive = request.query.get("recursive", "").lower() in ("true", "1")
        entries = list_tree(repository, path, recursive=recursive)
        if path and not entries:
            raise RefusedError(Denial(404, f"{path} does not exist on {_BRANCH!r}", "EntryNotFound"))
        return web.json_response(entries)

    async def _paths_info(self, request: web.Request) -> web.Response:
        repository = self._repository(request, contents=False)
        _check_revision(request, repository)
        wanted = (await request.post()).getall("paths", [])
        known = {entry["path"]: entry for entry in list_tree(repository, "", recursive=True)}
        return web.json_response([known[path] for path in map(str, wanted) if path in known])

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        repository = self._repository(request, contents=True)
        _check_revision(request, repository)
        file = repository.files.get(request.match_info["path"])
        commit = {"X-Repo-Commit": repository.commit}
        if file is None:
            denial = Denial(404, "Entry not found", "EntryNotFound")
            return _refusal(denial, commit)
        headers = commit | {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": str(file.size)}
        return web.FileResponse(file.location, headers=headers)

    async def _unknown(self, request: web.Request) -> web.Response:
        """A repository's name without its owner, for one."""
        raise RefusedError(access.not_found(self._user(request)))

    def _user(self, request: web.Request) -> User | None:
        user = self._tokens.user(request.headers.get("Authorization"))
        if isinstance(user, Denial):
            raise RefusedError(user)
        return user

    def _repository(self, request: web.Request, *, contents: bool) -> Repository:
        user = self._user(request)
        name = f"{request.match_info['owner']}/{request.match_info['name']}"
        repository = self._repositories.get(name)
        if repository is None:
            raise RefusedError(access.not_found(user))
        denial = access.deny(name, self._visibility[name], user, contents=contents)
        if denial:
            raise RefusedError(denial)
        return repository


def list_tree(repository: Repository, path: str, *, recursive: bool) -> list[dict[str, Any]]:
    """What is in the directory `path` (empty: the root): its files and directories, or all below with `recursive`."""
    prefix = f"{path}/" if path else ""
    entries: dict[str, dict[str, Any]] = {}
    for file in repository.files.values():
        if not file.path.startswith(prefix):
            continue
        below = file.path.removeprefix(prefix).split("/")
        for depth in range(1, len(below)):
            directory = prefix + "/".join(below[:depth])
            if recursive or depth == 1:
                entries[directory] = {"type": "directory", "oid": repository.commit, "size": 0, "path": directory}
        if recursive or len(below) == 1:
            entries[file.path] = {"type": "file", "path": file.path, "oid": file.blob_id, **_blob(file)}
    return list(entries.values())


def _blob(file: RepositoryFile) -> dict[str, Any]:
    described: dict[str, Any] = {"size": file.size, "blobId": file.blob_id}
    if file.lfs_sha256 is not None:
        # The tree names the digest `oid`, the model's description `sha256`.
        lfs = {"oid": file.lfs_sha256, "sha256": file.lfs_sha256, "size": file.size, "pointerSize": file.pointer_size}
        described["lfs"] = lfs
    return described


def _check_revision(request: web.Request, repository: Repository) -> None:
    revision = request.match_info.get("revision", _BRANCH)
    if revision not in (_BRANCH, repository.commit):
        raise RefusedError(Denial(404, f"Invalid rev id: {revision}", "RevisionNotFound"))


def _refusal(denial: Denial, headers: Mapping[str, str] | None = None) -> web.Response:
    said = {"X-Error-Message": denial.message, **({"X-Error-Code": denial.code} if denial.code else {})}
    return web.json_response({"error": denial.message}, status=denial.status, headers={**said, **(headers or {})})


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        response = await handler(request)
    except RefusedError as refused:
        response = _refusal(refused.denial)
    _log.info("%s %s %d", request.method, request.path, response.status)
    return response


def load_repositories(directory: Path) -> tuple[dict[str, Repository], dict[str, Visibility]]:
    """All repositories under `directory`, and what each asks of its readers (repositories.json; else public)."""
    settings_file = directory / _SETTINGS
    settings = json.loads(settings_file.read_text()) if settings_file.is_file() else {}
    repositories = {}
    for path in sorted(directory.glob("*/*")):
        if path.is_dir():
            name = f"{path.parent.name}/{path.name}"
            repositories[name] = load(name, path)
    return repositories, {name: Visibility(settings.get(name, Visibility.PUBLIC)) for name in repositories}


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="testbed.hub.server", description=__doc__)
    parser.add_argument("--repositories", type=Path, required=True)
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    repositories, visibility = load_repositories(options.repositories)
    for name, repository in repositories.items():
        _log.info("serving %s (%s) at %s", name, visibility[name], repository.commit)
    hub = Hub(repositories, visibility, Tokens(options.tokens))
    web.run_app(hub.application(), port=options.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
