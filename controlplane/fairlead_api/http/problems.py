"""Turns errors into problem documents (RFC 9457), all with the same fields, one line of `detail`, and never a
traceback.

`detail` names the fault and `remedy` the way to correct it; neither repeats the other. Problem types are stable
(docs/api.md).
"""

import logging
import math
from typing import Any

import msgspec
import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from fairlead.errors import InvalidInput
from fairlead_api.http.bodies import MalformedBody, printable
from fairlead_api.infra.errors import (
    Changed,
    Conflict,
    Denied,
    NotAuthenticated,
    NotFound,
    NotSampled,
    ServiceError,
    SeveralSessions,
    TooMany,
    Unavailable,
)
from fairlead_client.resources.problems import Problem

_log = logging.getLogger(__name__)
TITLES = {
    400: "Bad request",
    401: "Not logged in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Changed meanwhile",
    413: "Too large",
    422: "Input cannot be used",
    429: "Too many requests",
    500: "Internal error",
    503: "Temporarily unavailable",
}


def problem_response(request: Request, problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """Return the problem document as application/problem+json, without fields that have no value. The problem's type is
    stored in the request's state.
    """
    request.state.problem = problem.type
    content = {name: value for name, value in msgspec.to_builtins(problem).items() if value is not None}
    content.setdefault("instance", request.url.path)
    content.setdefault("request_id", getattr(request.state, "request_id", None))
    return Response(msgspec.json.encode(content), problem.status, headers, media_type="application/problem+json")


def _problem(code: str, status: int, detail: str, **more: Any) -> Problem:
    return Problem(type=code, title=TITLES.get(status, "Error"), status=status, detail=detail, **more)


def of_service(error: ServiceError) -> tuple[Problem, dict[str, str]]:
    """Return the problem document and the headers of the response to a service error."""
    match error:
        case NotSampled():
            return _problem("not-sampled", 404, str(error), remedy=error.remedy), {}
        case NotFound():
            return _problem("not-found", 404, str(error)), {}
        case Changed():
            remedy = "read it again, and send its new ETag as If-Match"
            return _problem("changed-meanwhile", 412, str(error), remedy=remedy), {"etag": error.tag}
        case SeveralSessions():
            return _problem(error.code, 409, str(error), remedy=error.remedy, sessions=error.sessions), {}
        case Conflict():
            return _problem(error.code, 409, str(error), conflict=error.conflict), {}
        case Denied():
            return _problem("denied", 403, str(error)), {}
        case NotAuthenticated():
            return _problem(error.code, 401, str(error)), {"www-authenticate": "Bearer"}
        case TooMany():
            again = f"try again in {error.retry_after_seconds} s"
            return _problem(error.code, 429, str(error), remedy=again), {"retry-after": str(error.retry_after_seconds)}
        case Unavailable():
            again = f"send it again after {error.retry_after_seconds} s"
            return _problem(error.code, 503, str(error), remedy=again), {"retry-after": str(error.retry_after_seconds)}
    return _problem("refused", 400, str(error)), {}


def of_input(error: InvalidInput) -> Problem:
    """Return the problem of invalid input: a 422 with field, value and remedy."""
    value = error.value if isinstance(error.value, str | int | float | bool | None) else str(error.value)
    return _problem("invalid-input", 422, printable(error.told), field=printable(error.field), value=_shown(value), remedy=error.remedy)


def of_malformed(error: Exception) -> Problem:
    """Return a 400 for a body that is not JSON."""
    return _problem("malformed-json", 400, f"the body is not JSON: {error}", remedy="send JSON in UTF-8, each name once in an object")


def of_too_large(error: HTTPException) -> Problem:
    """Return a 413 for a body that is too large."""
    detail, _, remedy = error.detail.partition("; ")
    return _problem("too-large", 413, detail, remedy=remedy or "send less at once")


def of_validation(error: RequestValidationError) -> Problem:
    """Return the problem of a request's first validation error: a 400 for malformed JSON, otherwise a 422 with the
    error's field.
    """
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid":
        return of_malformed(ValueError("it is not a JSON value"))  # what was not empty was read before, by `check_json`
    field = printable(".".join(where[1:]) or where[0])
    if first["type"] == "missing":
        return _problem("invalid-input", 422, f"{field} is missing", field=field, remedy=f"give {field}")
    value = first.get("input")
    shown = _shown(value) if isinstance(value, str | int | float | bool) and len(str(value)) <= 200 else None
    told = f"{field}: {shown!r} cannot be used" if shown is not None else f"{field} cannot be used"
    return _problem("invalid-input", 422, told, field=field, value=shown, remedy=first["msg"])


def _shown(value: str | float | None) -> str | float | None:
    """Return the value if JSON can represent it, otherwise None. Text is returned without lone surrogates."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return printable(value) if isinstance(value, str) else value


def allowed_methods(app: FastAPI, path: str) -> list[str]:
    """Return the methods that a path accepts. FastAPI's own 405 response names only the methods of the first route."""
    paths = app.openapi()["paths"]
    return sorted({method.upper() for template in paths if compile_path(template)[0].match(path) for method in paths[template]})


def install(app: FastAPI) -> None:
    """Register the handlers that turn errors into problem documents."""

    async def service_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, ServiceError):
            raise error
        problem, headers = of_service(error)
        return problem_response(request, problem, headers)

    async def input_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, InvalidInput):
            raise error
        return problem_response(request, of_input(error))

    async def malformed(request: Request, error: Exception) -> Response:
        return problem_response(request, of_malformed(error))

    async def validation_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestValidationError):
            raise error
        return problem_response(request, of_validation(error))

    async def http_error(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        if error.status_code == 413:
            return problem_response(request, of_too_large(error))
        detail = f"{request.method} {request.url.path}: {error.detail}"
        code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "http-error")
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(allowed_methods(app, request.url.path))
        return problem_response(request, _problem(code, error.status_code, detail), headers)

    async def database_error(request: Request, error: Exception) -> Response:
        """Respond to an error of the database. A value that Postgres cannot store (too large a number, NUL in text, too
        long for an index) is the sender's fault; all other errors are internal errors.
        """
        cause = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(cause, psycopg.DataError | psycopg.errors.ProgramLimitExceeded):
            first = str(cause).strip().splitlines()[0]
            remedy = "write a value that fits: no NUL characters, whole numbers of at most 64 bits, no names of thousands of characters"
            return problem_response(request, _problem("invalid-input", 422, f"a value cannot be stored: {first}", remedy=remedy))
        return await unexpected(request, error)

    async def unexpected(request: Request, error: Exception) -> Response:
        _log.error("request failed", exc_info=error, extra={"path": request.url.path, "request": getattr(request.state, "request_id", "")})
        detail = "an internal error; look for the request id in the API's log"
        return problem_response(request, _problem("internal-error", 500, detail, remedy="report it with the request id"))

    app.add_exception_handler(ServiceError, service_error)
    app.add_exception_handler(InvalidInput, input_error)
    app.add_exception_handler(MalformedBody, malformed)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(DBAPIError, database_error)
    app.add_exception_handler(psycopg.DataError, database_error)
    app.add_exception_handler(Exception, unexpected)
