"""A fast dataclass for records of which a router creates several per request."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(made: type[Made]) -> type[Made]:
    """Make a dataclass that is frozen for type checkers but not at run time.

    Without the run-time check its instances are created in less than half the time. Name the fields; only where each
    request creates one are they given by position: Python looks up each named one, and each default of a field that may
    only be named, which takes several times as long.
    """
    return dataclass(slots=True, unsafe_hash=True)(made)
