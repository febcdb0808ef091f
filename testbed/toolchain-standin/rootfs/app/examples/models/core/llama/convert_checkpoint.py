"""STAND-IN for TensorRT-LLM's examples/models/core/llama/convert_checkpoint.py."""

import tensorrt_llm  # noqa: F401  (prints the version, as the real command's import does)
from trtllm_standin.convert import main

if __name__ == "__main__":
    main()
