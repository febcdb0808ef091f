"""fill_template.py of 0.19 and later: escaping, defaults, unknown keys."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.tests.unit.toolchain.standin import ROOTFS

PROGRAM = ROOTFS / "app/tools/fill_template.py"
_spec = importlib.util.spec_from_file_location("fill_template", PROGRAM)
assert _spec
assert _spec.loader
fill_template = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fill_template)

TEMPLATE = 'a: ${a} b: "${b}" q: ${max_queue_size} d: ${max_queue_delay_microseconds}'


def fill(substitutions: str, template: str = TEMPLATE) -> str:
    text: str = fill_template.fill(template, substitutions, "x/config.pbtxt")
    return text


def test_what_is_not_given_stays_except_the_queue_settings() -> None:
    assert fill("a:1") == 'a: 1 b: "${b}" q: 0 d: 0'
    assert fill("max_queue_size:7,a:1") == 'a: 1 b: "${b}" q: 7 d: 0'


def test_an_unknown_key_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match=r"key 'nosuch' does not exist in the file x/config\.pbtxt"):
        fill("a:1,nosuch:2")


def test_escapes_are_read_twice_for_colons_and_once_for_commas() -> None:
    """The text is split on commas first, then each part on colons, and each split removes a level of backslashes."""
    assert fill(r"b:0\,1") == 'a: ${a} b: "0,1" q: 0 d: 0'
    assert fill(r"b:http\\://x") == 'a: ${a} b: "http://x" q: 0 d: 0'
    with pytest.raises(ValueError, match="too many values to unpack"):
        fill("b:http://x")


def test_in_place_writes_the_file_and_without_it_prints(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text(TEMPLATE)
    command = [sys.executable, str(PROGRAM), str(path), "a:1"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("a: 1 ")
    assert path.read_text() == TEMPLATE
    done = subprocess.run([*command, "-i"], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert path.read_text().startswith("a: 1 ")
