"""Completes FastAPI's OpenAPI document.

Adds three things: credentials; the refusals and headers that the API really sends; and examples of request bodies, by
the name of their type. A test reads each example as the API would. Also marks request bodies in which unknown fields
are refused.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI
from pydantic import TypeAdapter

from fairlead.reports.batches import Report
from fairlead.reports.predictors import TrainedModel
from fairlead_api.http.answers import OPEN_PATHS
from fairlead_api.http.bodies import with_definitions
from fairlead_api.http.problems import TITLES
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.simulations import SimulationRequest

EXAMPLES: dict[str, dict[str, Any]] = {
    "AuditViewRequest": {
        "plans of a pool in the last week, for everybody who sees it": {
            "name": "plans of chat",
            "pool": "default/chat",
            "action": "plan.*",
            "start": "now-7d",
            "shared": True,
        }
    },
    "AuditViewChange": {"share it": {"shared": True}},
    "CommentRequest": {
        "on the last half hour": {"text": "Load test by team x", "start": "now-30m", "end": "now"},
        "on a plan": {"text": "Agreed with the on-call", "plan": "0edf258e8fdfe4dc"},
    },
    "LoginRequest": {"a login link's token": {"token": "fll_4J8…"}},
    "OidcLoginRequest": {
        "the values that a browser brought back": {
            "code": "SplxlOBeZQQYbYS6WxSbIA",
            "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
            "nonce": "n-0S6_WzA2Mj",
            "redirect_uri": "https://fairlead.example.com/login/oidc/answer",
        }
    },
    "LoginLinkRequest": {"for a colleague": {"role": "operator", "minutes": 10, "subject": "ada"}},
    "TokenRequest": {"for a dashboard": {"name": "grafana", "role": "viewer", "days": 90}},
    "GatewayKeyRequest": {
        "for one pool, with limits": {
            "name": "team-search",
            "pools": ["default/chat"],
            "requests_per_minute": 600,
            "tokens_per_minute": 2_000_000,
        },
        "for everything": {"name": "ci"},
    },
    "GatewayKeyChange": {
        "other limits": {"requests_per_minute": 600, "tokens_per_minute": 0},
        "clients may ask to have decisions kept": {"explain": True},
    },
    "Trial": {"a question": {"prompt": "Say hello.", "max_tokens": 32}},
    "GatewayKeyRotation": {"the former secret stays valid for a day": {"hours": 24}},
    "WebhookRequest": {
        "all notices, to a program": {"name": "on-call", "url": "https://hooks.example.com/fairlead"},
        "problems of one pool, to Slack": {
            "name": "chat in #on-call",
            "url": "https://hooks.slack.com/services/T0/B0/x",
            "form": "slack",
            "kinds": ["pool.out-of-slo", "instance.lost", "instance.stalled"],
            "pools": ["default/chat"],
        },
    },
    "EngineFit": {
        "fitted to a file of records": {
            "source": "records.jsonl",
            "fitted_at": "2026-11-28T12:00:00Z",
            "engines": 8,
            "requests": 599,
            "fitted": 252,
            "contradicting": 53,
            "at_edges": 41,
            "costs": {
                "overhead_seconds": 0.021,
                "prefill_fixed": 0.011,
                "prefill_per_token": 0.00013,
                "prefill_per_context": 0.0,
                "prefill_per_pair": 0.000000003,
                "decode_fixed": 0.019,
                "decode_per_context_token": 0.0000002,
                "decode_per_sequence": 0.0002,
                "max_batched_tokens": 2048,
            },
            "ttft": {
                "requests": 254,
                "real_mean": 0.369,
                "real_p50": 0.314,
                "real_p90": 0.644,
                "real_p99": 1.06,
                "modelled_mean": 0.334,
                "modelled_p50": 0.247,
                "modelled_p90": 0.57,
                "modelled_p99": 0.949,
                "mean_error": 0.124,
                "correlation": 0.947,
            },
            "tpot": {
                "requests": 254,
                "real_mean": 0.0343,
                "real_p50": 0.032,
                "real_p90": 0.048,
                "real_p99": 0.0709,
                "modelled_mean": 0.0329,
                "modelled_p50": 0.0307,
                "modelled_p90": 0.0461,
                "modelled_p99": 0.0672,
                "mean_error": 0.052,
                "correlation": 0.986,
            },
        }
    },
    "KeepSessionRequest": {"for ten minutes": {"session": "574-r2"}, "for an hour": {"session": "574-r2", "minutes": 60}},
    "PlanRequest": {kind.facts.example_title: {"kind": kind.value, **kind.facts.example} for kind in PlanKind},
    "ApplyRequest": {"an ordinary plan": {}, "a heavy plan": {"confirm": "chat", "reason": "load test is over"}},
    "SimulationRequest": {
        "two policies on the last hour": {"policies": [{"policy": "fairlead"}, {"policy": "dualmap"}], "start": "now-1h", "end": "now"}
    },
    "SimulationPlanRequest": {"the winner": {}, "the second policy": {"policy": 1}},
}


DESCRIPTION = (
    "Stores the reports of routers and of the operator, and plans people's changes. Every refusal is a problem "
    "document. Send `Authorization: Bearer "
    "<token>`; tokens of people have the role viewer, operator or admin, those of processes "
    "system-operator or system-router. docs/api.md describes "
    "pages, exports, entity tags and how long an API version is supported."
)
_REF = "#/components/schemas/"


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the whole OpenAPI document. FastAPI builds and keeps it, and this function adds what FastAPI leaves out.
    Adding it twice changes nothing.
    """
    document = app.openapi()
    if "securitySchemes" in document.get("components", {}):
        return document
    document = with_definitions(document, Report, TrainedModel, SimulationRequest)
    document["paths"] = dict(sorted(document["paths"].items()))  # in whatever order the subjects are listed
    document["info"] |= {"description": DESCRIPTION}
    components = document["components"]
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API token, or a web session's token."}
    }
    components["responses"] = responses()
    components["headers"] = headers()
    schemas = components["schemas"]
    problem = TypeAdapter(Problem).json_schema(ref_template=_REF + "{model}")
    schemas |= problem.pop("$defs", {})
    schemas["Problem"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            _add_refusals(operation, path, method)
            _add_headers(operation, path, method)
            _add_sparse(operation, schemas)
            if path.startswith("/v1/") and "requestBody" in operation:
                _describe_body(operation["requestBody"]["content"]["application/json"], schemas)
    return document


def _add_refusals(operation: dict[str, Any], path: str, method: str) -> None:
    operation["security"] = [{"bearer": []}] if path not in OPEN_PATHS else []
    answers = operation["responses"]
    answers.pop("422", None)
    for status in sorted(statuses(path, method, operation)):
        answers[status] = {"$ref": f"#/components/responses/{status}"}


def _add_headers(operation: dict[str, Any], path: str, method: str) -> None:
    """Document X-Request-ID on every response, and ETag and 304 on responses that are sent in one piece."""
    for status, found in list(operation["responses"].items()):
        if "$ref" in found:
            continue
        found.setdefault("headers", {}).update(header("X-Request-ID"))
        whole = "application/json" in found.get("content", {}) and not path.endswith(".json")
        if method == "get" and status == "200" and path.startswith("/v1/") and whole:
            found["headers"].update(header("ETag"))
            known = {"name": "if-none-match", "in": "header", "required": False, "schema": {"type": "string"}}
            described = "ETags that the client already has. If the response still has one of them, it is a 304 without a body."
            operation.setdefault("parameters", []).append({**known, "description": described})
            sent = {**header("X-Request-ID"), **header("ETag")}
            operation["responses"]["304"] = {"description": "Unchanged: the version is one that If-None-Match names.", "headers": sent}


def _add_sparse(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Document that a list with the parameter `fields` responds with pages whose items have only the requested
    fields.
    """
    if not any(one["name"] == "fields" for one in operation.get("parameters", ())):
        return
    content = operation["responses"]["200"].get("content", {}).get("application/json")
    if content is None or "$ref" not in content["schema"]:
        return
    page = content["schema"]["$ref"].removeprefix(_REF)
    item = schemas[page]["properties"]["items"]["items"]["$ref"].removeprefix(_REF)
    sparse, sparse_page = f"Sparse{item}", f"Sparse{page}"
    words = f"A {item} with only the requested fields."
    schemas[sparse] = {**{name: part for name, part in schemas[item].items() if name != "required"}, "title": sparse, "description": words}
    parts = {**schemas[page]["properties"], "items": {"type": "array", "items": {"$ref": _REF + sparse}, "title": "Items"}}
    schemas[sparse_page] = {**schemas[page], "title": sparse_page, "properties": parts}
    content["schema"] = {"anyOf": [{"$ref": _REF + page}, {"$ref": _REF + sparse_page}]}


def _describe_body(content: dict[str, Any], schemas: dict[str, Any]) -> None:
    """State that bodies sent by people may have no unknown fields (`http.bodies.known_fields`), and add examples. A
    body whose type this API does not define may have further fields.
    """
    if "$ref" not in content["schema"]:
        return
    name = content["schema"]["$ref"].removeprefix(_REF)
    schemas[name]["additionalProperties"] = False
    if name in EXAMPLES:
        content["examples"] = {title: {"summary": title, "value": value} for title, value in EXAMPLES[name].items()}


_REQUEST_ID = "4f0c2a9be1d34c77"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A status with which the API refuses requests: its meaning, and an example of its problem document."""

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
            "The object named in the path does not exist.",
            "not-found",
            "pool 'default/chat' does not exist",
            instance="/v1/pools/default/chat",
        ),
        _refusal(
            409,
            "The present state forbids it; `type` says why.",
            "object-changed",
            "InferencePool default/chat was changed since the plan was made; make a new plan",
            instance="/v1/plans/p-1/apply",
        ),
        _refusal(
            412,
            "The object is not at the version that If-Match names; ETag has its present version.",
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
            "A field, parameter or body cannot be used; `field` and `value` name it, and `remedy` says how to correct it.",
            "invalid-input",
            "limit: '0' cannot be used",
            instance="/v1/migrations",
            field="limit",
            value="0",
            remedy="Input should be greater than or equal to 1",
        ),
        _refusal(
            429,
            "Too many requests in a short time; Retry-After says when to try again.",
            "too-many-requests",
            "too many attempts in a short time",
            "Retry-After",
            instance="/v1/pools",
            remedy="try again in 1 s",
        ),
        _refusal(
            503,
            "A dependency is unavailable; Retry-After says when to try again.",
            "database-unavailable",
            "the database does not answer",
            "Retry-After",
            instance="/v1/pools",
            remedy="send it again after 2 s",
        ),
    )
)
"""The API's refusals by status, each a problem document (RFC 9457)."""

