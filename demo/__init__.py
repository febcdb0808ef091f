"""From nothing to an answer: brings up a cluster, installs the operator and follows one LLMEngine."""
