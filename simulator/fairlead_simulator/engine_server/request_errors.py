"""Errors for requests that the engine refuses. An error has the content of vLLM's error document: a message, an error
type, the field at fault, and the HTTP status.
"""

from typing import Any


class RequestInvalid(Exception):
    """Raised for a request that the engine cannot serve.

    `param` is the field at fault, `kind` is the error type in the error document, and `status` is the HTTP status.
    """

    def __init__(self, message: str, param: str | None = None, status: int = 400, kind: str = "BadRequestError") -> None:
        self.param = param
        self.status = status
        self.kind = kind
        super().__init__(message)


class FieldInvalid(RequestInvalid):
    """Raised for a field that is missing or has the wrong form. As in vLLM, the error type is "Bad Request", the phrase
    of status 400, and `param` begins with `body`.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(
            f"1 validation error: {field}{': ' if field else ''}{problem}", f"body.{field}" if field else "body", kind="Bad Request"
        )


def missing(field: str) -> FieldInvalid:
    """Return the error for a request that lacks a field."""
    return FieldInvalid(field, "Field required")


def unsuitable(field: str, value: object, wanted: str) -> FieldInvalid:
    """Return the error for a field with an unusable value. `wanted` completes the sentence "Input should be …"."""
    if value is None:
        return missing(field)
    return FieldInvalid(field, f"Input should be {wanted}, not {shown(value)}")


def not_simulated(field: str, value: object, remedy: str) -> RequestInvalid:
    """Return the error for a field that vLLM supports but this engine does not."""
    return RequestInvalid(f"{field}={shown(value)} is not simulated; {remedy} (parameter={field})", field)


def unknown_model(asked: object, served: str) -> RequestInvalid:
    """Return the 404 error for a model that the engine does not serve."""
    return RequestInvalid(f"The model `{asked}` does not exist. Valid aliases: {served}.", "model", 404, "NotFoundError")


def shown(value: Any) -> str:
    """Return a value shortened for an error message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
