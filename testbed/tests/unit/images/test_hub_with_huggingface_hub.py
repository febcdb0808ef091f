"""The hub stand-in as the real client sees it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from huggingface_hub import (
    HfApi,
    HfFileSystem,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    snapshot_download,
)
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from testbed.hub.repository import load

from .conftest import GATED, GRANTED_TOKEN, PRIVATE, PUBLIC, STRANGER_TOKEN, RunningHub


def api(hub: RunningHub, token: str | bool = False) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=token)


def test_a_branch_resolves_to_the_commit_of_its_content(hub: RunningHub) -> None:
    info = api(hub).model_info(PUBLIC, files_metadata=True)
    assert info.sha == hub.repositories[PUBLIC].commit
    assert info.siblings is not None
    sizes = {file.rfilename: file.size for file in info.siblings}
    assert sizes["model.safetensors"] == (hub.directory / PUBLIC / "model.safetensors").stat().st_size
    assert api(hub).model_info(PUBLIC, revision=info.sha).sha == info.sha


def test_a_snapshot_at_a_commit_is_the_same_bytes(hub: RunningHub, tmp_path: Path) -> None:
    got = snapshot_download(
        PUBLIC,
        revision=hub.repositories[PUBLIC].commit,
        endpoint=hub.endpoint,
        token=False,
        local_dir=tmp_path / "model",
        cache_dir=tmp_path / "cache",
    )
    for name, file in hub.repositories[PUBLIC].files.items():
        assert (Path(got) / name).read_bytes() == file.location.read_bytes()


def test_the_client_tells_lfs_files_from_others_by_their_digests(hub: RunningHub) -> None:
    weights = hub.repositories[PUBLIC].files["model.safetensors"]
    url = hf_hub_url(PUBLIC, "model.safetensors", endpoint=hub.endpoint)
    metadata = get_hf_file_metadata(url, token=False)
    assert (metadata.etag, metadata.size) == (weights.lfs_sha256, weights.size)
    assert metadata.commit_hash == hub.repositories[PUBLIC].commit
    config = hub.repositories[PUBLIC].files["config.json"]
    url = hf_hub_url(PUBLIC, "config.json", endpoint=hub.endpoint)
    assert get_hf_file_metadata(url, token=False).etag == config.blob_id


def test_tree_and_paths_name_every_file_and_directory(hub: RunningHub) -> None:
    entries = {entry.path for entry in api(hub).list_repo_tree(PUBLIC, recursive=True)}
    assert entries == {"config.json", "model.safetensors", "original", "original/params.json"}
    assert {entry.path for entry in api(hub).list_repo_tree(PUBLIC)} == {"config.json", "model.safetensors", "original"}
    (inside,) = api(hub).list_repo_tree(PUBLIC, "original")
    assert inside.path == "original/params.json"
    (known,) = api(hub).get_paths_info(PUBLIC, ["config.json", "absent.json"])
    assert known.path == "config.json"


def test_tensor_headers_are_read_by_ranges_without_the_weights(hub: RunningHub) -> None:
    metadata = api(hub).get_safetensors_metadata(PUBLIC)
    assert metadata.parameter_count == {"F16": 4096}


def test_a_range_is_answered_with_206_and_exactly_its_bytes(hub: RunningHub) -> None:
    request = urllib.request.Request(
        f"{hub.endpoint}/{PUBLIC}/resolve/main/model.safetensors", headers={"Range": "bytes=8-19"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        whole = (hub.directory / PUBLIC / "model.safetensors").read_bytes()
        assert (response.status, response.read()) == (206, whole[8:20])
        assert response.headers["Content-Range"] == f"bytes 8-19/{len(whole)}"


def test_the_file_system_reads_part_of_a_file(hub: RunningHub) -> None:
    files = HfFileSystem(endpoint=hub.endpoint, token=False, skip_instance_cache=True)
    with files.open(f"{PUBLIC}/config.json", "rb") as file:
        assert file.read(1) == b"{"
    assert files.exists(f"{PUBLIC}/original/params.json")  # type: ignore[no-untyped-call]
    assert not files.exists(f"{PUBLIC}/absent.json")  # type: ignore[no-untyped-call]


def test_a_token_opens_private_and_gated_repositories(hub: RunningHub, tmp_path: Path) -> None:
    for name in (PRIVATE, GATED):
        assert api(hub, GRANTED_TOKEN).model_info(name).sha == hub.repositories[name].commit
        path = hf_hub_download(
            name, "config.json", endpoint=hub.endpoint, token=GRANTED_TOKEN, cache_dir=tmp_path / name
        )
        assert json.loads(Path(path).read_text())["model_type"] == "llama"
    assert api(hub, GRANTED_TOKEN).whoami()["name"] == "ada"


def test_a_wrong_token_is_refused_even_for_what_is_public(hub: RunningHub, tmp_path: Path) -> None:
    with pytest.raises(HfHubHTTPError, match="401") as refused:
        api(hub, "hf_wrong").model_info(PUBLIC)
    assert refused.value.response.headers["X-Error-Message"] == "Invalid credentials in Authorization header"
    with pytest.raises(HfHubHTTPError, match="401"):
        snapshot_download(
            GATED,
            revision=hub.repositories[GATED].commit,
            endpoint=hub.endpoint,
            token="hf_wrong",
            cache_dir=tmp_path,
        )


def test_a_gated_repository_shows_its_commit_and_keeps_its_files(hub: RunningHub, tmp_path: Path) -> None:
    assert api(hub).model_info(GATED).gated == "manual"
    for token, status in ((False, 401), (STRANGER_TOKEN, 403)):
        with pytest.raises(GatedRepoError) as refused:
            hf_hub_download(GATED, "config.json", endpoint=hub.endpoint, token=token, cache_dir=tmp_path)
        assert refused.value.response.status_code == status
        with pytest.raises(GatedRepoError):
            api(hub, token).auth_check(GATED)


def test_a_private_repository_is_as_if_it_were_not_there(hub: RunningHub) -> None:
    for token, status in ((False, 401), (STRANGER_TOKEN, 404)):
        for name in (PRIVATE, "closed/absent", "absent"):
            with pytest.raises(RepositoryNotFoundError) as refused:
                api(hub, token).model_info(name)
            assert refused.value.response.status_code == status


def test_an_unknown_revision_and_an_unknown_file_are_told_apart(hub: RunningHub, tmp_path: Path) -> None:
    with pytest.raises(RevisionNotFoundError):
        api(hub).model_info(PUBLIC, revision="0" * 40)
    with pytest.raises(RevisionNotFoundError):
        snapshot_download(PUBLIC, revision="0" * 40, endpoint=hub.endpoint, token=False, cache_dir=tmp_path)
    with pytest.raises(RemoteEntryNotFoundError):
        hf_hub_download(PUBLIC, "absent.json", endpoint=hub.endpoint, token=False, cache_dir=tmp_path)


def test_a_changed_token_file_counts_at_once(hub: RunningHub) -> None:
    before = hub.tokens.read_text()
    try:
        hub.tokens.write_text(json.dumps({"hf_new": {"name": "new", "repositories": [PRIVATE]}}))
        assert api(hub, "hf_new").model_info(PRIVATE).sha == hub.repositories[PRIVATE].commit
        with pytest.raises(HfHubHTTPError, match="401"):
            api(hub, GRANTED_TOKEN).model_info(PRIVATE)
    finally:
        hub.tokens.write_text(before)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the outside source of the ids")
def test_object_ids_are_gits_own(tmp_path: Path) -> None:
    """Without LFS files, where git would store what the hub does not, the commit's tree is git's."""
    directory = tmp_path / "model"
    (directory / "sub").mkdir(parents=True)
    (directory / "sub" / "b.json").write_text("{}")
    (directory / "sub.txt").write_text("sorted before the directory")
    (directory / "a.txt").write_text("a")
    repository = load("open/model", directory)

    def git(*arguments: str, **environment: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment | {"PATH": "/usr/bin:/bin"}
        ).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    tree = git("write-tree")
    identity = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", "hub-standin"), ("EMAIL", "hub-standin@localhost"), ("DATE", "@0 +0000"))
    }
    assert repository.commit == git("commit-tree", tree, "-m", "open/model", **identity)
    assert repository.files["a.txt"].blob_id == git("hash-object", "a.txt")


def test_the_commit_changes_with_any_content(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    before = load("open/model", tmp_path).commit
    assert load("open/model", tmp_path).commit == before
    (tmp_path / "model.safetensors").write_bytes(b"Weights")
    assert load("open/model", tmp_path).commit != before
