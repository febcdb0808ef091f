"""Operator for TensorRT-LLM engines: builds one per GPU generation, keeps them, serves them with Triton."""

__version__ = "0.1.0"
