"""What one target may say otherwise than the spec: the same fields, each of them optional."""

from __future__ import annotations

from .calibration import Calibration
from .common import NodePlacement, ResourceRequirements
from .fields import (
    BatchSize,
    BeamWidth,
    Dtype,
    GroupSize,
    KvCacheDtype,
    Percent,
    Quantization,
    QueueSize,
    Ranks,
    TokenCount,
)
from .markers import Object


class PrecisionOverride(Object):
    """Number formats of this target alone."""

    dtype: Dtype | None = None
    """In place of spec.precision.dtype."""
    quantization: Quantization | None = None
    """In place of spec.precision.quantization."""
    kv_cache: KvCacheDtype | None = None
    """In place of spec.precision.kvCache."""
    group_size: GroupSize | None = None
    """In place of spec.precision.groupSize."""
    calibration: Calibration | None = None
    """In place of spec.precision.calibration."""


class ParallelismOverride(Object):
    """GPUs of one server of this target alone."""

    tensor: Ranks | None = None
    """In place of spec.parallelism.tensor."""
    pipeline: Ranks | None = None
    """In place of spec.parallelism.pipeline."""


class BudgetsOverride(Object):
    """Limits compiled into the engine of this target alone."""

    max_batch_size: BatchSize | None = None
    """In place of spec.budgets.maxBatchSize."""
    max_input_len: TokenCount | None = None
    """In place of spec.budgets.maxInputLen."""
    max_seq_len: TokenCount | None = None
    """In place of spec.budgets.maxSeqLen."""
    max_num_tokens: TokenCount | None = None
    """In place of spec.budgets.maxNumTokens."""
    max_beam_width: BeamWidth | None = None
    """In place of spec.budgets.maxBeamWidth."""


class ServingOverride(NodePlacement):
    """How Triton runs on this target alone. Node selector and tolerations replace those of spec.serving as a whole."""

    kv_cache_free_gpu_memory_percent: Percent | None = None
    """In place of spec.serving.kvCacheFreeGpuMemoryPercent."""
    resources: ResourceRequirements | None = None
    """In place of spec.serving.resources."""
    max_queue_size: QueueSize | None = None
    """In place of spec.serving.maxQueueSize."""
