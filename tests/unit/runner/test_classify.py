from __future__ import annotations

import dataclasses
import signal

import pytest

from trtllm_operator.runner.child import Outcome
from trtllm_operator.runner.classify import last_words, tool_failure
from trtllm_operator.runner.memory import HostMemory
from trtllm_operator.runner.report import StepError

GIB = 1 << 30
LIMITED = HostMemory(limit_bytes=16 * GIB, peak_bytes=16 * GIB, oom_kills=0)


def ended(status: int, *tail: str, signalled: int | None = None) -> Outcome:
    return Outcome(status, tail, (), 12.0, 15 * GIB, signalled)


def failure(outcome: Outcome, after: HostMemory = LIMITED) -> StepError:
    return tool_failure("trtllm-build", outcome, LIMITED, after)


class TestHostMemory:
    """A conversion that is killed without a traceback: https://github.com/NVIDIA/TensorRT-LLM/issues/2539, /102."""

    @pytest.mark.parametrize(
        "outcome",
        [ended(-signal.SIGKILL, "loading 3/4"), ended(137, "Killed"), ended(1, "saving", "Killed")],
        ids=["killed", "a shell's word for it", "a child of it was killed"],
    )
    def test_a_tool_killed_with_sigkill_most_likely_ran_out_of_host_memory(self, outcome: Outcome) -> None:
        told = failure(outcome)
        assert told.reason == "HostMemoryExhausted"
        assert "most likely" in told.message
        assert "limit is 16.00 GiB" in told.message
        assert "spec.build.resources.limits.memory" in told.message
        assert "24Gi" in told.message
        assert not told.retryable

    def test_what_the_kernel_has_counted_is_certain(self) -> None:
        told = failure(ended(1, "BrokenProcessPool"), dataclasses.replace(LIMITED, oom_kills=1))
        assert told.reason == "HostMemoryExhausted"
        assert "most likely" not in told.message

    def test_without_a_limit_the_advice_is_a_request(self) -> None:
        assert "requests.memory" in failure(ended(-signal.SIGKILL), HostMemory()).message

    def test_a_failure_of_its_own_is_not_memory(self) -> None:
        assert failure(ended(1, "ValueError: no")).reason == "ToolFailed"


def test_flags_the_release_does_not_know() -> None:
    """https://github.com/NVIDIA/TensorRT-LLM/issues/1840"""
    line = "convert_checkpoint.py: error: unrecognized arguments: --remove_input_padding --world_size 8"
    told = failure(ended(2, "usage: convert_checkpoint.py [-h]", line))
    assert told.reason == "FlagRefused"
    assert "unrecognized arguments: --remove_input_padding --world_size 8" in told.message
    assert not told.retryable


def test_a_build_that_needs_more_gpu_memory_says_how_much_was_asked_for() -> None:
    """https://github.com/NVIDIA/TensorRT-LLM/issues/346"""
    told = failure(
        ended(
            1,
            "[TRT] [W] Requested amount of GPU memory (24793579520 bytes) could not be allocated. Skipping tactic",
            "[TRT] [E] [virtualMemoryBuffer.cpp::resizePhysical::127] Error Code 2: OutOfMemory",
            "AssertionError: Engine building failed, please check error log.",
        )
    )
    assert told.reason == "GpuMemoryExhausted"
    assert "24793579520 bytes (23.09 GiB)" in told.message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "GpuMemoryExhausted"),
        ("OSError: [Errno 28] No space left on device: '/scratch/output/rank0.engine'", "DiskFull"),
        ("AssertionError: Unsupported model architecture: MambaForCausalLM", "ArchitectureUnsupported"),
        ("[TensorRT-LLM][ERROR] Assertion failed: Unsupported architecture", "GpuUnsupported"),
        ("pre SM 80 GPUs do not support bfloat16", "PrecisionUnsupported"),
        ("could not find any supported formats consistent with input/output data types", "PluginMismatch"),
        ("RuntimeError: Paged Context FMHA doesn't work with int8 kv cache currently.", "PluginMismatch"),
        ("[ERROR] FMHA kernels are not found (kernel meta info: 8 1)", "KernelMissing"),
        ("RuntimeError: Required but not provided tensors:{'lm_head.weight'}", "CheckpointBroken"),
        ("ConnectionError: Couldn't reach 'cnn_dailymail' on the Hub (offline)", "CalibrationUnavailable"),
        ("CUDA driver version is insufficient for CUDA runtime version", "DriverTooOld"),
        ("CUDA error: uncorrectable ECC error encountered", "GpuUnhealthy"),
        ("Networks with FP8 precision require hardware with FP8 support", "PrecisionUnsupported"),
        ("AssertionError: Engine building failed, please check error log.", "ToolFailed"),
        ("Failed to deserialize cuda engine", "ToolFailed"),
    ],
)
def test_messages_that_are_known(line: str, reason: str) -> None:
    told = failure(ended(1, "before", line))
    assert told.reason == reason
    assert line in told.message


def test_a_crash_names_its_signal_and_is_not_repeated() -> None:
    told = failure(ended(-signal.SIGSEGV, "[TRT] [I] building"))
    assert told.reason == "Crashed"
    assert "SIGSEGV" in told.message
    assert not told.retryable


def test_a_tool_that_is_not_in_the_image() -> None:
    assert failure(ended(127, "trtllm-build: command not found")).reason == "ToolMissing"


def test_a_build_that_was_stopped_may_be_repeated() -> None:
    told = failure(ended(-signal.SIGTERM, "Killed", signalled=signal.SIGTERM))
    assert (told.reason, told.retryable) == ("Terminated", True)
    assert "SIGTERM after 12 s" in told.message


def test_the_last_words_of_a_traceback_are_its_error() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/app/convert_checkpoint.py", line 3, in <module>',
        "    main()",
        "    ^^^^^^",
        "ValueError: num_heads 9 is not divisible by 2",
        " 43%|████      | 3/7 [00:01<00:02]",
    ]
    assert last_words(lines) == "ValueError: num_heads 9 is not divisible by 2"


def test_without_an_error_the_last_lines_stand() -> None:
    assert last_words(["one", "", "two"]) == "one; two"
    assert last_words([]) == "it printed nothing"
