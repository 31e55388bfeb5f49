"""The routers that the control API knows of: each tells it where it can be asked, and is told the same of the others.

What was told last holds while the API is away.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.reports.batches import AskAddress
from fairlead_router.deciding.listed import Listed


class ToldRouters:
    """Reports take `own` along, and their receipts bring the list."""

    def __init__(self) -> None:
        self.own: AskAddress | None = None
        """Where this router can be asked; None while it cannot."""
        self._listed: dict[str, Listed] = {}

    def enter(self, own: Listed) -> None:
        """Have this router made known with the next report."""
        self.own = AskAddress(host=own.host, port=own.port, secret=own.secret, protocol=own.protocol)

    def leave(self, router: str) -> None:
        """Have it forgotten with the next report."""
        self.own = None

    def listed(self) -> dict[str, Listed]:
        """All live routers that can be asked, as the API told last."""
        return dict(self._listed)

    def hear(self, told: Mapping[str, AskAddress]) -> None:
        """A receipt told of all live routers that can be asked."""
        self._listed = {
            router: Listed(router=router, host=one.host, port=one.port, secret=one.secret, protocol=one.protocol)
            for router, one in told.items()
        }
