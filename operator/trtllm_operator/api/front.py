"""The OpenAI endpoint of an LLMEngine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .common import NodePlacement, ResourceRequirements, SecretReference
from .markers import Cel, Extension, Object

ModelName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")]


@Cel(
    "has(self.requestsPerMinute) || has(self.tokensPerMinute)",
    message="give requestsPerMinute, tokensPerMinute, or both",
)
class PerCaller(Object):
    """What one caller may ask for; others are not touched by it. Each replica of the front counts for itself."""

    requests_per_minute: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """Requests in any minute; further ones get 429 with Retry-After."""
    tokens_per_minute: Annotated[int | None, Field(ge=1, le=2_000_000_000)] = None
    """Tokens in any minute, prompts and the most that may be generated."""
    header: Annotated[str | None, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$", max_length=64)] = None
    """Header that names the caller where there are no API keys, set by a gateway that clients cannot bypass."""


class Guard(Object):
    """A webhook that sees each prompt before it is tokenized, and may refuse it or rewrite it."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=1024)]
    """Called with POST and a JSON object of model, caller, and messages or prompt. Answers with action, which is allow,
    refuse or rewrite, and with message, messages or prompt."""
    timeout_seconds: Annotated[int, Field(ge=1, le=60)] = 2
    """Longest wait for its answer."""
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    """Fail answers 503 where the webhook does not answer; Ignore lets the prompt through."""


class Front(NodePlacement):
    """The OpenAI endpoint: exact limits, routing to the smallest engine that fits, and measuring. It needs no GPU. A
    change never rebuilds an engine and never touches a server."""

    replicas: Annotated[int, Field(ge=0, le=64)] = 1
    """Pods of the endpoint; 0 turns it off. Two or more get a PodDisruptionBudget."""
    model_names: Annotated[tuple[ModelName, ...], Field(max_length=8), Extension("list-type", "set")] = ()
    """What clients call the model; by default the LLMEngine's name."""
    strict_max_tokens: bool = False
    """Refuse a request whose prompt and max_tokens together exceed maxSeqLen, instead of giving what fits."""
    max_concurrent_requests: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """Requests at servers at once, of one replica; by default what the servers run at once."""
    max_queued_tokens: Annotated[int, Field(ge=0, le=2_000_000_000)] = 1_000_000
    """Tokens of the requests that wait, prompts and the most that may be generated; further requests get 429."""
    queue_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Longest wait for a place at a server; a request that waited longer gets 503 and never reaches a GPU."""
    per_caller: PerCaller | None = None
    """Limits for each caller."""
    api_keys_secret_ref: SecretReference | None = None
    """Secret whose entries are API keys: the entry's name is the caller, its value the key. Without it anybody who
    reaches the Service may call."""
    guard: Guard | None = None
    """Webhook that sees each prompt first."""
    request_log: bool = False
    """Write a JSON line of lengths and times for each request, which llmengine advise reads. Never a text."""
    resources: ResourceRequirements | None = None
    """Of one Pod; by default 250m and 256Mi, limited to 512Mi of memory."""
