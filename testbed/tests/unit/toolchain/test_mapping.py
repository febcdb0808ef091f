"""Which rank holds what."""

import pytest
from trtllm_standin.mapping import Mapping, check_divisible, kv_heads_of_rank, pad_vocabulary


@pytest.mark.parametrize(("layers", "pp_size"), [(30, 1), (30, 4), (7, 3), (3, 3)])
def test_pipeline_stages_hold_every_layer_once(layers: int, pp_size: int) -> None:
    stages = [Mapping(1, pp_size, rank).layers(layers) for rank in range(pp_size)]
    assert [layer for stage in stages for layer in stage] == list(range(layers))
    assert max(map(len, stages)) - min(map(len, stages)) <= 1


def test_ranks_of_one_stage_stand_together() -> None:
    ranks = [Mapping(2, 3, rank) for rank in range(6)]
    assert [(rank.pp_rank, rank.tp_rank) for rank in ranks] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [rank.is_last_stage for rank in ranks] == [False] * 4 + [True] * 2


@pytest.mark.parametrize(
    ("kv_heads", "tp_size", "expected"),
    [(4, 2, [[0, 1], [2, 3]]), (2, 4, [[0], [0], [1], [1]]), (1, 3, [[0], [0], [0]])],
)
def test_kv_heads_are_split_or_duplicated(kv_heads: int, tp_size: int, expected: list[list[int]]) -> None:
    assert [list(kv_heads_of_rank(kv_heads, tp_size, rank)) for rank in range(tp_size)] == expected


@pytest.mark.parametrize(
    ("tp_size", "heads", "kv_heads", "intermediate", "message"),
    [
        (2, 9, 3, 1536, "num_attention_heads must be divisible by tp_size"),
        (6, 12, 4, 1536, "tp_size must be divisible by num_key_value_heads"),
        (2, 6, 3, 1536, "num_key_value_heads must be divisible by tp_size"),
        (3, 9, 3, 1000, "intermediate_size must be divisible by tp_size"),
    ],
)
def test_what_cannot_be_cut_is_refused(
    tp_size: int, heads: int, kv_heads: int, intermediate: int, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check_divisible(
            tp_size=tp_size, num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=intermediate
        )


def test_the_vocabulary_is_padded_to_the_next_multiple() -> None:
    assert [pad_vocabulary(50, tp) for tp in (1, 2, 3, 4)] == [50, 50, 51, 52]
