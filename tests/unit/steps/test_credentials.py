"""A Secret that is no credential is refused unread; what was read reaches no report."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from trtllm_operator.runner.report import StepError
from trtllm_operator.steps.credentials import MAX_BYTES, read_credential, redact

PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + "A" * 40 + "\nsecondline\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "content", [PRIVATE_KEY, "two words", "a\tb", "umläut", "nul\x00", "x" * (MAX_BYTES + 1), "\x1b[31mred"]
)
def test_what_is_not_one_printable_line_is_refused_and_never_quoted(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(StepError, match="the token") as refused:
        read_credential(file, "DownloadRefused", "the token")
    for line in content.split():
        if len(line) > 3:
            assert line not in refused.value.message


def test_the_newline_that_editors_add_is_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_abc\n")
    assert read_credential(tmp_path / "token", "DownloadRefused", "the token") == "hf_abc"
    (tmp_path / "token").write_text("\n")
    assert read_credential(tmp_path / "token", "DownloadRefused", "the token") is None


def test_whatever_a_library_makes_of_it_is_hidden(tmp_path: Path) -> None:
    secret = "hf_s3cr3t/with+signs=="
    (tmp_path / "token").write_text(secret)
    read_credential(tmp_path / "token", "DownloadRefused", "the token")
    for form in (secret, json.dumps(secret), quote(secret, safe=""), base64.b64encode(secret.encode()).decode()):
        assert form.strip('"') not in redact(f"Illegal header value b'Bearer {form}' of {form}")


def test_a_multi_line_secret_named_as_the_token_stands_in_no_report(tmp_path: Path) -> None:
    """As the step's container runs it."""
    (tmp_path / "token").write_text(PRIVATE_KEY)
    log = tmp_path / "termination-log"
    spec = {"model": {"huggingFace": {"repo": "owner/name", "revision": "main"}}, "root": "/model"}
    command = [sys.executable, "-m", "trtllm_operator.steps", "inspect"]
    done = subprocess.run(
        [*command, "--spec", json.dumps(spec), "--termination-log", str(log)],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HF_TOKEN_PATH": str(tmp_path / "token"),
            "HF_ENDPOINT": "http://127.0.0.1:1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    report = json.loads(log.read_bytes())["failure"]
    assert report["reason"] == "DownloadRefused"
    assert "one line of printable ASCII" in report["message"]
    for part in ("MIIEow", "secondline", "PRIVATE"):
        assert part not in log.read_text() + done.stdout + done.stderr
