"""Completes FastAPI's OpenAPI document.

It adds credentials, the refusals that every endpoint shares, and that request bodies take no unknown fields.
"""

from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter

from fairlead.reports.batches import Report
from fairlead.reports.predictors import TrainedModel
from fairlead_api.identifying import OPEN_PATHS
from fairlead_api.routes.bodies import with_definitions
from fairlead_client.resources.problems import Problem
from fairlead_client.resources.simulations import SimulationRequest

REFUSALS = {
    "400": "The request is malformed.",
    "401": "No token, or one that is not known, has expired or was revoked.",
    "403": "The token's role does not reach.",
    "404": "What the path names does not exist.",
    "405": "The path exists, the method does not; Allow names those that do.",
    "409": "The state of the world forbids it; `type` says why.",
    "413": "The body is too large.",
    "422": "A field, parameter or body cannot be used; `field`, `value` and `remedy` say which and what to do.",
    "503": "A dependency is away; Retry-After says when to come back.",
}
"""Refusals by status, each a problem document (RFC 9457)."""

OF_TOKENS = ("401", "403")
OF_BODIES = ("409", "413")

DESCRIPTION = (
    "Persists what routers and the operator do, and plans what people change. Every refusal is a problem document. Send `Authorization: Bearer "
    "<token>`; tokens of people have the role viewer, operator or admin, those of processes system-operator or system-router."
)


def openapi(app: FastAPI) -> dict[str, Any]:
    """The whole document. FastAPI builds and keeps it; completing it again changes nothing."""
    document = with_definitions(app.openapi(), Report, TrainedModel, SimulationRequest)
    document["info"] |= {"description": DESCRIPTION}
    components = document["components"]
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API token, or a web session's token."}
    }
    components["responses"] = {status: _refusal(words) for status, words in REFUSALS.items()}
    schemas = components["schemas"]
    schemas["Problem"] = TypeAdapter(Problem).json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path, item in document["paths"].items():
        for operation in item.values():
            _add_refusals(operation, path)
            if path.startswith("/v1/") and "requestBody" in operation:
                _close(operation["requestBody"]["content"]["application/json"]["schema"], schemas)
    return document


def _refusal(words: str) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": words, "content": content}


def _add_refusals(operation: dict[str, Any], path: str) -> None:
    needs_token, has_body = path not in OPEN_PATHS, "requestBody" in operation
    operation["security"] = [{"bearer": []}] if needs_token else []
    for status in REFUSALS:
        if (needs_token or has_body or status not in OF_TOKENS) and (has_body or status not in OF_BODIES):
            operation["responses"][status] = {"$ref": f"#/components/responses/{status}"}


def _close(body: dict[str, str], schemas: dict[str, Any]) -> None:
    """Mark bodies sent by people as taking no unknown fields (`routes.bodies.known_fields`)."""
    schemas[body["$ref"].rpartition("/")[2]]["additionalProperties"] = False
