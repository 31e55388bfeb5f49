"""Decides which session names belong to a single conversation, from the requests that use the names.

A client may send anything as a session's name: a user, the client's own name, a constant. Requests with such a name are
not one conversation, and one instance cannot serve them all. So a name counts as a session's name only under two
conditions. Few requests use it at the same time (an agent may make parallel calls), and these requests belong to one
conversation and its few side requests.

A name is *shared* if it has more than `AT_ONCE` requests in flight, or if overlapping requests have more than
`BEGINNINGS` different beginnings or belong to more than `CONVERSATIONS` continuing conversations. It is assumed to be
shared until no sign of sharing has been observed for `keep_seconds`. If several turns of one conversation are in
flight, each longer than the turn before, they count as one request.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

AT_ONCE = 4
"""Maximum number of requests in flight with which a name still counts as the name of one session. An agent makes
parallel calls.
"""
BEGINNINGS = 4
"""Maximum number of different beginnings among overlapping requests with which a name still counts as the name of one
session. A conversation has side requests for titles, summaries and checks.
"""
CONVERSATIONS = 2
"""Maximum number of continuing conversations in overlapping requests with which a name still counts as the name of one
session, such as the conversations of an agent and of one sub-agent. A conversation continues if several requests have
its beginning, because the beginning recurs in each turn.
"""
MOST_BEGINNINGS = 16
"""Maximum number of beginnings remembered per name; the newest are kept."""
MOST_REMEMBERED = 20_000
"""Maximum number of names without a request in flight that are remembered because they seemed shared."""


class Hold(NamedTuple):
    """A request's use of a session name, until the request ends. `beginning` is the hash of the conversation's
    beginning. `counts` says whether the request counts towards `AT_ONCE`.
    """

    name: str
    beginning: int
    counts: bool


@dataclass(slots=True)
class _Beginning:
    requests: int = 0
    in_flight: int = 0
    overlaps: bool = False
    seen_at: float = 0.0


@dataclass(slots=True)
class _Use:
    in_flight: int = 0
    at_once: int = 0
    depth: int = 0
    """Number of blocks of the longest prompt that is in flight with this name."""
    last_block: int = 0
    longest: int = 0
    """The hash of the beginning of the conversation to which the longest prompt in flight belongs."""
    beginnings: dict[int, _Beginning] = field(default_factory=dict)
    shared_until: float = 0.0
    seen_at: float = 0.0


class SharedNames:
    """The use of the session names of one pool. Times are Unix seconds."""

    def __init__(self, keep_seconds: float) -> None:
        self.keep_seconds = keep_seconds
        self._used: dict[str, _Use] = {}
        self._remembered: OrderedDict[str, _Use] = OrderedDict()
        """Names without a request in flight, remembered because they seemed shared."""

    def is_shared(self, name: str, now: float) -> bool:
        """Return whether the name is assumed to be shared by several conversations."""
        use = self._used.get(name) or self._remembered.get(name)
        return use is not None and now < use.shared_until

    def hold(self, name: str, beginning: int, blocks: Sequence[int], now: float) -> Hold:
        """Record that a request with this name arrives. Return the `Hold`, which marks the name as in use until the
        request ends. `beginning` is the hash of the beginning of the request's conversation (0 = unknown), and `blocks`
        are the chained blocks of its prompt.
        """
        use = self._used.get(name)
        if use is None:
            use = self._used[name] = self._remembered.pop(name) if name in self._remembered else _Use()
        counts = not _goes_on(use, beginning, blocks)
        if not use.in_flight or len(blocks) > use.depth:
            use.depth, use.last_block, use.longest = len(blocks), blocks[-1] if blocks else 0, beginning
        if beginning:
            self._note(use, beginning, now)
        use.in_flight += 1
        use.at_once += counts
        use.seen_at = now
        if use.at_once > AT_ONCE or self._begins_in_many_ways(use, now):
            use.shared_until = now + self.keep_seconds
        return Hold(name, beginning, counts)

    def let_go(self, holds: Iterable[Hold]) -> None:
        """Record that the request with these holds has ended."""
        for name, beginning, counts in holds:
            use = self._used[name]
            use.in_flight -= 1
            use.at_once -= counts
            known = use.beginnings.get(beginning)
            if known is not None:
                known.in_flight -= 1
            if not use.in_flight:
                del self._used[name]
                if use.shared_until or len(use.beginnings) > 1:
                    self._remember(name, use)

    def hear(self, name: str, found_at: float, now: float) -> None:
        """Record another router's report that the name is shared. `found_at` is the time at which that router found
        this, by its own clock.
        """
        found_at = min(found_at, now)
        use = self._used.get(name) or self._remembered.get(name)
        if use is None:
            use = _Use(seen_at=found_at)
            self._remember(name, use)
        use.shared_until = max(use.shared_until, found_at + self.keep_seconds)

    def __len__(self) -> int:
        return len(self._used) + len(self._remembered)

    def _note(self, use: _Use, beginning: int, now: float) -> None:
        known = use.beginnings.pop(beginning, None) or _Beginning()
        use.beginnings[beginning] = known  # the newest last
        known.requests += 1
        known.in_flight += 1
        known.seen_at = now
        if len(use.beginnings) == 1:
            return
        for other, one in tuple(use.beginnings.items()):
            if one is not known and one.in_flight:
                one.overlaps = known.overlaps = True
            elif not one.in_flight and (now - one.seen_at > self.keep_seconds or len(use.beginnings) > MOST_BEGINNINGS):
                del use.beginnings[other]

    def _begins_in_many_ways(self, use: _Use, now: float) -> bool:
        if len(use.beginnings) <= CONVERSATIONS:
            return False
        overlapping = [one for one in use.beginnings.values() if one.overlaps and now - one.seen_at <= self.keep_seconds]
        return len(overlapping) > BEGINNINGS or sum(one.requests > 1 for one in overlapping) > CONVERSATIONS

    def _remember(self, name: str, use: _Use) -> None:
        self._remembered[name] = use
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        oldest = next(iter(self._remembered.values()))
        if use.seen_at - max(oldest.seen_at, oldest.shared_until) > self.keep_seconds:
            self._remembered.popitem(last=False)


def _goes_on(use: _Use, beginning: int, blocks: Sequence[int]) -> bool:
    """Return whether the prompt extends the longest prompt in flight with this name, as the next turn of a conversation
    extends the last turn.
    """
    depth = use.depth
    if not use.in_flight or not depth or len(blocks) <= depth or beginning != use.longest:
        return False
    return blocks[depth - 1] == use.last_block
