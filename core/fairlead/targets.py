"""Targets: the unit on which a request is placed, for which it is queued and to which it is sent.

An instance with a single engine process is one target, with the instance's name. An engine with several data-parallel
ranks (vLLM's `--data-parallel-size`, SGLang's `--dp-size`) has one target per rank: a rank has its own batch, KV cache
and prefix cache. Its name is the instance's name, `#` and the rank as `X-Data-Parallel-Rank` counts it, from 0 on;
names of pods and engines contain no `#`. Policies, queues, loads and the prefix index know only targets; health,
circuits and drains belong to the instance. Only this module reads or writes such names.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from xxhash import xxh3_64_intdigest

from fairlead.plausibility import MOST_RANKS
from fairlead.tables import InstanceEntry

_SIGN = "#"
_REMEMBERED = 65_536
"""Maximum number of target names whose parts are cached, enough for all names of a router: each name is divided several
times per request.
"""
LOST_SECONDS = 10.0
"""Seconds without a report about a rank after which the rank counts as lost, if the engine reported other ranks in this
time.
"""

Ranks = tuple[int, ...]


def target_of(instance: str, rank: int | None) -> str:
    """Return the target for this rank of the instance; the whole instance if `rank` is None."""
    return instance if rank is None else f"{instance}{_SIGN}{rank}"


@lru_cache(maxsize=_REMEMBERED)
def instance_of(target: str) -> str:
    """Return the instance to which the target belongs."""
    return target.partition(_SIGN)[0]


@lru_cache(maxsize=_REMEMBERED)
def rank_of(target: str) -> int | None:
    """Return the target's rank; None if it is a whole instance."""
    rank = target.partition(_SIGN)[2]
    return int(rank) if rank else None


def is_part(target: str, of: str) -> bool:
    """Return whether the target is a rank of the whole instance `of`."""
    return target != of and instance_of(target) == of


def targets_of(instances: Iterable[InstanceEntry], ranks: Mapping[str, Ranks]) -> tuple[InstanceEntry, ...]:
    """Return an entry for each target of these instances. `ranks` maps the ids of instances with several ranks to their
    ranks.
    """
    return tuple(
        replace(entry, id=target_of(entry.id, rank)) if rank is not None else entry
        for entry in instances
        for rank in (ranks.get(entry.id) or (None,))
    )


def chosen_rank(key: str, targets: Sequence[str]) -> str:
    """Return one of an instance's targets by rendezvous hashing. Every process chooses the same target for a key, and
    chooses another target only if the first target disappears.
    """
    return max(targets, key=lambda target: (xxh3_64_intdigest(f"{key}\n{target}".encode()), target))


class RanksSeen:
    """The data-parallel ranks of one engine, collected from its reports about single ranks.

    An engine may start the numbers of its ranks above 0: with vLLM's hybrid load balancing, an API server reports the
    whole deployment's numbers for its node's ranks, but counts them from 0 in the request header.
    """

    __slots__ = ("_first", "_seen_at", "ranks")

    def __init__(self) -> None:
        self._seen_at: dict[int, float] = {}
        self._first = 0
        self.ranks: Ranks = ()
        """Ranks in the order in which the request header numbers them; empty while at most one rank is known."""

    def see(self, names: Collection[int], now: float) -> bool:
        """Record, at time `now` (seconds of any clock), that the engine reports exactly the ranks with these names;
        return whether `ranks` changed.
        """
        if not names or max(names) - min(names) >= MOST_RANKS or min(names) < 0:
            return False
        self._first = min(names) if not self._seen_at else min(self._first, *names)
        self._seen_at |= dict.fromkeys(names, now)
        for lost in [name for name, seen_at in self._seen_at.items() if now - seen_at > LOST_SECONDS]:
            del self._seen_at[lost]
        before = self.ranks
        self.ranks = tuple(name - self._first for name in sorted(self._seen_at)) if len(self._seen_at) > 1 else ()
        return self.ranks != before

    def rank(self, name: int) -> int | None:
        """Return the rank, as the request header counts it, that the engine calls `name`. None if the engine has only
        one rank, or no rank of this name.
        """
        rank = name - self._first
        return rank if rank in self.ranks else None
