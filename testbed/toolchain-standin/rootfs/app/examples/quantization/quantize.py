"""STAND-IN for TensorRT-LLM's examples/quantization/quantize.py."""

import tensorrt_llm  # noqa: F401  (prints the version, as the real command's import does)
from trtllm_standin.quantize_command import main

if __name__ == "__main__":
    main()
