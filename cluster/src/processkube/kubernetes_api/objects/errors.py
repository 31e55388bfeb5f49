"""The errors by which a request is refused, each with the Status object of the real server.

ApiError
├── BadRequest 400            ├── Unauthorized 401         ├── Forbidden 403
├── NotFound 404              ├── MethodNotAllowed 405     ├── NotAcceptable 406
├── AlreadyExists 409         ├── Conflict 409             ├── Expired 410
├── TooLarge 413              ├── UnsupportedMediaType 415 ├── Invalid 422
├── TooManyRequests 429       ├── NotImplementedHere 501   └── ServiceUnavailable 503
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from processkube.kubernetes_api.objects.objects import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One fault of one field, in the words of Kubernetes' `field.Error`."""

    reason: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def as_object(self) -> Object:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    return Cause(reason="FieldValueInvalid", field=field, message=f"Invalid value: {shown(value)}: {detail}")


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause(reason="FieldValueTypeInvalid", field=field, message=f"Invalid value: {shown(value)}: {detail}")


def required_value(field: str, detail: str = "") -> Cause:
    return Cause(reason="FieldValueRequired", field=field, message="Required value" + (f": {detail}" if detail else ""))


def not_supported(field: str, value: Any, supported: Sequence[Any]) -> Cause:
    listing = ", ".join(shown(one) for one in supported)
    message = f"Unsupported value: {shown(value)}: supported values: {listing}"
    return Cause(reason="FieldValueNotSupported", field=field, message=message)


def duplicate_value(field: str, value: Any) -> Cause:
    return Cause(reason="FieldValueDuplicate", field=field, message=f"Duplicate value: {shown(value)}")


def forbidden_value(field: str, detail: str) -> Cause:
    return Cause(reason="FieldValueForbidden", field=field, message=f"Forbidden: {detail}")


def shown(value: Any) -> str:
    """Return a value as error messages print it. A scalar is printed as JSON. A list or an object is printed as the
    name of its type only.
    """
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return '"null"'
    if isinstance(value, dict):
        return '"object"'
    if isinstance(value, list):
        return '"array"'
    return str(value)


class ApiError(Exception):
    """The base of all refusals of a request, with HTTP code, machine-readable reason, message and details."""

    code = 500
    reason = "InternalError"

    def __init__(self, message: str, *, details: Object | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> Object:
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    code, reason = 409, "Conflict"


class Expired(ApiError):
    """Raised for a resource version that the server no longer keeps. With `continue_token` the client can continue its
    list from the current state.
    """

    code, reason = 410, "Expired"

    def __init__(self, message: str, *, continue_token: str = "") -> None:
        super().__init__(message)
        self._continue_token = continue_token

    def status(self) -> Object:
        return {**super().status(), "metadata": {"continue": self._continue_token} if self._continue_token else {}}


class TooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """Raised for an object with faults. The error lists all of them, field by field."""

    code, reason = 422, "Invalid"

    def __init__(self, *, kind: str, group: str, name: str, causes: Sequence[Cause]) -> None:
        listing = str(causes[0]) if len(causes) == 1 else "[" + ", ".join(map(str, causes)) + "]"
        qualified = f"{kind}.{group}" if group else kind
        details: Object = {"name": name, "kind": kind, "causes": [cause.as_object() for cause in causes]}
        if group:
            details["group"] = group
        super().__init__(f'{qualified} "{name}" is invalid: {listing}', details=details)


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class NotImplementedHere(ApiError):
    code, reason = 501, "NotImplemented"
