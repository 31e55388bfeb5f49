"""Errors of the decision core.

FairleadError
├── InvalidInput        a person's input is wrong; names field, value and remedy
└── UnknownName         a name (policy, instance, pool) that does not exist; lists the existing names
"""

import re
from enum import Enum


class FairleadError(Exception):
    """Root of every error this package raises on purpose; `str(error)` is one line fit for a user."""


LONGEST_SHOWN = 120
"""Maximum number of characters of a value that an error message repeats."""

_CREDENTIALS = re.compile(r"(?<=//)\S*@")
"""The user, and often a password, before the host of a URL."""
_PARAMETERS = re.compile(r"(?<=//)([^\s?'\"]*)\?[^\s'\"]+")
"""The query after the path of a URL, which may contain tokens."""


def shown(value: object) -> str:
    """Return a value as an error message repeats it: at most one line long, and without the credentials in a URL."""
    text = _PARAMETERS.sub(r"\1?…", _CREDENTIALS.sub("…@", repr(value.value if isinstance(value, Enum) else value)))
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} … ({len(text):,} characters)"


class InvalidInput(FairleadError):
    """A value that a person gave and that cannot be used.

    `field` is its path in the user's document (`spec.routing.parameters.slo_fraction`), `value` the text found in the
    field (None if there is no text to show), `remedy` is the text to write instead, and `told` describes the fault.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        self.told = f"{field} cannot be used" if value is None else f"{field}: {shown(value)} cannot be used"
        super().__init__(f"{field}: {remedy}" if value is None else f"{self.told}; {remedy}")

    @property
    def parameter(self) -> str:
        """The last part of `field`."""
        return self.field.rpartition(".")[2]

    def __reduce__(self) -> tuple[type["InvalidInput"], tuple[str, object, str]]:
        """Return the parts from which the error is unpickled, so that it arrives complete from another process."""
        return type(self), (self.field, self.value, self.remedy)


class UnknownName(FairleadError):
    """A name that is not registered; the message lists the registered names."""

    def __init__(self, kind: str, name: str, known: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.known = known
        super().__init__(f"{kind} {name!r} is unknown; known: {', '.join(sorted(known)) or 'none'}")

    def __reduce__(self) -> tuple[type["UnknownName"], tuple[str, str, tuple[str, ...]]]:
        return type(self), (self.kind, self.name, self.known)
