"""config.json of a TensorRT-LLM checkpoint, which the build copies into the engine's as `pretrained_config`."""

from collections.abc import Mapping as Dict
from dataclasses import dataclass
from typing import Any

from .hf_model import LlamaShape

GPUS_PER_NODE = 8  # the mapping's default; 1.2 has no flag to change it


@dataclass(frozen=True)
class QuantConfig:
    """The `quantization` section. None for quant_algo means the weights stay as they are."""

    quant_algo: str | None = None
    kv_cache_quant_algo: str | None = None
    group_size: int = 128
    clamp_val: tuple[float, float] | None = None
    use_meta_recipe: bool = False
    has_zero_point: bool = False
    pre_quant_scale: bool = False
    exclude_modules: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "quant_algo": self.quant_algo,
            "kv_cache_quant_algo": self.kv_cache_quant_algo,
            "group_size": self.group_size,
            "smoothquant_val": 0.5,
            "clamp_val": list(self.clamp_val) if self.clamp_val else None,
            "use_meta_recipe": self.use_meta_recipe,
            "has_zero_point": self.has_zero_point,
            "pre_quant_scale": self.pre_quant_scale,
            "exclude_modules": list(self.exclude_modules) if self.exclude_modules else None,
            "mamba_ssm_cache_dtype": None,
        }


def mapping_section(tp_size: int, pp_size: int, moe_tp_size: int, moe_ep_size: int) -> dict[str, Any]:
    return {
        "world_size": tp_size * pp_size,
        "gpus_per_node": GPUS_PER_NODE,
        "cp_size": 1,
        "tp_size": tp_size,
        "pp_size": pp_size,
        "moe_tp_size": moe_tp_size,
        "moe_cluster_size": 1,
        "moe_ep_size": moe_ep_size,
        "attn_tp_size": tp_size,
        "attn_cp_size": 1,
    }


def pretrained_config(
    shape: LlamaShape,
    *,
    dtype: str,
    mapping: Dict[str, Any],
    quant_config: QuantConfig,
    use_parallel_embedding: bool,
    embedding_sharding_dim: int,
    **build_options: Any,
) -> dict[str, Any]:
    """The whole file. `build_options` are flags of convert_checkpoint.py that the real one stores too."""
    return {
        "mlp_bias": False,
        "attn_bias": False,
        "rotary_base": float(shape.rotary_base),
        "rotary_scaling": dict(shape.rotary_scaling) if shape.rotary_scaling else None,
        "residual_mlp": False,
        **build_options,
        "architecture": "LlamaForCausalLM",
        "dtype": dtype,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "hidden_act": "silu",
        "logits_dtype": "float32",
        "norm_epsilon": shape.norm_epsilon,
        "runtime_defaults": None,
        "position_embedding_type": "rope_gpt_neox",
        "num_key_value_heads": shape.num_key_value_heads,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "mapping": dict(mapping),
        "quantization": quant_config.to_dict(),
        "use_parallel_embedding": use_parallel_embedding,
        "embedding_sharding_dim": embedding_sharding_dim,
        "head_size": shape.head_size,
        "qk_layernorm": False,
        "rotary_embedding_dim": shape.head_size,
        "tie_word_embeddings": shape.tie_word_embeddings,
    }
