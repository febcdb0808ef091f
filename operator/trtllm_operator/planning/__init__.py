"""Pure decisions: what a model is, whether an LLMEngine can work on a GPU, the command lines and the keys. No I/O."""
