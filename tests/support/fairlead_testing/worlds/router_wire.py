"""A connection between a front router and the router that decides for it. It delivers messages when a test says so."""

from collections import deque

from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import Word
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler

Outcome = Dispatch | Refusal


class Wire:
    """The connection. `words` (of the front) and `verdicts` (of the decider) were sent and not yet delivered.

    `decided` has the outcomes that delivered words caused for the decider's own requests.
    """

    def __init__(self, front: SharedScheduler, decider: SharedScheduler, now: float) -> None:
        self.front = front
        self.decider = decider
        self.words: deque[Word] = deque()
        self.verdicts = _Verdicts()
        self.decided: list[Outcome] = []
        decider.join(self.verdicts)
        front.ask(self, now)

    def tell(self, word: Word, now: float) -> None:
        """Send a word from the front."""
        self.words.append(word)

    def carry(self, now: float) -> tuple[Outcome, ...]:
        """Deliver all messages in both directions. Return the outcomes for the front."""
        outcomes: list[Outcome] = []
        while self.words or self.verdicts.said:
            outcomes += self.carry_one(now)
        return tuple(outcomes)

    def carry_one(self, now: float) -> tuple[Outcome, ...]:
        """Deliver the next word, or the next verdict if there is no word. Return the outcomes for the front."""
        if self.words:
            self.decided += self.decider.hear_front(self.verdicts, self.words.popleft(), now)
            return ()
        return self.front.hear(self.verdicts.said.popleft(), now) if self.verdicts.said else ()

    def part(self, now: float) -> tuple[Outcome, ...]:
        """Break the connection: undelivered messages are lost, and both routers learn it. Return the outcomes for the
        front.
        """
        self.words.clear()
        self.verdicts.said.clear()
        self.decided += self.decider.leave(self.verdicts, now)
        return self.front.ask_nobody(now)


class _Verdicts:
    """The direction from the decider to the front."""

    def __init__(self) -> None:
        self.said: deque[Outcome] = deque()

    def tell(self, verdict: Outcome, now: float) -> None:
        """Send a verdict from the decider."""
        self.said.append(verdict)
