"""Releases: what the published pages say of them, and that the data hangs together."""

from __future__ import annotations

import pytest

from trtllm_operator.catalog import CatalogError, UnknownRelease, load_catalog
from trtllm_operator.catalog.history import at, covers
from trtllm_operator.catalog.schema import SECTIONS

CATALOG = load_catalog()
SUPPORTED = [name for name in CATALOG.release_names if CATALOG.release(name).builds_engines]


def test_releases_that_can_build_are_those_with_complete_facts() -> None:
    assert SUPPORTED == ["1.2.1", "1.0.0", "0.21.0", "0.20.0", "0.19.0", "0.18.2", "0.18.0"]


@pytest.mark.parametrize(
    ("release", "flag", "default"),
    [
        ("0.12.0", "--max_batch_size", 256),
        ("0.13.0", "--max_batch_size", 256),
        ("0.14.0", "--max_batch_size", 2048),
        ("0.18.2", "--tokens_per_block", 64),
        ("0.19.0", "--tokens_per_block", 32),
        ("0.18.2", "--use_paged_context_fmha", "disable"),
        ("0.19.0", "--use_paged_context_fmha", "enable"),
        ("0.18.2", "--use_fp8_context_fmha", "disable"),
        ("1.2.1", "--use_fp8_context_fmha", "enable"),
        ("1.2.1", "--max_num_tokens", 8192),
        ("1.2.1", "--gemm_plugin", "disable"),
        ("1.0.0", "--gpus_per_node", 8),
    ],
)
def test_defaults_are_those_of_the_release(release: str, flag: str, default: object) -> None:
    assert CATALOG.release(release).commands["trtllm-build"].flags[flag].default == default


@pytest.mark.parametrize(
    ("flag", "first", "last"),
    [
        ("--gpus_per_node", "0.12.0", "1.1.0"),
        ("--auto_parallel", "0.12.0", "1.1.0"),
        ("--user_buffer", "0.16.0", "1.2.1"),
        ("--gemm_allreduce_plugin", "0.19.0", "1.2.1"),
        ("--builder_opt", "0.12.0", "0.13.0"),
        ("--enable_xqa", "0.12.0", "0.15.0"),
        ("--lookup_plugin", "0.12.0", "0.14.0"),
        ("--monitor_memory", "0.15.0", "1.2.1"),
        ("--kv_cache_type", "0.13.0", "1.2.1"),
    ],
)
def test_flags_come_and_go_with_the_releases(flag: str, first: str, last: str) -> None:
    with_flag = [
        name
        for name in reversed(CATALOG.release_names)
        if (command := CATALOG.release(name).commands.get("trtllm-build")) and flag in command.flags
    ]
    assert (with_flag[0], with_flag[-1]) == (first, last)


@pytest.mark.parametrize("flag", ["--use_custom_all_reduce", "--multi_block_mode", "--max_output_len", "--tp_size"])
def test_flags_removed_before_the_first_release_are_in_none(flag: str) -> None:
    for name in CATALOG.release_names:
        command = CATALOG.release(name).commands.get("trtllm-build")
        assert command is None or flag not in command.flags


@pytest.mark.parametrize("name", ["1.3.0rc23", "1.3.0", "1.4.0rc1", "1.3.0rc29", "2.0.0"])
def test_c65_releases_without_engine_flow_are_named_as_such(name: str) -> None:
    release = CATALOG.release(name)
    assert release.status == "no-engines"
    assert release.instead == "1.2.1"
    assert "trtllm-build" in release.reason
    assert not release.commands


def test_the_last_candidate_with_an_engine_flow_is_not_called_engineless() -> None:
    assert CATALOG.release("1.3.0rc20").status == "incomplete"
    assert CATALOG.release("1.3.0rc15").status == "incomplete"


def test_an_unknown_release_lists_those_there_are() -> None:
    with pytest.raises(UnknownRelease, match=r"'1\.2\.7' is not in the catalog; it has .*1\.2\.1, .*0\.12\.0"):
        CATALOG.release("1.2.7")


def test_releases_are_in_order_of_their_numbers() -> None:
    names = CATALOG.release_names
    assert names.index("1.3.0") < names.index("1.3.0rc20") < names.index("1.2.1") < names.index("0.21.0")
    assert names.index("0.21.0") < names.index("0.20.0") < names.index("0.12.0")


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_release_that_builds_has_all_that_a_build_needs(name: str) -> None:
    release = CATALOG.release(name)
    assert release.image is not None
    assert release.tensorrt
    assert release.cuda
    assert release.commands["trtllm-build"].program == ("trtllm-build",)
    for command in release.commands.values():
        assert command.program, f"{command.name} has a place in the image"
    for family in release.families.values():
        assert family.command is None or family.command in release.commands
    for format_ in release.formats.values():
        assert set(format_.compute_capabilities) <= set(release.compute_capabilities)
    for model, placeholders in release.templates.items():
        assert len({p.name for p in placeholders}) == len(placeholders), f"{model} has a placeholder twice"


