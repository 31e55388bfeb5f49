"""Scores that depend on earlier placements: of the same session, or of prompts that no instance had cached."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.routing.choosing.considered import Considered
from fairlead.routing.contracts.vectors import FloatVector
from fairlead.schemas.shapes import text, whole

NEUTRAL = 0.5


def home_place(seen: Considered) -> int | None:
    """Return the index of the session's instance (its home) among the considered instances; None if the home is not
    among them or does not exist.
    """
    session = seen.request.session
    home = None if session is None else seen.view.binding(session)
    if home is None or home.instance is None:
        return None
    return next((place for place, load in enumerate(seen.loads) if load.entry.id == home.instance), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAffinity:
    """Parameters of `session-affinity-scorer` and `session-affinity-filter`. A session's home is the instance to which
    the session is bound; all routers of the pool share the bindings.
    """

    strategy: str = text("Strategy; only `session_id`, because addresses that clients send are not trusted.", enum=("session_id",))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAffinityScorer(SessionAffinity):
    """`session-affinity-scorer`: the session's home scores 1, all other instances 0."""

    term: ClassVar[str] = "session_score"

    def scores(self, seen: Considered) -> FloatVector:
        scores = np.zeros(len(seen))
        home = home_place(seen)
        if home is not None:
            scores[home] = 1.0
        return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPlacement:
    """Parameters of `no-hit-lru-scorer`."""

    lru_size: int = whole("Number of instances that are remembered.", 1024, minimum=1, maximum=1_000_000)
    prefix_match_info_producer_name: str = text("The producer of the matches, by its name among the plugins.", "")


class NoHitLruScorer:
    """`no-hit-lru-scorer`: scores requests whose prompt no instance has cached. It prefers the instance that got such a
    prompt longest ago, so that caches grow evenly. A request whose prompt is cached somewhere scores the same on all
    instances.
    """

    term: ClassVar[str] = "cold_score"

    def __init__(self, parameters: ColdPlacement) -> None:
        self._size = parameters.lru_size
        self._used: OrderedDict[str, None] = OrderedDict()
        """The instances that got prompts that no instance had cached, ordered by the time of the last such prompt,
        oldest first.
        """

    def scores(self, seen: Considered) -> FloatVector:
        count = len(seen)
        if seen.hits.any():
            return np.full(count, NEUTRAL)
        if count == 1:
            return np.ones(1)
        positions = {instance: position for position, instance in enumerate(self._used)}
        longest_ago = sorted(range(count), key=lambda place: positions.get(seen.loads[place].entry.id, -1))
        scores = np.empty(count)
        scores[longest_ago] = 1.0 - np.arange(count) / (count - 1)
        return scores

    def picked(self, seen: Considered, place: int) -> None:
        """Record that the request goes to the instance at this index among the considered instances."""
        if seen.hits.any():
            return
        instance = seen.loads[place].entry.id
        self._used[instance] = None
        self._used.move_to_end(instance)
        if len(self._used) > self._size:
            self._used.popitem(last=False)
