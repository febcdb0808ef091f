"""The Llama network on the CPU, cut as the engine's mapping says.

Every tensor-parallel rank multiplies by its own shard only; partial results are summed where the GPUs would all-reduce,
and the vocabulary's parts are concatenated where they would all-gather. So a rank's file in another rank's place gives
a wrong answer. Arithmetic is float32 on weights that were rounded to the engine's format.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .dtypes import E4M3_MAX, Floats, Tensor, round_e4m3, widen
from .kv_cache import SequenceCache, round_to_cache
from .mapping import Mapping as RankMapping
from .mapping import kv_heads_of_rank
from .quantization import FP8_ALGORITHMS, dequantize_linear

TokenIds = npt.NDArray[np.int64]
QUERY_CHUNK = 512  # queries whose scores are held at once; bounds memory for long prompts


@dataclass(frozen=True)
class Linear:
    """(out features, in features), and how the inputs are rounded: None, "token" or a static scale."""

    weight: Floats
    activation: str | float | None = None

    def __call__(self, inputs: Floats) -> Floats:
        product: Floats = round_activation(inputs, self.activation) @ self.weight.T
        return product


def round_activation(inputs: Floats, activation: str | float | None) -> Floats:
    """Inputs of an FP8 matrix product as the hardware sees them."""
    if activation is None:
        return inputs
    if activation == "token":
        scale: Floats = np.maximum(np.abs(inputs).max(axis=-1, keepdims=True), 1e-12) / np.float32(E4M3_MAX)
        return round_e4m3(inputs / scale) * scale
    static = np.float32(activation)
    return round_e4m3(inputs / static) * static


@dataclass(frozen=True)
class LayerShard:
    """One layer on one rank. `gate_up` is the SwiGLU pair in one product."""

    qkv: Linear
    dense: Linear
    gate_up: Linear
    down: Linear
    query_heads: int
    kv_heads: int
    kv_scale: float


@dataclass(frozen=True)
class Layer:
    """One layer on all tensor-parallel ranks of its stage."""

    input_norm: Floats
    post_norm: Floats
    shards: tuple[LayerShard, ...]


@dataclass(frozen=True)
class Segment:
    """Tokens of one sequence that go through the network in one step."""

    tokens: TokenIds
    cache: SequenceCache


class Llama:
    """A whole network, all ranks."""

    def __init__(
        self, pretrained: Mapping[str, Any], ranks: Sequence[Mapping[str, Tensor]], max_positions: int
    ) -> None:
        """`ranks[i]` holds the tensors of rank<i>.engine; raises KeyError or ValueError when they do not fit."""
        self.pretrained = pretrained
        self.head_size: int = pretrained["head_size"]
        self.vocab_size: int = pretrained["vocab_size"]
        self.epsilon = np.float32(pretrained["norm_epsilon"])
        quantization = pretrained["quantization"]
        self.cache_dtype: str = {None: pretrained["dtype"], "FP8": "fp8", "INT8": "int8"}[
            quantization["kv_cache_quant_algo"]
        ]
        section = pretrained["mapping"]
        tp, pp = section["tp_size"], section["pp_size"]
        stages = [ranks[stage * tp : (stage + 1) * tp] for stage in range(pp)]
        # Every rank has the whole embedding unless it is sharded; one copy is enough to look up.
        embedded_on = stages[0] if pretrained["use_parallel_embedding"] else stages[0][:1]
        self.embeddings = [widen(rank["transformer.vocab_embedding.weight"]) for rank in embedded_on]
        self.final_norm = widen(stages[-1][0]["transformer.ln_f.weight"])
        self.heads = [
            widen(rank["lm_head.weight"]) if "lm_head.weight" in rank else self.embeddings[tp_rank]
            for tp_rank, rank in enumerate(stages[-1])
        ]
        self.layers: list[Layer] = []
        for stage, stage_ranks in enumerate(stages):
            layers = RankMapping(tp, pp, stage * tp).layers(pretrained["num_hidden_layers"])
            self.layers += [self._layer(f"transformer.layers.{local}", stage_ranks) for local in range(len(layers))]
        self.cos, self.sin = rotary_tables(pretrained, max_positions)

    def _layer(self, name: str, ranks: Sequence[Mapping[str, Tensor]]) -> Layer:
        algorithm = self.pretrained["quantization"]["quant_algo"]
        tp = len(ranks)
        shards = []
        for tp_rank, tensors in enumerate(ranks):

            def linear(*parts: str, tensors: Mapping[str, Tensor] = tensors) -> Linear:
                weights = [dequantize_linear(f"{name}.{part}", tensors, algorithm) for part in parts]
                weight = weights[0] if len(weights) == 1 else np.concatenate(weights)
                scale = tensors.get(f"{name}.{parts[0]}.activation_scaling_factor")
                activation: str | float | None = None
                if algorithm in FP8_ALGORITHMS:
                    activation = "token" if scale is None else float(widen(scale)[0])
                return Linear(np.ascontiguousarray(weight), activation)

            kv_scale = tensors.get(f"{name}.attention.kv_cache_scaling_factor")
            shards.append(
                LayerShard(
                    qkv=linear("attention.qkv"),
                    dense=linear("attention.dense"),
                    gate_up=linear("mlp.fc", "mlp.gate"),
                    down=linear("mlp.proj"),
                    query_heads=self.pretrained["num_attention_heads"] // tp,
                    kv_heads=len(kv_heads_of_rank(self.pretrained["num_key_value_heads"], tp, tp_rank)),
                    kv_scale=1.0 if kv_scale is None else float(widen(kv_scale)[0]),
                )
            )
        return Layer(
            widen(ranks[0][f"{name}.input_layernorm.weight"]),
            widen(ranks[0][f"{name}.post_layernorm.weight"]),
            tuple(shards),
        )

    def new_cache(self) -> SequenceCache:
        return SequenceCache.empty(
            [[shard.kv_heads for shard in layer.shards] for layer in self.layers], self.head_size
        )

    def forward(self, segments: Sequence[Segment], observe: Callable[[str, Floats], None] | None = None) -> Floats:
        """One step of all segments together; extends their caches.

        Args:
            segments: prompts, parts of prompts and single generated tokens, in any mix.
            observe: called with (linear layer's name, its inputs) for calibration.

        Returns:
            float32 logits (segments, vocabulary) after each segment's last token.
        """
        lengths = [len(segment.tokens) for segment in segments]
        bounds = np.cumsum([0, *lengths])
        positions = np.concatenate(
            [np.arange(segment.cache.length, segment.cache.length + len(segment.tokens)) for segment in segments]
        )
        cos, sin = self.cos[positions][:, None, :], self.sin[positions][:, None, :]
        for segment in segments:
            segment.cache.reserve(segment.cache.length + len(segment.tokens))
        x = self._embed(np.concatenate([segment.tokens for segment in segments]))
        for index, layer in enumerate(self.layers):
            x = x + self._attention(index, layer, self._norm(x, layer.input_norm), cos, sin, segments, bounds, observe)
            x = x + self._mlp(index, layer, self._norm(x, layer.post_norm), observe)
        for segment in segments:
            segment.cache.length += len(segment.tokens)
        last = self._norm(x[bounds[1:] - 1], self.final_norm)
        logits = [last @ head.T for head in self.heads]
        return (logits[0] if len(logits) == 1 else np.concatenate(logits, axis=1))[:, : self.vocab_size]

    def _embed(self, tokens: TokenIds) -> Floats:
        if len(self.embeddings) == 1:
            return self.embeddings[0][tokens]
        if self.pretrained["embedding_sharding_dim"] == 1:
            return np.concatenate([table[tokens] for table in self.embeddings], axis=1)
        total = np.zeros((len(tokens), self.embeddings[0].shape[1]), np.float32)
        first = 0
        for table in self.embeddings:
            mine = (tokens >= first) & (tokens < first + len(table))
            total[mine] += table[tokens[mine] - first]
            first += len(table)
        return total

    def _norm(self, x: Floats, weight: Floats) -> Floats:
        mean_square = np.einsum("td,td->t", x, x)[:, None] / np.float32(x.shape[1])
        scaled: Floats = x * (np.float32(1) / np.sqrt(mean_square + self.epsilon))
        return scaled * weight

    def _attention(
        self,
        index: int,
        layer: Layer,
        h: Floats,
        cos: Floats,
        sin: Floats,
        segments: Sequence[Segment],
        bounds: npt.NDArray[np.int64],
        observe: Callable[[str, Floats], None] | None,
    ) -> Floats:
        if observe:
            observe(f"{index}.attention.qkv", h)
        total: Floats | None = None
        for rank, shard in enumerate(layer.shards):
            rotated = shard.query_heads + shard.kv_heads
            qkv = shard.qkv(h).reshape(len(h), rotated + shard.kv_heads, self.head_size)
            half = self.head_size // 2
            low, high = qkv[:, :rotated, :half].copy(), qkv[:, :rotated, half:].copy()
            qkv[:, :rotated, :half] = low * cos - high * sin
            qkv[:, :rotated, half:] = high * cos + low * sin
            if observe:
                observe(f"{index}.attention.kv", qkv[:, shard.query_heads :])
            new = round_to_cache(qkv[:, shard.query_heads :], self.cache_dtype, shard.kv_scale)
            context = np.empty((len(h), shard.query_heads * self.head_size), np.float32)
            for number, segment in enumerate(segments):
                rows = slice(bounds[number], bounds[number + 1])
                begin = segment.cache.length
                end = begin + len(segment.tokens)
                keys, values = segment.cache.keys[index][rank], segment.cache.values[index][rank]
                keys[:, begin:end] = new[rows, : shard.kv_heads].swapaxes(0, 1)
                values[:, begin:end] = new[rows, shard.kv_heads :].swapaxes(0, 1)
                self._attend(qkv[rows, : shard.query_heads], keys, values, begin, context[rows])
            if observe:
                observe(f"{index}.attention.dense", context)
            part = shard.dense(context)
            total = part if total is None else total + part
        assert total is not None
        return total

    def _attend(self, queries: Floats, keys: Floats, values: Floats, begin: int, out: Floats) -> None:
        """Causal attention of queries (tokens, heads, size) from position `begin` on, into `out` (tokens, features)."""
        tokens, heads, size = queries.shape
        kv_heads = keys.shape[0]
        group = heads // kv_heads
        scale = np.float32(1.0 / math.sqrt(size))
        for first in range(0, tokens, QUERY_CHUNK):
            count = min(QUERY_CHUNK, tokens - first)
            end = begin + first + count
            # Query heads that share a key head stand next to each other: (kv heads, tokens * group, size).
            q = queries[first : first + count].reshape(count, kv_heads, group, size).swapaxes(0, 1) * scale
            scores = q.reshape(kv_heads, count * group, size) @ keys[:, :end].swapaxes(1, 2)
            if count > 1:
                future = np.arange(end)[None, :] > (begin + first + np.arange(count))[:, None]
                scores.reshape(kv_heads, count, group, end)[:, future[:, None, :].repeat(group, 1)] = -np.inf
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            context = (scores @ values[:, :end]).reshape(kv_heads, count, group, size)
            out[first : first + count] = context.swapaxes(0, 1).reshape(count, heads * size)

    def _mlp(self, index: int, layer: Layer, h: Floats, observe: Callable[[str, Floats], None] | None) -> Floats:
        if observe:
            observe(f"{index}.mlp.fc", h)
            observe(f"{index}.mlp.gate", h)
        total: Floats | None = None
        for shard in layer.shards:
            gate_up = shard.gate_up(h)
            width = gate_up.shape[1] // 2
            gate = gate_up[:, :width]
            # x * sigmoid(x), written with tanh so that no exponential overflows.
            hidden = gate * (np.tanh(gate * np.float32(0.5)) + np.float32(1)) * np.float32(0.5) * gate_up[:, width:]
            if observe:
                observe(f"{index}.mlp.proj", hidden)
            part = shard.down(hidden)
            total = part if total is None else total + part
        assert total is not None
        return total


def rotary_tables(pretrained: Mapping[str, Any], positions: int) -> tuple[Floats, Floats]:
    """cos and sin (positions, head size / 2) of the rotary embedding, with linear or Llama 3 scaling.

    Formulae: https://arxiv.org/abs/2104.09864; Llama 3's as in transformers' modeling_rope_utils.py.
    """
    size = pretrained["head_size"]
    frequencies = 1.0 / pretrained["rotary_base"] ** (np.arange(0, size, 2, dtype=np.float64) / size)
    scaling = pretrained.get("rotary_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        frequencies = frequencies / scaling["factor"]
    elif kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        original = scaling["original_max_position_embeddings"]
        turns = original * frequencies / (2 * math.pi)
        smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
        frequencies = (1 - smooth) * frequencies / scaling["factor"] + smooth * frequencies
    elif kind not in (None, "default"):
        raise ValueError(f"STAND-IN: rotary scaling {kind} is not computed")
    angles = np.outer(np.arange(positions, dtype=np.float64), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
