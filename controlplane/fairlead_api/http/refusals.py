"""The refusals in the OpenAPI document: which statuses an endpoint really answers, each with an example."""

from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead_api.http.answers import OPEN_PATHS
from fairlead_api.http.problems import TITLES
from fairlead_client.resources.problems import Problem

_REQUEST_ID = "4f0c2a9be1d34c77"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One status: what it means, and an example of its problem document."""

    meaning: str
    example: Problem
    headers: tuple[str, ...] = ()


def _refusal(status: int, meaning: str, kind: str, detail: str, *headers: str, **more: Any) -> tuple[str, Refusal]:
    example = Problem(type=kind, title=TITLES[status], status=status, detail=detail, request_id=_REQUEST_ID, **more)
    return str(status), Refusal(meaning=meaning, example=example, headers=headers)


REFUSALS: dict[str, Refusal] = dict(
    (
        _refusal(
            400,
            "The body is not JSON.",
            "malformed-json",
            "the body is not JSON: the name 'replicas' is there twice in one object",
            instance="/v1/pools/default/chat/plans",
            remedy="send JSON in UTF-8, each name once in an object",
        ),
        _refusal(
            401,
            "No token, or one that is not known, has expired or was revoked.",
            "token-missing",
            "send Authorization: Bearer <token>",
            "WWW-Authenticate",
            instance="/v1/pools",
        ),
        _refusal(
            403, "The token's role is not sufficient.", "denied", "ada has role viewer; this needs operator", instance="/v1/plans/p-1/apply"
        ),
        _refusal(
            404,
            "What the path names does not exist.",
            "not-found",
            "pool 'default/chat' does not exist",
            instance="/v1/pools/default/chat",
        ),
        _refusal(
            409,
            "The state of the world forbids it; `type` says why.",
            "object-changed",
            "InferencePool default/chat was changed since the plan was made; make a new plan",
            instance="/v1/plans/p-1/apply",
        ),
        _refusal(
            412,
            "It is not what If-Match names; ETag has what it is now.",
            "changed-meanwhile",
            "plan p-1 changed since it was read",
            "ETag",
            instance="/v1/plans/p-1/apply",
            remedy="read it again, and send its new ETag as If-Match",
        ),
        _refusal(
            413,
            "The body is too large.",
            "too-large",
            "the body is over 33554432 bytes",
            instance="/v1/pools/default/chat/simulations",
            remedy="send less at once",
        ),
        _refusal(
            422,
            "A field, parameter or body cannot be used; `field`, `value` and `remedy` say which and what to do.",
            "invalid-input",
            "limit: '0' cannot be used",
            instance="/v1/migrations",
            field="limit",
            value="0",
            remedy="Input should be greater than or equal to 1",
        ),
        _refusal(
            429,
            "Too often in a short time; Retry-After says when there is room again.",
            "too-many-requests",
            "too many in a short time",
            "Retry-After",
            instance="/v1/pools",
            remedy="try again in 1 s",
        ),
        _refusal(
            503,
            "A dependency is away; Retry-After says when to come back.",
            "database-unavailable",
            "the database does not answer",
            "Retry-After",
            instance="/v1/pools",
            remedy="send it again after 2 s",
        ),
    )
)
"""Keyed by status, each a problem document (RFC 9457)."""

HEADERS = {
    "WWW-Authenticate": ("string", "How to authenticate: `Bearer`."),
    "Retry-After": ("integer", "Seconds after which a new try is worthwhile."),
    "ETag": ("string", "The version of what is answered, for If-Match and If-None-Match."),
    "X-Request-ID": (
        "string",
        "The request's id: the caller's own if it sent one, else a new one. It is in the API's log and the audit log.",
    ),
}
"""Headers of answers: type and meaning."""

_NO_DATABASE = frozenset({"/healthz", "/v1/login-modes"})
_CONFLICTS = ("/plans", "/simulations", "/gateway-keys", "/plan", "/apply", "/undo", "/again")
"""Ends of paths whose writes the present state may forbid; so it may all calls of routers and the operator."""


def responses() -> dict[str, Any]:
    """The document's `components.responses`."""
    return {status: _response(refusal) for status, refusal in REFUSALS.items()}


def headers() -> dict[str, Any]:
    """The document's `components.headers`."""
    return {name: {"description": words, "schema": {"type": kind}} for name, (kind, words) in HEADERS.items()}


def header(name: str) -> dict[str, Any]:
    """A reference to one of `headers`."""
    return {name: {"$ref": f"#/components/headers/{name}"}}


def statuses(path: str, method: str, operation: dict[str, Any]) -> set[str]:
    """The refusals that an endpoint really answers, by what it takes and does."""
    needs_token, has_body, parameters = path not in OPEN_PATHS, "requestBody" in operation, operation.get("parameters", ())
    internal = path.startswith("/internal")
    found = {
        "400": has_body,
        "401": needs_token or has_body,
        "403": needs_token or path == "/v1/login",
        "404": "{" in path or path in {"/v1/audit/head", "/v1/login/oidc"} or internal,
        "409": internal or (method != "get" and path.endswith(_CONFLICTS)),
        "412": any(one["name"] == "if-match" for one in parameters),
        "413": has_body,
        "422": not internal or has_body or "{" in path or any(one["in"] == "query" for one in parameters),  # a parameter that is not known
        "429": (needs_token and not internal) or (path.startswith("/v1/login") and has_body),
        "503": path not in _NO_DATABASE,
    }
    return {status for status, comes in found.items() if comes}


def _response(refusal: Refusal) -> dict[str, Any]:
    shown = {name: value for name, value in msgspec.to_builtins(refusal.example).items() if value is not None}
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}, "example": shown}}
    sent = {name: part for one in (*refusal.headers, "X-Request-ID") for name, part in header(one).items()}
    return {"description": refusal.meaning, "headers": sent, "content": content}
