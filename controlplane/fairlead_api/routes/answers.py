"""How the API writes an answer."""

import msgspec
from fastapi import Response


def answer(content: object, status: int = 200) -> Response:
    """JSON of our dataclasses, encoded once."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")
