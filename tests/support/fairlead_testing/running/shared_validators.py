"""Lets all APIs that a test process makes share their validators.

FastAPI asks pydantic for one for each parameter, body and answer of each route: 574, a third of a second. Hundreds of
tests make an API anew, always from the same types, and validators hold no state.
"""

from typing import Any

from fastapi._compat import v2
from pydantic import TypeAdapter

_MADE: dict[tuple[object, str, str], tuple[object, TypeAdapter[Any]]] = {}


def share_validators() -> None:
    """From now on FastAPI gets the same validator for the same type. To be called again without harm."""
    v2.TypeAdapter = _shared  # type: ignore[attr-defined, assignment]  # FastAPI only calls it


def _shared(annotated: Any, *, config: Any = None) -> TypeAdapter[Any]:
    key = (annotated.__origin__, repr(annotated), repr(config))
    try:
        _, made = _MADE[key]
    except TypeError:  # metadata makes some types unhashable
        return TypeAdapter(annotated, config=config)
    except KeyError:
        made = TypeAdapter(annotated, config=config)
        _MADE[key] = (annotated, made)  # the type stays, so its name in the key means no other one
    return made
