"""STAND-IN for the `tensorrt_llm` package: its version, and the command modules under the real names."""

import sys

from trtllm_standin import NOTICE, TENSORRT_LLM_VERSION

__version__ = TENSORRT_LLM_VERSION

print(f"[TensorRT-LLM] {NOTICE}", file=sys.stderr, flush=True)
print(f"[TensorRT-LLM] TensorRT-LLM version: {__version__}", flush=True)
