"""The toolchain STAND-IN: what the commands and the Triton backend of this image share.

It has the commands, flags, files, exit codes and messages of NVIDIA's `tritonserver:26.07-trtllm-python-py3` image with
TensorRT-LLM 1.2.1, and computes on the CPU with numpy. It contains no NVIDIA software and says nothing about a GPU's
speed, kernels or memory.
"""

TENSORRT_LLM_VERSION = "1.2.1"
TENSORRT_VERSION = "10.14.1.48"

NOTICE = "STAND-IN for NVIDIA's TensorRT-LLM toolchain: the network is computed with numpy on the CPU, no GPU is used"
HELP_EPILOG = (
    f"This is a {NOTICE}. Flags, files, exit codes and messages are those of TensorRT-LLM {TENSORRT_LLM_VERSION}."
)
