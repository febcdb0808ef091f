"""Arithmetic against textbook exercises, published parameter counts and published build logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.planning.build import SMOLLM2, engine_spec, llama
from trtllm_operator.catalog import load_catalog
from trtllm_operator.planning import ModelFacts, TargetGpu, judge, read_config
from trtllm_operator.planning.memory import tokens_in_pool
from trtllm_operator.planning.terms import GIB, MIB, bytes_text

CATALOG = load_catalog()
RELEASE = CATALOG.release("1.2.1")
H100 = TargetGpu("NVIDIA-H100-80GB-HBM3", "9.0", 81559, gpus_per_node=8, peer_access=True)


def test_textbook_forty_layers_of_width_5120_at_sixteen_bits() -> None:
    facts = llama(40, 40, 40, 5120, 13824, 32000)
    per_token = judge(engine_spec(), facts, RELEASE, H100).memory.kv_bytes_per_token.value
    assert per_token == 819_200
    assert per_token * 4096 == 3_355_443_200


@pytest.mark.parametrize(
    ("pool", "kv_cache", "requests"),
    [(48 * 10**9, "auto", 14), (48 * GIB, "auto", 15), (48 * 10**9, "fp8", 28), (48 * GIB, "fp8", 30)],
)
def test_textbook_requests_of_4096_tokens_in_48_gigabytes(pool: int, kv_cache: str, requests: int) -> None:
    facts = llama(40, 40, 40, 5120, 13824, 32000)
    spec = engine_spec(quantization="fp8", kv_cache=kv_cache)
    per_token = judge(spec, facts, RELEASE, H100).memory.kv_bytes_per_token.value
    assert tokens_in_pool(pool, per_token, 32) // 4096 == requests


def test_textbook_thirty_two_layers_of_width_4096() -> None:
    facts = llama(32, 32, 32, 4096, 11008, 32000)
    assert judge(engine_spec(), facts, RELEASE, H100).memory.kv_bytes_per_token.value == 524_288


def test_smollm2_needs_23040_bytes_a_token() -> None:
    facts = read_config(SMOLLM2, None)
    assert judge(engine_spec(), facts, RELEASE, H100).memory.kv_bytes_per_token.value == 23_040


LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}


@pytest.mark.parametrize(
    ("facts", "published"),
    [
        (read_config(SMOLLM2, None), 134_515_008),
        (llama(32, 32, 32, 4096, 11008, 32000), 6_738_415_616),
        (llama(40, 40, 40, 5120, 13824, 32000), 13_015_864_320),
        (llama(80, 64, 8, 8192, 28672, 32000), 68_976_648_192),
        (llama(32, 32, 8, 4096, 14336, 128256), 8_030_261_248),
        (llama(80, 64, 8, 8192, 28672, 128256), 70_553_706_496),
        (llama(126, 128, 8, 16384, 53248, 128256), 405_853_388_800),
        (llama(40, 32, 8, 5120, 14336, 131072, head_dim=128), 12_247_782_400),
        (llama(16, 32, 8, 2048, 8192, 128256, head_dim=64, tie_word_embeddings=True), 1_235_814_400),
        (llama(28, 16, 16, 3072, 24576, 256000, head_dim=256, tie_word_embeddings=True), 8_537_680_896),
        (llama(27, 16, 16, 2048, 10944, 102400, **LATENT, n_routed_experts=64, n_shared_experts=2,
               moe_intermediate_size=1408, first_k_dense_replace=1), 15_706_484_224),
        # 671,026,419,200 with the 256 biases of the router of each of 58 layers.
        (llama(61, 128, 128, 7168, 18432, 129280, **LATENT, q_lora_rank=1536, n_routed_experts=256, n_shared_experts=1,
               moe_intermediate_size=2048, first_k_dense_replace=3), 671_026_419_200 - 58 * 256),
    ],
)  # fmt: skip
def test_parameters_from_dimensions_are_the_published_count(facts: ModelFacts, published: int) -> None:
    assert facts.parameter_count == published


@pytest.mark.parametrize(
    ("tp", "kv_per_token"), [(1, 320 * 1024), (2, 160 * 1024), (4, 80 * 1024), (8, 40 * 1024), (16, 40 * 1024)]
)
def test_llama_3_70b_cache_by_tensor_parallel_size(tp: int, kv_per_token: int) -> None:
    facts = llama(80, 64, 8, 8192, 28672, 128256)
    assert judge(engine_spec(tp=tp), facts, RELEASE, H100).memory.kv_bytes_per_token.value == kv_per_token


def test_published_log_of_an_fp8_engine_of_llama_2_7b() -> None:
    """docs/source/reference/memory.md: engine 6,695 MiB, 70.48 GiB free before the cache, 4,060 blocks of 64."""
    facts = llama(32, 32, 32, 4096, 11008, 32000)
    spec = engine_spec(quantization="fp8", kv_cache="fp8", num_tokens=8192, batch=256, seq_len=4096)
    memory = judge(spec, facts, RELEASE, H100).memory
    assert memory.kv_bytes_per_token.value == 262_144
    assert memory.weights.value == pytest.approx(6695 * MIB, rel=0.1)
    assert memory.free is not None
    assert memory.free.value == pytest.approx(70.48 * GIB, rel=0.02)
    assert tokens_in_pool(int(0.9 * 70.48 * GIB), 262_144, 64) == pytest.approx(4060 * 64, abs=64)


@dataclass(frozen=True)
class BuildLog:
    """A published build: what the engine weighs and the peak of host memory."""

    name: str
    facts: ModelFacts
    quantization: str
    engine_bytes: float
    host_peak_bytes: float
    dtype: str = "float16"


LOGS = [
    BuildLog(
        "GPT-2 fp16",
        llama(12, 12, 12, 768, 3072, 50257, model_type="gpt2", tie_word_embeddings=True),
        "none",
        124_439_808 * 2,
        6600 * MIB,
    ),
    BuildLog(
        "Falcon-RW-1B fp16",
        llama(24, 32, 32, 2048, 8192, 50304, model_type="falcon", tie_word_embeddings=True),
        "none",
        1_311_625_216 * 2,
        10624 * MIB,
    ),
    BuildLog("ChatGLM3-6B fp16", llama(28, 32, 2, 4096, 13696, 65024), "none", 6_243_584_000 * 2, 29706 * MIB),
    BuildLog(
        "Command-R 35B fp16",
        llama(40, 64, 64, 8192, 22528, 256000, tie_word_embeddings=True),
        "none",
        34_980_831_232 * 2,
        176260 * MIB,
    ),
    BuildLog("Llama-3-8B bf16", llama(32, 32, 8, 4096, 14336, 128256), "none", 15317 * MIB, 38513 * MIB, "bfloat16"),
    BuildLog(
        "Qwen2.5-1.5B",
        llama(28, 12, 2, 1536, 8960, 151936, tie_word_embeddings=True),
        "none",
        3.0 * GIB,
        10_053e6,
        "bfloat16",
    ),
    BuildLog(
        "Llama-3.2-1B int8 weight-only",
        llama(16, 32, 8, 2048, 8192, 128256, head_dim=64, tie_word_embeddings=True),
        "int8_wo",
        2.0e9,
        10_422e6,
    ),
    # The log does not name this model; these dimensions have its size.
    BuildLog(
        "0.76 billion, bf16", llama(28, 16, 8, 1024, 3072, 151936, head_dim=128), "none", 1.52e9, 5_799e6, "bfloat16"
    ),
    BuildLog(
        "0.76 billion, int8", llama(28, 16, 8, 1024, 3072, 151936, head_dim=128), "int8_wo", 1.09e9, 4_628e6, "bfloat16"
    ),
]


def row(log: BuildLog) -> str:
    """The log's row of the table in docs/arithmetic.md."""
    plan = judge(engine_spec(quantization=log.quantization, dtype=log.dtype), log.facts, RELEASE, H100)
    weights, host = plan.memory.weights.value, plan.building.build_host.value
    return (
        f"| {log.name} | {log.engine_bytes / 1e9:.2f} | {weights / 1e9:.2f} | "
        f"{100 * (weights / log.engine_bytes - 1):+.1f}% | {log.host_peak_bytes / 1e9:.1f} | {host / 1e9:.1f} | "
        f"{host / log.host_peak_bytes:.2f} |"
    )


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_the_table_in_the_docs_is_what_the_planner_computes(log: BuildLog) -> None:
    assert row(log) in (Path(__file__).parents[3] / "docs" / "arithmetic.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_weights_are_within_ten_percent_of_the_published_engine(log: BuildLog) -> None:
    spec = engine_spec(quantization=log.quantization, dtype=log.dtype)
    weights = judge(spec, log.facts, RELEASE, H100).memory.weights
    assert weights.value == pytest.approx(log.engine_bytes, rel=0.1), weights.formula


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_host_memory_is_never_below_the_published_peak_and_at_most_1_6_times(log: BuildLog) -> None:
    spec = engine_spec(quantization=log.quantization, dtype=log.dtype)
    host = judge(spec, log.facts, RELEASE, H100).building.build_host
    assert log.host_peak_bytes <= host.value <= 1.6 * log.host_peak_bytes, host.formula


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (512, "512 B"), (448 * MIB, "448 MiB"), (int(37.37 * GIB), "37.37 GiB")]
)
def test_bytes_are_written_for_people(value: int, text: str) -> None:
    assert bytes_text(value) == text
