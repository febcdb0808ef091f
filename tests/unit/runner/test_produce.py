"""convert and build as a container runs them: the zipapp, a toolchain of small scripts, real files and real deaths."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from .conftest import A100, H100, H100_CLASS, Image

LIMITS = {"maxBatchSize": 8, "maxInputLen": 512, "maxSeqLen": 1024, "maxNumTokens": 2048, "maxBeamWidth": 1}
EXPECTED = {"release": "1.2.1", "tensorParallel": 2, "pipelineParallel": 1, "dtype": "bfloat16", **LIMITS}


def convert(image: Image, tool: str) -> tuple[int, dict[str, Any], str]:
    script = image.command("convert_checkpoint.py", "import sys, os, signal\nfrom artifacts import *\n" + tool)
    command = ["python3", str(script), "--model_dir", "{parent}", "--output_dir", "{output}"]
    spec = {
        "artifact": "checkpoint-1",
        "command": command,
        "parent": "/store/model-1",
        "output": str(image.scratch / "output"),
        "expected": EXPECTED,
        "gpu": None,
    }
    return image.run("convert", spec)


def build(image: Image, tool: str, **expected: Any) -> tuple[int, dict[str, Any], str]:
    image.command("trtllm-build", "import sys, os, signal\nfrom artifacts import *\n" + tool)
    spec = {
        "artifact": "engine-1",
        "command": ["trtllm-build", "--checkpoint_dir", "{parent}", "--output_dir", "{output}"],
        "parent": "/store/checkpoint-1",
        "output": str(image.scratch / "output"),
        "expected": {**EXPECTED, **expected},
        "gpu": H100_CLASS,
    }
    return image.run("build", spec)


def reason(report: dict[str, Any]) -> str:
    told: str = report["failure"]["reason"]
    return told


def message(report: dict[str, Any]) -> str:
    told: str = report["failure"]["message"]
    return told


class TestSuccess:
    def test_a_conversion_gets_its_directories_and_reports_facts(self, image: Image) -> None:
        status, report, output = convert(image, "print('args', sys.argv[1:]); checkpoint(sys.argv[4])")
        assert status == 0, output
        assert f"args ['--model_dir', '/store/model-1', '--output_dir', '{image.scratch}/output']" in output
        facts = report["result"]
        assert facts["trtllmVersion"] == "1.2.1"
        assert facts["peakHostMemoryBytes"] > 1_000_000
        assert "gpu" not in facts
        assert json.loads((image.scratch / "build.json").read_text()) == facts

    def test_a_build_reports_the_gpu_it_saw(self, image: Image) -> None:
        status, report, output = build(image, "engine(sys.argv[4])")
        assert status == 0, output
        assert {
            "gpu": "NVIDIA H100 80GB HBM3",
            "gpuUuid": "GPU-11111111-2222-3333-4444-555555555555",
            "computeCapability": "9.0",
            "gpuMemoryMiB": 81559,
            "driverVersion": "590.44.01",
        }.items() <= report["result"].items()

    def test_the_working_directory_can_be_written_to(self, image: Image) -> None:
        """trtllm-build leaves its timing cache in the working directory; the image's own is read-only."""
        build(image, "open('model.cache', 'w'); engine(sys.argv[4])")
        assert (image.scratch / "model.cache").exists()

    def test_nothing_runs_when_the_artifact_is_in_the_store(self, image: Image) -> None:
        (image.scratch / "skip").touch()
        status, report, _ = build(image, "sys.exit('must not run')")
        assert (status, report) == (0, {"result": {"skipped": True}})


