"""A connection from a router to the one that decides for it, which carries what was said when a test says so."""

from collections import deque

from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import Word
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler

Outcome = Dispatch | Refusal


class Wire:
    """`words` and `verdicts` are what was said and not yet heard; `decided` what words brought the decider's own
    requests.
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
        """The front says something."""
        self.words.append(word)

    def carry(self, now: float) -> tuple[Outcome, ...]:
        """Let each hear what the other said; what the front is to do."""
        outcomes: list[Outcome] = []
        while self.words or self.verdicts.said:
            outcomes += self.carry_one(now)
        return tuple(outcomes)

    def carry_one(self, now: float) -> tuple[Outcome, ...]:
        """Let the next word be heard, or the next verdict if there is no word."""
        if self.words:
            self.decided += self.decider.hear_front(self.verdicts, self.words.popleft(), now)
            return ()
        return self.front.hear(self.verdicts.said.popleft(), now) if self.verdicts.said else ()

    def part(self, now: float) -> tuple[Outcome, ...]:
        """Lose what was not yet heard, and let both know; what the front is to do."""
        self.words.clear()
        self.verdicts.said.clear()
        self.decided += self.decider.leave(self.verdicts, now)
        return self.front.ask_nobody(now)


class _Verdicts:
    """The way back."""

    def __init__(self) -> None:
        self.said: deque[Outcome] = deque()

    def tell(self, verdict: Outcome, now: float) -> None:
        """The decider says something."""
        self.said.append(verdict)