HEADERS = {
    "WWW-Authenticate": ("string", "How to authenticate: `Bearer`."),
    "Retry-After": ("integer", "Seconds to wait before the next attempt."),
    "ETag": ("string", "The version of the answer, for If-Match and If-None-Match."),
    "X-Request-ID": (
        "string",
        "The request's id: the caller's own if it sent one, else a new one. It is in the API's log and the audit log.",
    ),
}
"""Headers of responses, each with its type and meaning."""

_NO_DATABASE = frozenset({"/healthz", "/v1/login-modes"})
_CONFLICTS = (
    "/test-request",
    "/plans",
    "/simulations",
    "/gateway-keys",
    "/webhooks",
    "/audit-views",
    "/comments",
    "/kept-sessions",
    "/plan",
    "/apply",
    "/undo",
    "/again",
)
"""Endings of the paths at which a person's write may conflict with the present state. All writes of routers and the
operator may conflict too.
"""


def responses() -> dict[str, Any]:
    """Return `components.responses` of the OpenAPI document."""
    return {status: _response(refusal) for status, refusal in REFUSALS.items()}


def headers() -> dict[str, Any]:
    """Return `components.headers` of the OpenAPI document."""
    return {name: {"description": words, "schema": {"type": kind}} for name, (kind, words) in HEADERS.items()}


def header(name: str) -> dict[str, Any]:
    """Return a reference to the header `name` in `components.headers`."""
    return {name: {"$ref": f"#/components/headers/{name}"}}


def statuses(path: str, method: str, operation: dict[str, Any]) -> set[str]:
    """Return the statuses with which an endpoint may refuse a request, derived from its path, method, parameters and
    body.
    """
    needs_token, has_body, parameters = path not in OPEN_PATHS, "requestBody" in operation, operation.get("parameters", ())
    internal = path.startswith("/internal")
    conflicts = (method != "get" and path.endswith(_CONFLICTS)) or (method, path) == ("patch", "/v1/audit-views/{view_id}")
    found = {
        "400": has_body,
        "401": needs_token or has_body,
        "403": needs_token or path == "/v1/login",
        "404": "{" in path or path.split(".")[0] in {"/v1/audit/head", "/v1/cost", "/v1/login/oidc"} or internal,
        "409": internal or conflicts or any(one["name"] == "session" for one in parameters),  # several may have one name
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
