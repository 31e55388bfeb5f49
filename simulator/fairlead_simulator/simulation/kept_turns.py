"""The last turns of a run's sessions, as routers keep their prompts for copies of shared prefixes."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from fairlead.routing.contracts.requests import RoutingRequest

MOST_TURNS = 1024


class Turn(NamedTuple):
    """See `fairlead.routing.contracts.copies.KeptTurn`."""

    request: RoutingRequest
    began: float
    at: float


class KeptTurns:
    """The newest turns, one of each session; requests without a session are one each."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, Turn] = OrderedDict()

    def keep(self, request: RoutingRequest, now: float) -> None:
        """Keep a served turn; it replaces the session's turn before."""
        name = request.session or request.id
        before = self._turns.pop(name, None)
        self._turns[name] = Turn(request, now if before is None else before.began, now)
        if len(self._turns) > MOST_TURNS:
            self._turns.popitem(last=False)

    def newest(self) -> Iterator[Turn]:
        """The turns, the newest first."""
        return reversed(self._turns.values())