def test_defaults_are_among_the_choices() -> None:
    for name in CATALOG.release_names:
        for command in CATALOG.release(name).commands.values():
            for flag in command.flags.values():
                if flag.choices and flag.default is not None:
                    assert str(flag.default) in flag.choices, f"{name} {command.name} {flag.name}"


def test_every_entry_cites_a_source() -> None:
    for section, (_, kind) in SECTIONS.items():
        for entry in CATALOG.section(section, kind):
            assert getattr(entry, "source", ""), f"{section}: {entry}"


def test_request_fields_were_renamed_in_1_0() -> None:
    new = {f.name for f in CATALOG.release("1.0.0").request_fields["ensemble"]}
    old = {f.name for f in CATALOG.release("0.21.0").request_fields["ensemble"]}
    assert {"min_tokens", "seed"} <= new - old
    assert {"min_length", "random_seed"} <= old - new


def test_placeholders_that_must_be_filled_follow_the_release() -> None:
    def required(name: str) -> set[str]:
        return {p.name for p in CATALOG.release(name).templates["tensorrt_llm"] if p.required}

    assert required("1.0.0") - required("0.21.0") == {"prompt_embedding_table_data_type"}
    assert required("0.17.0.post1") - required("0.16.0") == {"logits_datatype"}


def test_history_takes_the_newest_value_that_is_not_later() -> None:
    assert at({"0.9": 1, "0.12": 2, "1.0": 3}, "0.21") == 2
    assert at({"0.12": 2}, "0.9") is None
    assert covers("0.21", "0.9", "1.0")
    assert not covers("1.0", None, "1.0")


MIRROR = """
releases:
- release: 1.2.1
  images: [{triton: "26.07", reference: mirror.example/tritonserver:26.07, digest: "sha256:DIGEST"}]
""".replace("DIGEST", "a" * 64)


def test_a_cluster_corrects_a_release() -> None:
    release = load_catalog({"mirror.yaml": MIRROR}).release("1.2.1")
    assert release.image == "mirror.example/tritonserver:26.07@sha256:" + "a" * 64
    assert release.tensorrt == "10.14.1.48", "fields that are not given stay"


def test_a_cluster_adds_a_release_and_a_gpu() -> None:
    more = """
releases:
- release: 1.2.2
  line: "1.2"
  status: supported
  images: [{triton: "26.09", reference: "x/y:26.09"}]
  source: "our own"
gpus:
- {name: L20, memory_mib: 46068}
- name: RTX-5090
  architecture: blackwell
  compute_capability: "12.0"
  memory_mib: 32607
  link: pcie
  max_gpus_per_node: 8
  source: "our node"
"""
    catalog = load_catalog({"more.yaml": more})
    assert catalog.release("1.2.2").builds_engines
    assert catalog.gpu("NVIDIA-L20").memory_mib == 46068  # type: ignore[union-attr]
    assert catalog.gpu("NVIDIA-RTX-5090").compute_capability == "12.0"  # type: ignore[union-attr]


def test_a_cluster_corrects_one_flag() -> None:
    text = "commands:\n- command: trtllm-build\n  flags:\n  - {name: --workers, type: int, default: 2}\n"
    flags = load_catalog({"fix.yaml": text}).release("1.2.1").commands["trtllm-build"].flags
    assert flags["--workers"].default == 2
    assert flags["--max_batch_size"].default == 2048


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a: b: c", "is not YAML"),
        ("just text", "holds no sections"),
        ("releses: []", "no section 'releses'"),
        ("releases: {}", "is not a list"),
        ("releases: [1.2.1]", "has no release that is a text"),
        ("releases: [{release: 9.9.9}]", "releases/9.9.9, line: Field required"),
        ("releases: [{release: 1.2.1, line: new}]", "releases/1.2.1, line"),
        ("releases: [{release: 1.2.1, digest: x}]", "Extra inputs are not permitted"),
        ("gpus: [{name: T4, compute_capability: 7.5}]", "gpus/T4, compute_capability"),
    ],
)
def test_a_wrong_file_is_one_clear_line(text: str, says: str) -> None:
    with pytest.raises(CatalogError) as error:
        load_catalog({"bad.yaml": text})
    assert says in str(error.value)
    assert "\n" not in str(error.value)