class TestExitStatus0IsNotEnough:
    """convert_checkpoint.py is known to exit with 0 without having made anything."""

    @pytest.mark.parametrize(
        ("tool", "told"),
        [
            ("pass", "no config.json"),
            (
                "checkpoint(sys.argv[4]); os.unlink(sys.argv[4] + '/rank1.safetensors')",
                "rank1.safetensors missing of 2",
            ),
            ("checkpoint(sys.argv[4], world_size=3)", "rank2.safetensors beyond the 2 ranks"),
            ("checkpoint(sys.argv[4]); open(sys.argv[4] + '/rank0.safetensors', 'ab').write(b'x')", "its header says"),
            ("checkpoint(sys.argv[4]); open(sys.argv[4] + '/rank0.safetensors', 'wb')", "rank0.safetensors is empty"),
            ("checkpoint(sys.argv[4], dtype='float16')", "dtype is float16, not bfloat16"),
            ("checkpoint(sys.argv[4], quantization={'quant_algo': 'FP8'})", "quant_algo is FP8, not None"),
        ],
    )
    def test_a_checkpoint_that_is_not_what_was_asked_for(self, image: Image, tool: str, told: str) -> None:
        status, report, _ = convert(image, tool)
        assert (status, reason(report)) == (64, "OutputInvalid")
        assert told in message(report)
        assert not (image.scratch / "build.json").exists()

    def test_every_difference_of_an_engine_is_told_at_once(self, image: Image) -> None:
        status, report, _ = build(
            image, "engine(sys.argv[4], version='1.2.0', max_seq_len=2048)", quantAlgo="FP8", maxBatchSize=16
        )
        assert (status, reason(report)) == (64, "OutputInvalid")
        assert "version is 1.2.0, not 1.2.1" in message(report)
        assert "build_config.max_seq_len is 2048, not 1024" in message(report)
        assert "build_config.max_batch_size is 8, not 16" in message(report)
        assert "pretrained_config.quantization.quant_algo is None, not FP8" in message(report)


class TestFailures:
    def test_killed_with_sigkill(self, image: Image) -> None:
        status, report, _ = convert(image, "print('loading'); os.kill(os.getpid(), signal.SIGKILL)")
        assert (status, reason(report)) == (64, "HostMemoryExhausted")
        assert "convert_checkpoint.py was killed with SIGKILL" in message(report)

    def test_a_flag_that_argparse_refuses(self, image: Image) -> None:
        status, report, _ = build(image, "import argparse; argparse.ArgumentParser(prog='trtllm-build').parse_args()")
        assert (status, reason(report)) == (64, "FlagRefused")
        assert "unrecognized arguments: --checkpoint_dir /store/checkpoint-1" in message(report)

    def test_gpu_memory(self, image: Image) -> None:
        line = "Requested amount of GPU memory (24793579520 bytes) could not be allocated."
        status, report, _ = build(image, f"print({line!r}); sys.exit(1)")
        assert (status, reason(report)) == (64, "GpuMemoryExhausted")
        assert "23.09 GiB" in message(report)

    def test_a_full_scratch_volume_is_told_with_its_numbers(self, image: Image) -> None:
        status, report, _ = build(image, "raise OSError(28, os.strerror(28), '/scratch/output/rank0.engine')")
        assert (status, reason(report)) == (75, "NodeDiskFull")
        assert "GiB are free" in message(report)

    def test_a_traceback_ends_in_its_error(self, image: Image) -> None:
        _, report, output = convert(image, "raise ValueError('num_heads 9 is not divisible by 2')")
        assert reason(report) == "ToolFailed"
        assert message(report).endswith("exit status 1: ValueError: num_heads 9 is not divisible by 2")
        assert "Traceback" in output, "the log keeps what the message leaves out"

    def test_a_tool_the_image_lacks(self, image: Image) -> None:
        spec = {"artifact": "engine-1", "command": ["trtllm-build"], "output": str(image.scratch / "output")}
        status, report, _ = image.run("build", {**spec, "expected": EXPECTED, "gpu": None})
        assert (status, reason(report)) == (64, "ToolMissing")

    def test_another_gpu_than_the_engine_is_for(self, image: Image) -> None:
        image.has_gpus(A100)
        status, report, output = build(image, "print('must not run'); engine(sys.argv[4])")
        assert (status, reason(report)) == (75, "GpuMismatch")
        assert "NVIDIA-H100-80GB-HBM3 (compute capability 9.0)" in message(report)
        assert "NVIDIA A100-SXM4-80GB" in message(report)
        assert "must not run" not in output

    @pytest.mark.parametrize("nvidia_smi", ["import sys; sys.exit('NVIDIA-SMI has failed')", "pass"])
    def test_no_gpu_at_all(self, image: Image, nvidia_smi: str) -> None:
        image.command("nvidia-smi", nvidia_smi)
        status, report, _ = build(image, "pass")
        assert (status, reason(report)) == (75, "GpuUnavailable")

    def test_a_class_of_a_shared_gpu_is_the_gpu(self, image: Image) -> None:
        image.has_gpus(H100)
        image.command("trtllm-build", "import sys\nfrom artifacts import *\nengine(sys.argv[1])")
        spec = {"artifact": "engine-1", "command": ["trtllm-build", "{output}"], "expected": EXPECTED}
        shared = {**H100_CLASS, "product": "NVIDIA-H100-80GB-HBM3-SHARED"}
        status, _, output = image.run("build", {**spec, "output": str(image.scratch / "output"), "gpu": shared})
        assert status == 0, output


