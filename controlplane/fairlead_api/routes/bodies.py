"""Request bodies of people: a field we do not know is an error, not something to ignore."""

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request

from fairlead.errors import InvalidInput


def known_fields(body: type[Any]) -> Callable[[Request], Awaitable[None]]:
    """A dependency that raises InvalidInput for top-level names `body` (a dataclass) does not have."""
    names = [field.name for field in dataclasses.fields(body)]

    async def dependency(request: Request) -> None:
        try:
            document = json.loads(await request.body())
        except ValueError:
            return  # malformed JSON is reported by the body's own validation
        for name in document if isinstance(document, dict) else ():
            if name not in names:
                raise InvalidInput(name, document[name], f"remove it; known fields: {', '.join(names)}")

    return dependency
