"""How the API writes an answer, and to whom it does not."""

from typing import Protocol, TypeVar

import msgspec
from fastapi import Response

from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import NotFound


class OfPool(Protocol):
    """What belongs to a pool, namespace/name."""

    @property
    def pool(self) -> str: ...


Item = TypeVar("Item", bound=OfPool)


def answer(content: object, status: int = 200) -> Response:
    """JSON of our dataclasses, encoded once."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def seen(caller: Caller, item: Item, kind: str, name: str) -> Item:
    """The item. Raises NotFound for that of a pool that the caller may not see: nobody learns that it exists."""
    if not caller.sees(item.pool):
        raise NotFound(kind, name)
    return item


OPEN_PATHS = frozenset({"/healthz", "/readyz", "/v1/login", "/v1/login-modes", "/v1/login/oidc"})
"""Paths that answer without a token."""
