"""trtllm-build: files, config.json, what a GPU generation refuses, and argparse's refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorrt_llm.commands import build as command
from trtllm_standin.engine_file import Plan
from trtllm_standin.safetensors_io import SafetensorsFile

from testbed.tests.unit.toolchain.standin import PACKAGES, ROOTFS, gpu

Make = Callable[..., Path]


def run(arguments: list[str], environ: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    program = str(ROOTFS / "usr/local/bin/trtllm-build")
    environ = {"PYTHONPATH": f"{PACKAGES}:{':'.join(sys.path)}", "PATH": "/usr/bin:/bin", **environ}
    return subprocess.run(
        [sys.executable, program, *arguments], env=environ, cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_it_writes_the_real_files_and_keys(make_model: Make, convert: Make, build: Make) -> None:
    engine = build(convert(make_model(), "--tp_size", "3"))
    assert sorted(path.name for path in engine.iterdir()) == [
        "config.json",
        "rank0.engine",
        "rank1.engine",
        "rank2.engine",
    ]
    config = json.loads((engine / "config.json").read_text())
    assert list(config) == ["version", "pretrained_config", "build_config"]
    assert config["version"] == "1.2.1"
    assert config["pretrained_config"]["mapping"]["world_size"] == 3
    limits = {key: config["build_config"][key] for key in ("max_batch_size", "max_seq_len", "max_num_tokens")}
    assert limits == {"max_batch_size": 4, "max_seq_len": 96, "max_num_tokens": 64}
    assert config["build_config"]["kv_cache_type"] == "PAGED"
    plugin = config["build_config"]["plugin_config"]
    assert plugin["tokens_per_block"] == 32
    assert plugin["use_paged_context_fmha"] is True
    assert plugin["use_fp8_context_fmha"] is False, "switched off where the weights are not FP8"
    assert "dry_run" not in config["build_config"]


def test_the_plan_is_stamped_with_the_gpu_it_was_built_on(make_model: Make, convert: Make, build: Make) -> None:
    stamp = Plan(build(convert(make_model())) / "rank0.engine").stamp
    assert (stamp.gpu_name, stamp.compute_cap) == ("NVIDIA H100 80GB HBM3", "9.0")
    assert (stamp.tensorrt_llm_version, stamp.tensorrt_version) == ("1.2.1", "10.14.1.48")


def test_the_log_has_the_real_lines(
    make_model: Make, convert: Make, build: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    build(convert(make_model()))
    log = capsys.readouterr().out
    for pattern in (
        r"\[TRT-LLM\] \[W\] padding removal and fMHA are both enabled, max_input_len is not required",
        r"\[TRT\] \[I\] STAND-IN",
        r"\[MemUsageStats\] Peak memory usage during Engine building and serialization: CPU: \d+ MiB",
        r"\[TRT-LLM\] \[I\] Build phase peak memory: \d+\.\d\d MB, children: \d+\.\d\d MB",
        r"\[TRT-LLM\] \[I\] Total time of building all engines: 00:00:0\d",
    ):
        assert re.search(pattern, log), f"{pattern} is missing from\n{log}"


def test_unset_and_excessive_limits_are_resolved(make_model: Make, convert: Make, h100: None, tmp_path: Path) -> None:
    arguments = ["--max_batch_size", "2", "--max_input_len", "4096", "--output_timing_cache", str(tmp_path / "cache")]
    checkpoint = convert(make_model(max_position_embeddings=128))
    command.main(["--checkpoint_dir", str(checkpoint), "--output_dir", str(tmp_path / "e"), *arguments])
    build = json.loads((tmp_path / "e/config.json").read_text())["build_config"]
    assert build["max_seq_len"] == 128, "deduced from max_position_embeddings"
    assert build["max_input_len"] == 128, "clipped to max_seq_len"
    assert build["max_num_tokens"] == 256, "clipped to max_seq_len * max_batch_size"
    assert build["opt_num_tokens"] == 2


@pytest.mark.parametrize("flags", [["--fp8_kv_cache"], ["--fp8_kv_cache", "--use_weight_only"]])
def test_paged_context_goes_where_the_cache_is_fp8_and_the_weights_are_not(
    make_model: Make, convert: Make, build: Make, flags: list[str]
) -> None:
    config = json.loads((build(convert(make_model(), *flags)) / "config.json").read_text())
    assert config["build_config"]["plugin_config"]["use_paged_context_fmha"] is False


@pytest.mark.parametrize(
    ("convert_flags", "compute_cap", "message"),
    [
        (["--use_fp8_rowwise"], "8.0", "Networks with FP8 precision require hardware with FP8 support"),
        (["--dtype", "bfloat16"], "7.5", "pre SM 80 GPUs do not support bfloat16"),
        (["--use_weight_only"], "10.0", "INT8/INT4 quantization is not supported on SM>=100"),
    ],
)
def test_a_gpu_generation_refuses_what_it_cannot_run(
    make_model: Make, convert: Make, tmp_path: Path, convert_flags: list[str], compute_cap: str, message: str
) -> None:
    checkpoint = convert(make_model(), *convert_flags)
    environ = {"LLMENGINE_STANDIN_GPUS": json.dumps([gpu("some GPU", compute_cap)])}
    done = run(["--checkpoint_dir", str(checkpoint), "--output_dir", str(tmp_path / "e")], environ, tmp_path)
    assert done.returncode == 1
    assert message in done.stdout + done.stderr
    assert not list((tmp_path / "e").glob("*.engine")), "nothing half-made is left"


def test_an_fp8_cache_is_no_fp8_arithmetic(make_model: Make, convert: Make, tmp_path: Path) -> None:
    checkpoint = convert(make_model(), "--fp8_kv_cache")
    environ = {"LLMENGINE_STANDIN_GPUS": json.dumps([gpu("NVIDIA A100-SXM4-80GB", "8.0")])}
    done = run(["--checkpoint_dir", str(checkpoint), "--output_dir", str(tmp_path / "e")], environ, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "FP8 Paged Context FMHA is disabled because FP8 context FMHA is disabled." in done.stdout


def test_weights_that_the_gpu_cannot_hold_are_refused(make_model: Make, convert: Make, tmp_path: Path) -> None:
    small = gpu() | {"memory_total_mib": 551}
    environ = {"LLMENGINE_STANDIN_GPUS": json.dumps([small])}
    done = run(["--checkpoint_dir", str(convert(make_model())), "--output_dir", "e"], environ, tmp_path)
    assert done.returncode == 1
    assert "could not be allocated" in done.stdout


def test_without_a_gpu_it_fails_as_the_real_one_does(make_model: Make, convert: Make, tmp_path: Path) -> None:
    done = run(["--checkpoint_dir", str(convert(make_model())), "--output_dir", "e"], {}, tmp_path)
    assert done.returncode == 1
    assert "ValueError: max_workers must be greater than 0" in done.stderr


def test_workers_build_the_same_engines(make_model: Make, convert: Make, tmp_path: Path) -> None:
    checkpoint = convert(make_model(), "--tp_size", "3")
    environ = {"LLMENGINE_STANDIN_GPUS": json.dumps([gpu(index=0), gpu(index=1)])}
    for workers in ("1", "2"):
        output = ["--output_dir", f"e{workers}", "--workers", workers]
        done = run(["--checkpoint_dir", str(checkpoint), *output], environ, tmp_path)
        assert done.returncode == 0, done.stderr
    for rank in range(3):
        assert (tmp_path / f"e1/rank{rank}.engine").read_bytes() == (tmp_path / f"e2/rank{rank}.engine").read_bytes()


def test_fast_build_keeps_the_weights_beside_the_engine(make_model: Make, convert: Make, build: Make) -> None:
    engine = build(convert(make_model()), "--fast_build")
    assert not Plan(engine / "rank0.engine").tensors()
    assert "transformer.ln_f.weight" in SafetensorsFile(engine / "rank0_managed_weights.safetensors")


def test_a_missing_rank_fails_and_a_cut_checkpoint_names_its_tensors(
    make_model: Make, convert: Make, build: Make
) -> None:
    checkpoint = convert(make_model(), "--tp_size", "3")
    (checkpoint / "rank2.safetensors").unlink()
    with pytest.raises(AssertionError, match=r"rank2\.safetensors does not exist"):
        build(checkpoint)
    whole, staged = convert(make_model()), convert(make_model(), "--pp_size", "2")
    (whole / "rank0.safetensors").write_bytes((staged / "rank0.safetensors").read_bytes())
    with pytest.raises(RuntimeError, match=r"Required but not provided tensors:.*transformer\.ln_f\.weight"):
        build(whole)


@pytest.mark.parametrize(
    "flags",
    [
        ["--auto_parallel", "2"],
        ["--gpus_per_node", "8"],
        ["--tp_size", "2"],
        ["--gemm_plugin", "int4"],
        ["--context_fmha", "true"],
        ["--kv_cache_type", "virtual"],
        ["--max_output_len", "10"],
    ],
)
def test_flags_of_other_releases_and_wrong_words_are_refused(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--checkpoint_dir", "x", *flags])
    assert ended.value.code == 2
    assert "trtllm-build: error: " in capsys.readouterr().err


def test_flags_that_exclude_each_other_are_refused(make_model: Make, convert: Make, build: Make) -> None:
    with pytest.raises(RuntimeError, match="multiple_profiles is enabled, while opt_num_tokens is set"):
        build(convert(make_model()), "--multiple_profiles", "enable", "--opt_num_tokens", "8")


def test_a_build_config_replaces_the_limits(make_model: Make, convert: Make, build: Make, tmp_path: Path) -> None:
    limits = {"max_input_len": 10, "max_seq_len": 20, "max_batch_size": 3, "max_beam_width": 1}
    (tmp_path / "b.json").write_text(json.dumps(limits | {"max_num_tokens": 30, "opt_num_tokens": None}))
    engine = build(convert(make_model()), "--build_config", str(tmp_path / "b.json"))
    config = json.loads((engine / "config.json").read_text())["build_config"]
    assert {key: config[key] for key in limits} == limits