def test_sigterm_reaches_the_whole_build_and_may_be_repeated(image: Image, tmp_path: Path) -> None:
    image.command(
        "trtllm-build",
        """
        import multiprocessing, signal
        def worker(): signal.pause()
        process = multiprocessing.get_context("fork").Process(target=worker)
        process.start()
        print("worker", process.pid, flush=True)
        process.join()
        signal.pause()
        """,
    )
    spec = {"artifact": "engine-1", "command": ["trtllm-build"], "expected": EXPECTED, "gpu": H100_CLASS}
    process = image.start("build", {**spec, "output": str(image.scratch / "output")})
    assert process.stdout is not None
    line = next(line for line in process.stdout if line.startswith("worker"))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 75
    assert reason(json.loads(image.log.read_text())) == "Terminated"
    assert (
        not Path(f"/proc/{line.split()[1]}/cmdline").exists()
        or not Path(f"/proc/{line.split()[1]}/cmdline").read_bytes()
    ), "a worker of a stopped build must not go on"


class TestTrial:
    """After the checks of files, the engine itself: it has to load and to generate."""

    TRIAL = ("python3", "{output}/../run.py", "--engine_dir", "{output}", "--tokenizer_dir", "{model}")

    def try_engine(self, image: Image, script: str) -> tuple[int, dict[str, Any], str]:
        image.command("trtllm-build", "import sys\nfrom artifacts import *\nengine(sys.argv[4])")
        (image.scratch / "run.py").write_text(script)
        spec = {
            "artifact": "engine-1",
            "command": ["trtllm-build", "--checkpoint_dir", "{parent}", "--output_dir", "{output}"],
            "parent": "/store/checkpoint-1",
            "model": "/store/model-1",
            "output": str(image.scratch / "output"),
            "expected": EXPECTED,
            "trial": list(self.TRIAL),
            "gpu": H100_CLASS,
        }
        return image.run("build", spec)

    def test_an_engine_that_generates_is_proven(self, image: Image) -> None:
        script = "import sys; print(sys.argv[1:]); print('Output [Text 0 Beam 0]: \" there\"')"
        status, report, output = self.try_engine(image, script)
        assert status == 0, output
        assert report["result"]["generated"] is True
        assert f"['--engine_dir', '{image.scratch}/output', '--tokenizer_dir', '/store/model-1']" in output

    def test_an_engine_that_does_not_load_is_broken_and_says_why(self, image: Image) -> None:
        line = "Failed to deserialize cuda engine"
        status, report, _ = self.try_engine(image, f"print({line!r}); raise SystemExit(1)")
        assert (status, reason(report)) == (64, "EngineBroken")
        assert line in message(report)
        assert not (image.scratch / "build.json").exists(), "nothing is left that could be published"

    def test_exit_status_0_without_a_token_is_not_enough(self, image: Image) -> None:
        status, report, _ = self.try_engine(image, "print('bye')")
        assert (status, reason(report)) == (64, "EngineBroken")
        assert "generated nothing" in message(report)


class TestProgress:
    def test_the_rank_being_made_is_said(self, image: Image) -> None:
        tool = (
            "import time\nout = Path(sys.argv[4])\ncheckpoint(out)\nsecond = out / 'rank1.safetensors'\n"
            "data = second.read_bytes(); second.unlink(); time.sleep(1.5); second.write_bytes(data); time.sleep(1.5)"
        )
        status, _, output = convert(image, tool)
        assert status == 0, output
        events = [json.loads(line) for line in output.splitlines() if line.startswith('{"event": "rank"')]
        assert {"event": "rank", "rank": 2, "ranks": 2} in events

    def test_a_failure_brings_its_last_lines_without_secrets(self, image: Image) -> None:
        _, report, _ = convert(image, "print('token hf_abcdefghijklmno given'); print('last words'); sys.exit(3)")
        assert report["failure"]["log"].splitlines()[-2:] == ["token *** given", "last words"]

    def test_a_long_log_is_cut_before_the_message(self, image: Image) -> None:
        tool = "print('x' * 3000); print('The cause is here. ' * 60); sys.exit(3)"
        _, report, _ = convert(image, tool)
        assert "The cause is here." in message(report)
