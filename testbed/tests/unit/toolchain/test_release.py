"""The stand-in against the operator's catalog of release 1.2.1: two transcriptions made apart from each other."""

from __future__ import annotations

import argparse
import re

import pytest
from trtllm_standin import build_flags, convert_flags, quantize_command, run_command

from testbed.tests.unit.toolchain.standin import ROOTFS
from trtllm_operator.catalog import Command, load_catalog

RELEASE = load_catalog().release("1.2.1")
MODELS = ROOTFS / "app/all_models/inflight_batcher_llm"


@pytest.mark.parametrize(
    ("command", "parser"),
    [
        ("trtllm-build", build_flags.parser()),
        ("convert-llama", convert_flags.parser()),
        ("quantize", quantize_command.parser()),
        ("run", run_command.parser()),
    ],
)
def test_commands_have_the_release_s_flags(command: str, parser: argparse.ArgumentParser) -> None:
    catalogd: Command = RELEASE.commands[command]
    mine = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    known = {name for flag in catalogd.flags.values() for name in (flag.name, *flag.aliases)}
    assert mine - {"--help"} == {name for name in known if name.startswith("--")}


@pytest.mark.parametrize("command", ["trtllm-build", "convert-llama"])
def test_commands_have_the_release_s_defaults(command: str) -> None:
    parser = {"trtllm-build": build_flags, "convert-llama": convert_flags}[command].parser()
    defaults = {flag: action.default for action in parser._actions for flag in action.option_strings}
    differing = {
        name: (defaults[name], flag.default)
        for name, flag in RELEASE.commands[command].flags.items()
        if defaults[name] != argparse.SUPPRESS and (defaults[name] or None) != (flag.default or None)
    }
    assert not differing


@pytest.mark.parametrize("model", sorted(RELEASE.templates))
def test_templates_have_the_release_s_placeholders(model: str) -> None:
    """Bare placeholders break the file when they stay; those inside a string may stay."""
    text = re.sub(r"(?m)^#.*$", "", (MODELS / model / "config.pbtxt").read_text())
    found = set(re.findall(r"\$\{(\w+)\}", text))
    bare = set(re.findall(r'(?<!")\$\{(\w+)\}', text))
    known = {placeholder.name for placeholder in RELEASE.templates[model]}
    required = {placeholder.name for placeholder in RELEASE.templates[model] if placeholder.required}
    assert known <= found
    assert found - known <= {"kv_cache_onboard_blocks"}
    assert bare <= required


def test_requests_have_the_release_s_fields() -> None:
    text = (MODELS / "ensemble/config.pbtxt").read_text()
    inputs = text[text.index("input [") : text.index("output [")]
    assert set(re.findall(r'name: "(\w+)"', inputs)) >= {field.name for field in RELEASE.request_fields["ensemble"]}
