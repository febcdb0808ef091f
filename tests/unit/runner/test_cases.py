"""Public reports about what tools and servers print when they fail, by their number: what a person is told of it."""

from __future__ import annotations

import signal

import pytest

from trtllm_operator.runner.child import Outcome
from trtllm_operator.runner.classify import known_failure, tool_failure
from trtllm_operator.runner.memory import HostMemory
from trtllm_operator.runner.report import StepError
from trtllm_operator.runner.serve import server_failure

from .conftest import Image
from .test_produce import build
from .test_serve import Server, server

__all__ = ["server"]

H200 = {
    "engine": "engine-1",
    "gpu": "NVIDIA-H200",
    "computeCapability": "9.0",
    "builtBy": "0.10.0",
    "release": "0.11.0",
}


def ended(*lines: str, status: int = 1) -> Outcome:
    return Outcome(status, lines, (), 12.0, 0, None)


def serving(*lines: str, status: int = 1, **seen: str) -> StepError:
    """A server of an engine that its record says was built for compute capability 9.0."""
    return server_failure(ended(*lines, status=status), HostMemory(), HostMemory(), H200 | seen)


def building(*lines: str) -> StepError:
    return tool_failure("trtllm-build", ended(*lines), HostMemory(), HostMemory())


class TestAnEngineThatIsNotWhatItsRecordSays:
    @pytest.mark.parametrize("line", ["expecting compute 9.0 got compute 8.9", "expecting compute 8.9 got compute 9.0"])
    def test_c16_the_gpu_says_which_number_is_the_device(self, line: str) -> None:
        """Public logs have both orders."""
        told = serving(f"The engine plan file is generated on an incompatible device, {line}, please rebuild.")
        assert told.reason == "EngineMismatch"
        assert "is for compute capability 8.9, and NVIDIA-H200 has 9.0" in told.message
        assert "not what its record says" in told.message
        assert (told.artifact, told.retryable) == ("engine-1", True), "it is put aside, and nobody has to act"

    def test_c16_neither_number_is_taken_for_the_device_where_that_is_another(self) -> None:
        told = serving("expecting compute 9.0 got compute 8.9", computeCapability="10.0")
        assert "different compute capabilities, 9.0 and 8.9" in told.message

    @pytest.mark.parametrize(("runtime", "engine", "age"), [(228, 237, "older"), (228, 226, "newer")])
    def test_c17_another_tensorrt_is_told_with_both_tags(self, runtime: int, engine: int, age: str) -> None:
        told = serving(
            "[TRT] [E] IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
            "stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match. Note: Current Version: "
            f"{runtime}, Serialized Engine Version: {engine})",
            "[TensorRT-LLM][ERROR] Assertion failed: Failed to deserialize cuda engine.",
        )
        assert told.reason == "VersionMismatch"
        assert f"runtime tag {runtime}, engine tag {engine}: the serving image is {age} than the build image" in (
            told.message
        )
        assert "one image to build and to serve, or build the engine again" in told.message
        assert told.artifact == "engine-1"

    def test_c22_a_key_of_another_schema_is_a_version_mismatch_with_both_versions(self) -> None:
        line = "[json.exception.out_of_range.403] key 'use_context_fmha_for_generation' not found"
        told = serving(f"E0101 failed to load 'tensorrt_llm' version 1: Internal: {line}")
        assert told.reason == "VersionMismatch"
        assert "no key use_context_fmha_for_generation" in told.message
        assert "built by TensorRT-LLM 0.10.0, and this image has 0.11.0" in told.message
        assert told.artifact is None, "another build by the same image would be read no better"
        assert building(line).reason == "ToolFailed"


def test_c19_a_library_of_another_version_than_the_engine_is_found_before_triton_starts(server: Server) -> None:
    """By what the engine's config.json and the image's library say, whatever the image is called."""
    server.image.has_library("1.1.0")
    status, reason, message = server.fails()
    assert (status, reason) == (64, "VersionMismatch")
    assert "built by TensorRT-LLM 1.2.1; this image has 1.1.0" in message


@pytest.mark.parametrize(
    ("built_with", "told"),
    [
        ({"tensorrtVersion": "10.14.1.48"}, "built with TensorRT 10.14.1.48; this image has 10.13.3.9"),
        ({"tensorrtVersion": "10.13.3.9"}, "it got this far"),
        ({}, "it got this far"),
    ],
    ids=["another", "the same", "built before that was recorded"],
)
def test_c19_a_tensorrt_of_another_version_is_found_before_triton_starts(
    image: Image, built_with: dict[str, str], told: str
) -> None:
    """Report 8462: an image that was labeled as newer had TensorRT 10.13.3.9, and the engine was of 10.14.1.48."""
    image.has_library("1.2.1", tensorrt="10.13.3.9")
    server = Server(image, **built_with)
    image.command("tritonserver", "print('E0101 it got this far')")
    assert told in server.fails()[2]


def test_c19_a_build_records_the_tensorrt_of_its_image(image: Image) -> None:
    image.has_library("1.2.1", tensorrt="10.14.1.48")
    _, report, output = build(image, "engine(sys.argv[4])")
    assert report["result"]["tensorrtVersion"] == "10.14.1.48", output


@pytest.mark.parametrize(
    "line",
    [
        "MPI size 1 != TP size 2 * PP size 1",
        "Assertion failed: mpiSize == tp * pp",
        "Engine world size (2 * 1) != Runtime world size (1)",
        "Engine world size (1) != Runtime world size (8)",
    ],
)
def test_c20_world_sizes_in_four_wordings_are_one_reason(line: str) -> None:
    told = serving(line)
    assert told.reason == "WorldSizeMismatch"
    assert line in told.message, "with both numbers, where it has them"


