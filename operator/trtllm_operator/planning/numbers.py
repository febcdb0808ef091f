"""The numbers of a plan as they are kept with a revision and shown in status."""

from __future__ import annotations

from .verdict import TargetPlan


def plan_numbers(plan: TargetPlan) -> dict[str, int]:
    """By the names of `api.llmengine.PlanStatus`; the Jobs of the artifacts are made from some of them."""
    memory, building = plan.memory, plan.building
    known = {
        "gpuMemoryBytes": memory.total,
        "weightsBytes": memory.weights,
        "activationBytes": memory.activations,
        "runtimeBufferBytes": memory.buffers,
        "reservedBytes": memory.reserved,
        "kvCachePoolBytes": memory.kv_pool,
        "kvCacheBytesPerToken": memory.kv_bytes_per_token,
        "kvCacheTokens": memory.kv_tokens,
        "fullLengthSequences": memory.full_sequences,
        "concurrentRequests": memory.requests_at_limit,
        "longestPromptTokens": plan.longest_prompt,
        "checkpointHostMemoryBytes": building.convert_host,
        "engineHostMemoryBytes": building.build_host,
        "engineGpuMemoryBytes": building.build_gpu,
        "modelBytes": building.model_disk,
        "checkpointBytes": building.checkpoint_disk,
        "engineBytes": building.engine_disk,
    }
    return {name: term.value for name, term in known.items() if term is not None}
