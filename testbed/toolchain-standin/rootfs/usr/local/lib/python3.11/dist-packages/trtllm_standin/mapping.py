"""Which part of the network a rank holds, and the rules a parallel mapping must keep."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mapping:
    """Tensor and pipeline parallelism. Rank = pp_rank * tp_size + tp_rank."""

    tp_size: int = 1
    pp_size: int = 1
    rank: int = 0

    @property
    def world_size(self) -> int:
        return self.tp_size * self.pp_size

    @property
    def tp_rank(self) -> int:
        return self.rank % self.tp_size

    @property
    def pp_rank(self) -> int:
        return self.rank // self.tp_size

    @property
    def is_first_stage(self) -> bool:
        return self.pp_rank == 0

    @property
    def is_last_stage(self) -> bool:
        return self.pp_rank == self.pp_size - 1

    def layers(self, num_hidden_layers: int) -> range:
        """Layers of this rank's pipeline stage; earlier stages take one more where the division leaves a rest."""
        base, rest = divmod(num_hidden_layers, self.pp_size)
        begin = self.pp_rank * base + min(self.pp_rank, rest)
        return range(begin, begin + base + (self.pp_rank < rest))


def check_divisible(
    *, tp_size: int, num_attention_heads: int, num_key_value_heads: int, intermediate_size: int
) -> None:
    """The assertions that the real layers make.

    Raises:
        AssertionError: the heads or the MLP cannot be cut into tp_size parts.
    """
    assert num_attention_heads % tp_size == 0, (
        f"num_attention_heads must be divisible by tp_size ({num_attention_heads} % {tp_size} != 0)"
    )
    if num_key_value_heads < tp_size:
        assert tp_size % num_key_value_heads == 0, (
            f"tp_size must be divisible by num_key_value_heads to duplicate heads "
            f"({tp_size} % {num_key_value_heads} != 0)"
        )
    else:
        assert num_key_value_heads % tp_size == 0, (
            f"num_key_value_heads must be divisible by tp_size ({num_key_value_heads} % {tp_size} != 0)"
        )
    assert intermediate_size % tp_size == 0, (
        f"intermediate_size must be divisible by tp_size ({intermediate_size} % {tp_size} != 0)"
    )


def kv_heads_of_rank(num_key_value_heads: int, tp_size: int, tp_rank: int) -> range:
    """Key/value heads of one tensor-parallel rank; with more ranks than heads, neighbours hold the same head."""
    if num_key_value_heads < tp_size:
        head = tp_rank * num_key_value_heads // tp_size
        return range(head, head + 1)
    per_rank = num_key_value_heads // tp_size
    return range(tp_rank * per_rank, (tp_rank + 1) * per_rank)


def pad_vocabulary(vocab_size: int, tp_size: int) -> int:
    """Vocabulary rows including the padding that makes it divisible by tp_size."""
    return -(-vocab_size // tp_size) * tp_size
