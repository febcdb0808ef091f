"""spec.build.extraFlags: what the catalog's list lets through, with what is said of the rest."""

from __future__ import annotations

import pytest

from tests.unit.planning.build import SMOLLM2, engine_spec
from trtllm_operator.api.build import Build, ExtraFlag
from trtllm_operator.api.llmengine import LLMEngineSpec
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning import build_command, read_config
from trtllm_operator.planning.target_gpu import TargetGpu
from trtllm_operator.planning.verdict import judge

CATALOG = load_catalog()
RELEASE = CATALOG.release("1.2.1")
FACTS = read_config(SMOLLM2, None)  # bfloat16


def with_flags(*flags: tuple[str, str | None], quantization: str = "none") -> LLMEngineSpec:
    build = Build(extra_flags=tuple(ExtraFlag(name=name, value=value) for name, value in flags))
    return engine_spec(quantization=quantization).model_copy(update={"build": build})


def refusals(spec: LLMEngineSpec, release: str = "1.2.1") -> list[str]:
    known = CATALOG.gpu("NVIDIA-H100-80GB-HBM3")
    assert known is not None
    plan = judge(spec, FACTS, CATALOG.release(release), TargetGpu.of(known, "NVIDIA-H100-80GB-HBM3"))
    return [str(check) for check in plan.errors if check.id == "extra-flags"]


@pytest.mark.parametrize(
    "flag",
    [
        ("--reduce_fusion", "enable"),
        ("--gemm_plugin", "bfloat16"),
        ("--gemm_plugin", "disable"),
        ("--opt_num_tokens", "512"),
        ("--weight_sparsity", None),
        ("--profiling_verbosity", "detailed"),
    ],
)
def test_flags_of_the_list_pass_and_reach_the_command(flag: tuple[str, str | None]) -> None:
    spec = with_flags(flag)
    assert refusals(spec) == []
    words = " ".join(filter(None, flag))
    line = " ".join(build_command(spec, FACTS, RELEASE))
    assert words in line
    assert line.count(f"{flag[0]} ") + line.endswith(flag[0]) == 1, "the user's value stands in place of the operator's"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (("--max_batch_size", "4"), "it is set by spec.budgets.maxBatchSize"),
        (("--workers", "4"), "it is set by spec.build.workers"),
        (("--model_cls_file", "x.py"), "cannot be given"),
        (("--output_timing_cache", "x"), "cannot be given"),
        (("--builder_opt", "5"), "release 1.2.1 has no flag --builder_opt"),
        (("--reduce_fusion", "true"), "takes enable or disable, not true"),
        (("--opt_num_tokens", "many"), "takes a whole number, not many"),
        (("--gemm_plugin", "float8"), "it takes auto, float16, float32, bfloat16"),
        (("--weight_sparsity", "enable"), "takes no value"),
        (("--reduce_fusion", None), "needs a value; it takes enable, disable"),
        (("--gemm_plugin", "fp8"), "needs weights quantized as FP8"),
    ],
)
def test_the_rest_is_refused_with_what_would_do(flag: tuple[str, str | None], words: str) -> None:
    (refusal,) = refusals(with_flags(flag))
    assert words in refusal


def test_c29_a_plugin_of_another_type_than_the_model_s_is_refused() -> None:
    (refusal,) = refusals(with_flags(("--gemm_plugin", "float16")))
    for words in ("differs from the model's type bfloat16", "--gemm_plugin auto", "precision.dtype float16"):
        assert words in refusal


def test_c61_a_flag_is_judged_by_the_release_it_is_for() -> None:
    spec = with_flags(("--user_buffer", "enable"))
    assert refusals(spec, "1.2.1") == []
    assert "has no flag --user_buffer" in refusals(spec, "0.15.0")[0]


def test_an_fp8_plugin_goes_with_fp8_weights() -> None:
    assert refusals(with_flags(("--gemm_plugin", "fp8"), quantization="fp8")) == []


def test_every_problem_is_said_at_once() -> None:
    spec = with_flags(("--max_batch_size", "4"), ("--reduce_fusion", "yes"), ("--nothing", "1"))
    assert len(refusals(spec)) == 3


def test_two_that_exclude_each_other() -> None:
    (refusal,) = refusals(with_flags(("--multiple_profiles", "enable"), ("--opt_num_tokens", "64")))
    assert "excludes" in refusal


def test_without_flags_the_command_is_what_it_was() -> None:
    assert build_command(with_flags(), FACTS, RELEASE) == build_command(engine_spec(), FACTS, RELEASE)