class TestVocabulary:
    @pytest.mark.parametrize(
        "line",
        [
            "AssertionError: The value updated is not the same shape as the original. Updated: (32064, 4096), "
            "original: (32016, 4096)",
            "size mismatch for lm_head.weight: copying a param with shape torch.Size([32016, 4096]) from checkpoint, "
            "the shape in current model is torch.Size([32064, 4096]).",
        ],
    )
    def test_c43_padding_of_one_table_alone_is_named_by_its_shapes(self, line: str) -> None:
        assert (32016 % 64, -(-32016 // 64) * 64) == (16, 32064)
        told = building(line)
        assert told.reason == "VocabularyPadding"
        assert "32064 against 32016, which is the next multiple of 64" in told.message

    @pytest.mark.parametrize(
        ("updated", "original"),
        [
            ("32002, 4096", "32000, 4096"),  # two tokens were added: NVIDIA/TensorRT-LLM#561
            ("4096, 2048", "4096, 4096"),  # a rank's share
            ("32064, 4096", "32016, 2048"),
            ("32064", "32016, 4096"),
            ("104", "100"),
        ],
    )
    def test_c43_other_shapes_are_no_padding(self, updated: str, original: str) -> None:
        line = f"The value updated is not the same shape as the original. Updated: ({updated}), original: ({original})"
        assert building(line).reason == "ToolFailed"


class TestTokenizer:
    @pytest.mark.parametrize(
        "line",
        [
            "OSError: tensorrt_llm/tokenizer is not a local folder and is not a valid model identifier listed on "
            "'https://huggingface.co/models'",
            "OSError: Can't load tokenizer for '/store/model-1'. If you were trying to load it from the hub, make sure",
            "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/tokenizer'",
        ],
    )
    def test_c66_a_tokenizer_that_is_not_found_is_no_fault_of_the_engine(self, line: str) -> None:
        told = serving(f"E0101 failed to load 'preprocessing' version 1: Internal: {line}")
        assert told.reason == "TokenizerMissing"
        assert "The engine is not at fault" in told.message
        assert told.artifact is None, "and it is not built again"

    def test_c66_a_tokenizer_that_is_gone_is_found_before_triton_starts(self, server: Server) -> None:
        server.publish("model-2", "Model", {"config.json": "{}", "tokenizer_config.json": "{}"})
        assert server.fails(tokenizer=str(server.store.directory("model-2")))[:2] == (64, "TokenizerMissing")

    def test_c67_a_class_that_is_none_of_transformers_is_named_as_that(self) -> None:
        told = serving("ValueError: Tokenizer class QWenTokenizer does not exist or is not currently imported.")
        assert told.reason == "TokenizerMissing"
        assert "code of the model's repository, which is never fetched" in told.message


class TestTemplates:
    def test_c72_a_placeholder_for_a_bare_value_that_is_left_ends_the_rendering(self, server: Server) -> None:
        status, reason, message = server.fails(models={"tensorrt_llm": {}})
        assert (status, reason) == (64, "TemplateMismatch")
        assert "the template of tensorrt_llm in this image needs " in message

    def test_c72_an_unfilled_placeholder_is_named_with_model_line_and_column(self) -> None:
        told = serving(
            "[libprotobuf ERROR google/protobuf/text_format.cc:337] Error parsing text-format inference.ModelConfig: "
            "322:16: Expected integer or identifier, got: $",
            "E0101 model_repository_manager.cc:1335] Poll failed for model directory 'tensorrt_llm': failed to read "
            "text proto from /repository/tensorrt_llm/config.pbtxt",
        )
        assert told.reason == "TemplateMismatch"
        assert "of tensorrt_llm at line 322, column 16 (Expected integer or identifier, got: $)" in told.message
        assert "placeholder was left unfilled" in told.message

    def test_c75_a_batch_of_none_is_a_fault_of_the_template(self) -> None:
        told = serving("E0101 model 'preprocessing' cannot have empty reshape for non-batching model")
        assert told.reason == "TemplateMismatch"
        assert "max_batch_size 0" in told.message


class TestSharedMemory:
    def test_c77_a_region_that_does_not_fit_is_certain(self) -> None:
        told = serving("Unable to initialize shared memory key 'prefix0_1' to requested size (67108864 bytes)")
        assert told.reason == "SharedMemoryExhausted"
        assert "is too small" in told.message
        assert "possible cause" not in told.message

    @pytest.mark.parametrize(
        "outcome",
        [
            ended("mpirun noticed that process rank 0 exited on signal 7 (Bus error).", status=135),
            ended("Signal: Bus error (7)", status=1),
            ended("loading", status=-signal.SIGBUS),
            ended("loading", status=128 + signal.SIGBUS),
        ],
    )
    def test_c77_a_bus_error_may_be_shared_memory(self, outcome: Outcome) -> None:
        told = server_failure(outcome, HostMemory(), HostMemory(), H200)
        assert told.reason == "SharedMemoryExhausted"
        assert "possible cause" in told.message

    def test_c77_a_bus_error_of_a_build_is_a_crash(self) -> None:
        told = tool_failure("trtllm-build", ended("loading", status=-signal.SIGBUS), HostMemory(), HostMemory())
        assert told.reason == "Crashed"


def test_what_only_a_server_says_is_not_read_into_a_build() -> None:
    assert known_failure("it failed", ["Failed to deserialize cuda engine"]) is None
    failure = known_failure("it failed", ["Failed to deserialize cuda engine"], server=True)
    assert failure is not None
    assert failure.reason == "EngineCorrupted"
