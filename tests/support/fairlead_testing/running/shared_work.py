"""Shares work that an API does once in its process, among the hundreds of APIs of a test process.

Otherwise this work would take half of the processor time of a short test of the API.
"""

from collections.abc import Hashable
from functools import partial
from typing import Any, get_args
from unittest.mock import patch

from fastapi._compat import v2
from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import create_async_engine

from fairlead_api.infra import database


class CompiledStatements(dict[tuple[Hashable, ...], Any]):
    """SQLAlchemy's cache of compiled statements, shared by the database engines of all APIs.

    Its keys begin with the engine's dialect. The dialect is left out here, because all engines have the same driver and
    options.
    """

    def get(self, key: tuple[Hashable, ...], default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: tuple[Hashable, ...], compiled: Any) -> None:
        super().__setitem__(key[1:], compiled)


_ADAPTERS: dict[tuple[Hashable, str, str], tuple[object, TypeAdapter[Any]]] = {}
"""Pydantic's adapter and the annotation, by type, metadata and configuration.

The annotation is kept because the text of the metadata may contain ids of objects, which must not be reused.
"""


def adapter_of(annotated: Any, config: Any = None) -> "TypeAdapter[Any]":
    """Return the same adapter for the same type, metadata and configuration; an adapter never changes."""
    annotation, *metadata = get_args(annotated)
    key = (annotation, repr(metadata), repr(config))
    if key not in _ADAPTERS:
        _ADAPTERS[key] = (annotated, TypeAdapter(annotated, config=config))
    return _ADAPTERS[key][1]


def share() -> None:
    """Make all later APIs of this process share their compiled statements and their analysed types."""
    options = {"compiled_cache": CompiledStatements()}
    patch.object(database, "create_async_engine", partial(create_async_engine, execution_options=options)).start()
    patch.object(v2, "TypeAdapter", adapter_of).start()
