"""Values: records made several times for every request."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(made: type[Made]) -> type[Made]:
    """A frozen dataclass to type checkers; at run time one whose fields nothing protects, as that makes its instances
    in less than half the time.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(made)
