"""The console scripts of TensorRT-LLM (STAND-IN)."""
