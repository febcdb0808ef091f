"""Pure: what is decided of one LLMEngine: model, verdict, revisions, rollout and status."""
