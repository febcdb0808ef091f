"""A user's calibration texts, as the inspection reads them and as a build gets them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trtllm_operator.runner.report import StepError
from trtllm_operator.steps import calibration_texts as texts

from .test_publish import Pod, pod  # noqa: F401 (a fixture)

ROWS = ['{"text": "Grüß Gott"}', '{"text": "Good day", "source": "chat"}']
LINES = "Good evening\n\nGood night\n"


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    """Where a claim is mounted that has texts in `chat`."""
    root = tmp_path / "claim"
    write(root / "chat" / "rows.jsonl", "\n".join(ROWS) + "\n")
    write(root / "chat" / "more" / "lines.txt", LINES)
    return root


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def spec(claim: Path, path: str = "chat", **more: Any) -> dict[str, Any]:
    return {"claimName": "texts", "path": path, "root": str(claim), **more}


def digest(claim: Path) -> str:
    return str(texts.digest(spec(claim))["digest"])


def refusal(claim: Path, path: str = "chat") -> str:
    with pytest.raises(StepError) as caught:
        texts.digest(spec(claim, path))
    assert (caught.value.reason, caught.value.status) == ("CalibrationUnreadable", 64)
    assert caught.value.message.startswith(f"spec.precision.calibration.dataset, in {path} on claim texts: ")
    return caught.value.message.partition("claim texts: ")[2]


class TestDigest:
    def test_it_is_of_names_sizes_and_contents_and_can_be_computed_with_sha256sum(self, claim: Path) -> None:
        named = {"more/lines.txt": LINES, "rows.jsonl": "\n".join(ROWS) + "\n"}
        entries = [[n, len(t.encode()), hashlib.sha256(t.encode()).hexdigest()] for n, t in named.items()]
        said = texts.digest(spec(claim))
        assert said["digest"] == hashlib.sha256(json.dumps(entries).encode()).hexdigest()
        assert (said["files"], said["sizeBytes"]) == (2, sum(len(t.encode()) for t in named.values()))

    def test_where_and_when_the_files_lie_is_no_part_of_it(self, claim: Path, tmp_path: Path) -> None:
        shutil.copytree(claim / "chat", tmp_path / "elsewhere" / "chat", copy_function=shutil.copyfile)
        assert digest(tmp_path / "elsewhere") == digest(claim)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("rows.jsonl", "\n".join([ROWS[0], ROWS[1].replace("day", "bye")]) + "\n"),
            ("rows.jsonl", "\n".join(reversed(ROWS)) + "\n"),
            ("new.txt", "Hello\n"),
            ("new.txt", ""),
        ],
        ids=["a letter", "the order", "a file", "an empty file"],
    )
    def test_what_a_calibration_reads_changes_it(self, claim: Path, name: str, content: str) -> None:
        before = digest(claim)
        write(claim / "chat" / name, content)
        assert digest(claim) != before

    def test_a_name_changes_it(self, claim: Path) -> None:
        before = digest(claim)
        (claim / "chat" / "rows.jsonl").rename(claim / "chat" / "other.jsonl")
        assert digest(claim) != before

    def test_what_no_build_gets_to_see_does_not(self, claim: Path, tmp_path: Path) -> None:
        before = digest(claim)
        write(claim / "chat" / "README.md", "About these texts")
        write(claim / "other" / "rows.jsonl", ROWS[0])
        write(tmp_path / "secret.txt", "outside of the claim")
        (claim / "chat" / "link.txt").symlink_to(tmp_path / "secret.txt")
        assert digest(claim) == before

    def test_links_within_the_claim_are_followed(self, claim: Path) -> None:
        """As a cache of the hub lays files out."""
        before = digest(claim)
        (claim / "chat" / "rows.jsonl").rename(claim / "blob")
        (claim / "chat" / "rows.jsonl").symlink_to("../blob")
        assert digest(claim) == before

    def test_empty_lines_are_no_rows(self, claim: Path) -> None:
        write(claim / "chat" / "rows.jsonl", "\n" + "\n \n".join(ROWS) + "\r\n\n")
        assert texts.digest(spec(claim))["files"] == 2

    def test_a_name_that_is_not_utf_8(self, claim: Path) -> None:
        (claim / "chat" / "caf\udce9.txt").write_text("Hello")
        assert texts.digest(spec(claim))["files"] == 3


class TestRefused:
    def test_a_directory_that_is_not_there(self, claim: Path) -> None:
        assert refusal(claim, "chats") == "there is no such directory"

    def test_a_path_that_leads_out_of_the_claim(self, claim: Path) -> None:
        (claim / "out").symlink_to("/etc")
        assert refusal(claim, "out") == "the path leads out of the claim"

    def test_a_directory_without_texts_says_what_it_has(self, claim: Path) -> None:
        write(claim / "table" / "train.parquet", "x")
        assert refusal(claim, "table") == "it has no .jsonl and no .txt file; it has train.parquet"
        (claim / "empty").mkdir()
        assert refusal(claim, "empty") == "it has no .jsonl and no .txt file; it has no files"

    def test_files_without_a_text(self, claim: Path) -> None:
        write(claim / "none" / "rows.jsonl", "\n\n")
        write(claim / "none" / "lines.txt", " ")
        assert refusal(claim, "none") == "nothing is in lines.txt, rows.jsonl"

    @pytest.mark.parametrize(
        ("row", "problem"),
        [
            ('{"article": "News", "id": 1}', "no text under `text`; its keys are article, id"),
            ("{}", "no text under `text`"),
            ('{"text": 5}', "no text under `text`; its keys are text"),
            ('{"text": "  "}', "no text under `text`; its keys are text"),
            ('"text"', 'not an object: a row is {"text": "..."}'),
            ('{"text": "a', "not JSON at column 10: Unterminated string starting at"),
            ("[" * 100_000, "not JSON that can be read: "),
            (b'{"text": "caf\xe9"}', "not UTF-8 at byte 14"),
        ],
    )
    def test_a_row_is_named_by_file_and_line(self, claim: Path, row: str | bytes, problem: str) -> None:
        row = row if isinstance(row, bytes) else row.encode()
        write(claim / "chat" / "a" / "bad.jsonl", b"\n".join([ROWS[0].encode(), b"", row, ROWS[1].encode()]))
        assert refusal(claim).startswith(f"a/bad.jsonl line 3: {problem}")

    def test_a_line_of_plain_text_that_is_not_utf_8(self, claim: Path) -> None:
        write(claim / "chat" / "bad.txt", b"fine\n\xff\n")
        assert refusal(claim) == "bad.txt line 2: not UTF-8 at byte 1"

    def test_several_rows_are_named_at_once_and_reading_ends_after_the_third(self, claim: Path) -> None:
        write(claim / "chat" / "bad.jsonl", "{}\n" * 1000)
        said = refusal(claim)
        assert [f"bad.jsonl line {n}:" in said for n in (1, 2, 3, 4)] == [True, True, True, False]
        assert said.endswith("; it was read no further")

    def test_a_line_that_is_too_long(self, claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert texts.MAX_LINE_BYTES == 16 << 20
        monkeypatch.setattr(texts, "MAX_LINE_BYTES", 1 << 20)
        write(claim / "chat" / "long.txt", "x" * (1 << 20) + "\n")
        assert refusal(claim) == "long.txt line 1: longer than 1 MiB"

    def test_more_than_is_read(self, claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with (claim / "chat" / "large.txt").open("wb") as file:
            file.truncate(texts.MAX_BYTES)
        limit = "512 MiB in 100,000 files are the most that is read"
        assert refusal(claim) == f"{limit}; samples x maxSeqLen tokens are all that a calibration runs"
        (claim / "chat" / "large.txt").unlink()
        monkeypatch.setattr(texts, "MAX_FILES", 1)
        assert refusal(claim).startswith("512 MiB in 1 files")


class TestBuild:
    """What `stage` lays where the command of the build looks."""

    def stage(self, pod: Pod, claim: Path, **more: Any) -> Path:  # noqa: F811
        from trtllm_operator.steps.publish import stage

        stage({**pod.stage_spec, "calibration": spec(claim, **more)})
        return pod.scratch / "calibration"

    def test_the_texts_that_were_inspected_and_nothing_else(self, pod: Pod, claim: Path) -> None:  # noqa: F811
        write(claim / "chat" / "README.md", "About these texts")
        brought = self.stage(pod, claim, digest=digest(claim))
        files = {p.relative_to(brought).as_posix() for p in brought.rglob("*") if p.is_file()}
        assert files == {"rows.jsonl", "more/lines.txt"}
        assert (brought / "more" / "lines.txt").read_text() == LINES

    @pytest.mark.parametrize("change", ["content", "gone", "empty", "larger"])
    def test_others_than_were_inspected_begin_no_build(
        self,
        pod: Pod,  # noqa: F811
        claim: Path,
        change: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        inspected = digest(claim)
        if change == "content":
            write(claim / "chat" / "rows.jsonl", "\n".join(ROWS).replace("day", "bye"))
        elif change == "larger":
            monkeypatch.setattr(texts, "MAX_FILES", 1)
        else:
            shutil.rmtree(claim / "chat")
            if change == "empty":
                (claim / "chat").mkdir()
        with pytest.raises(StepError) as caught:
            self.stage(pod, claim, digest=inspected)
        assert (caught.value.reason, caught.value.status) == ("CalibrationChanged", 64)
        assert (
            "the calibration texts in chat on claim texts are not those that were inspected: " in caught.value.message
        )
        if change == "content":
            assert f"have the digest {digest(claim)}, not {inspected}" in caught.value.message

    def test_an_artifact_of_an_operator_that_inspected_none_gets_what_is_there(
        self,
        pod: Pod,  # noqa: F811
        claim: Path,
    ) -> None:
        assert (self.stage(pod, claim) / "rows.jsonl").is_file()


def test_the_step_as_its_container_runs_it(claim: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trtllm_operator.steps", "digest", "--spec", json.dumps(spec(claim))]
    log = tmp_path / "termination-log"
    write(claim / "chat" / "bad.jsonl", "{}")
    for status in (64, 0):
        done = subprocess.run(
            [*command, "--termination-log", str(log)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stderr
        report = json.loads(log.read_bytes())
        if status:
            assert report["failure"]["message"].endswith("bad.jsonl line 1: no text under `text`")
            (claim / "chat" / "bad.jsonl").unlink()
    assert report["result"] == texts.digest(spec(claim))
