"""Pure decisions: what a model is, whether an LLMEngine can work on a GPU, the command lines and the keys. No I/O."""

from .check import Check
from .commands import (
    CommandUnknown,
    Step,
    build_command,
    checkpoint_step,
    expectation,
)
from .keys import artifact_name, canonical_json
from .model import ModelFacts, ModelUnreadable, read_config, read_report
from .target_gpu import TargetGpu
from .terms import Term
from .verdict import TargetPlan, judge

__all__ = [
    "Check",
    "CommandUnknown",
    "ModelFacts",
    "ModelUnreadable",
    "Step",
    "TargetGpu",
    "TargetPlan",
    "Term",
    "artifact_name",
    "build_command",
    "canonical_json",
    "checkpoint_step",
    "expectation",
    "judge",
    "read_config",
    "read_report",
]
