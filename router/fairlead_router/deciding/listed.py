"""Where routers find each other: what is known of each, and the places where that stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fairlead_router.deciding.frames import PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A router and where it listens. Who asks and who is asked show each other that they know its `secret`, which each
    process makes anew; it never goes over that connection.
    """

    router: str
    host: str
    port: int
    secret: str = field(repr=False)
    protocol: int = 1

    @property
    def is_understood(self) -> bool:
        """Whether it speaks as this router does."""
        return self.protocol == PROTOCOL


class Directory(Protocol):
    """A place where routers make themselves known. It may be behind: who is listed may be gone, or be another."""

    def enter(self, own: Listed) -> None:
        """Make this router known, again if it was forgotten. Raises OSError."""

    def leave(self, router: str) -> None:
        """Make it known no more."""

    def listed(self) -> dict[str, Listed]:
        """All routers known by name."""
