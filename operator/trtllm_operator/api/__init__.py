"""The resources: LLMEngine and EngineArtifact, their conditions, and the generator of their CRDs."""

GROUP = "llmengine.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
