"""STAND-IN for TensorRT-LLM's examples/run.py."""

import sys

import tensorrt_llm  # noqa: F401  (prints the version, as the real command's import does)
from trtllm_standin.run_command import main

if __name__ == "__main__":
    sys.exit(main())
