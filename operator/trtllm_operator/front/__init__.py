"""The OpenAI endpoint of one LLMEngine: exact limits, routing to the smallest engine that fits, measuring.

Imports `api` and `kube` alone: it runs in a Pod of its own and shares no decision with the operator but the resources.
"""
