"""What an API call can end in, sorted by what should happen next."""

from __future__ import annotations

from trtllm_operator.kube.resource import Obj

#: Answers, and the lack of one, that say the server is in trouble, not this request.
_OVERLOAD = frozenset({0, 429, 502, 503, 504})
#: Answers that stay the same until somebody changes the object or the permission.
_PERMANENT = frozenset({400, 405, 413, 415, 422})
#: The API server's answer (a 500) to an applied field that no schema declares.
_UNDECLARED_FIELD = "failed to create typed patch object"
#: A broken admission webhook concerns the objects it is asked about, not the server.
_WEBHOOK = "failed calling webhook"


class ConfigError(Exception):
    """The cluster's address or credentials cannot be used; the message says what to change."""


class ApiError(Exception):
    """The API server refused a call, or could not be reached (`status` 0, `reason` "Unreachable").

    `reason` and `message` are the server's own; `retry_after` is in seconds where the server gave it.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        call: str = "",
        retry_after: float | None = None,
        causes: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(f"{call}: {status or reason} {message}" if call else f"{status or reason} {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.causes = causes

    @classmethod
    def from_status(cls, status: int, body: Obj, *, call: str = "", retry_after: float | None = None) -> ApiError:
        """From an HTTP status and the server's `Status` object (or what stands in for one)."""
        causes = (body.get("details") or {}).get("causes") or ()
        return cls(
            status,
            body.get("reason") or "",
            body.get("message") or "",
            call=call,
            retry_after=retry_after or (body.get("details") or {}).get("retryAfterSeconds"),
            causes=frozenset(cause.get("reason", "") for cause in causes),
        )

    @property
    def is_not_found(self) -> bool:
        """The object, or its whole kind, is not there."""
        return self.status == 404

    @property
    def is_forbidden(self) -> bool:
        """We have no right to that."""
        return self.status == 403

    @property
    def is_throttled(self) -> bool:
        """The server itself asks us to stay away for a while."""
        return self.status == 429

    @property
    def is_conflict(self) -> bool:
        """Somebody else was first: another resourceVersion, uid or field manager. Look again."""
        return self.status == 409 and not self.is_already_exists

    @property
    def is_already_exists(self) -> bool:
        """An object of that name exists."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_namespace_terminating(self) -> bool:
        """The namespace is going away; nothing is left to do in it."""
        return "NamespaceTerminating" in self.causes

    @property
    def is_permanent(self) -> bool:
        """The same request will be refused again: somebody must change the object."""
        return self.status in _PERMANENT or (self.status == 500 and _UNDECLARED_FIELD in self.message)

    @property
    def is_overload(self) -> bool:
        """The server cannot serve anybody right now (unreachable, 429, 502, 503, 504): everyone should wait."""
        return self.status in _OVERLOAD

    @property
    def is_internal(self) -> bool:
        """The server failed over this request (500): alone it says little about others, in a row it does."""
        return self.status == 500 and _UNDECLARED_FIELD not in self.message and _WEBHOOK not in self.message
