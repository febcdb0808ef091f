"""What users met, by the number of the public report each comes from: releases and their flags."""

from __future__ import annotations

from itertools import pairwise

from tests.unit.planning.build import engine_spec
from tests.unit.planning.models import CATALOG, LLAMA_2_7B, LLAMA_31_8B, RELEASE, plan, refused_for, said
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning import build_command


def test_c61_a_flag_that_is_gone_is_never_passed() -> None:
    for name in CATALOG.release_names:
        release = CATALOG.release(name)
        if release.builds_engines:
            flags = {w for w in build_command(engine_spec(), LLAMA_2_7B, release) if w.startswith("--")}
            assert flags <= set(release.commands["trtllm-build"].flags)


def test_c63_one_option_two_names() -> None:
    text = """
releases: [{release: 0.12.0, status: supported}]
commands: [{command: convert-llama, program: {"0.12": [python3, convert_checkpoint.py]}}]
"""
    old = build_command(engine_spec(), LLAMA_2_7B, load_catalog({"old.yaml": text}).release("0.12.0"))
    assert old[old.index("--paged_kv_cache") + 1] == "enable"
    assert "--kv_cache_type" not in old
    new = build_command(engine_spec(), LLAMA_2_7B, RELEASE)
    assert new[new.index("--kv_cache_type") + 1] == "paged"
    assert "--paged_kv_cache" not in new


def test_c65_a_release_without_build_tool_is_refused_with_the_last_that_has_it() -> None:
    verdict = plan(LLAMA_31_8B, release="1.3.0rc23")
    assert "release" in refused_for(verdict)
    assert "use release 1.2.1" in said(verdict, "release")


def test_c76_batching_in_flight_always_has_a_paged_cache() -> None:
    for name in CATALOG.release_names:
        release = CATALOG.release(name)
        if release.builds_engines:
            command = build_command(engine_spec(), LLAMA_2_7B, release)
            flags = dict(pairwise(command))
            assert flags.get("--kv_cache_type") == "paged" or flags.get("--paged_kv_cache") == "enable"
            assert flags["--remove_input_padding"] == "enable"
            assert flags["--gpt_attention_plugin"] != "disable"
