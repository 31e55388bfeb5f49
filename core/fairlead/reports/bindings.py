"""Bindings: the home of a session, as routers change it and as the API streams it."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from fairlead.tables import PoolKey
from fairlead.values import value


class BindingReason(StrEnum):
    """Why a session's KV home is where it is.

    `cold` first placement · `hot-migration` the instance that held it was hot · `slo` the other candidate of its
    pair could serve it sooner · `hotspot` moved with a queued request · `drain` its instance is leaving ·
    `instance-lost` its instance is gone or failing · `engine-stalled` its instance's engine made no progress ·
    `ring-change` its place on the ring changed because instances
    came or went · `prefix-key` its place changed because its prefix's key grew or shrank with the prefix's heat ·
    `operator` a person asked for it.

    Two are of requests alone, which go back to where their session is, since a move of it that was decided was not
    made: `no-room` its new host had no room for its context any more · `session-moved` it had moved with another
    request meanwhile. A request goes back by `operator` when the pool's migrations were paused meanwhile.
    """

    COLD = "cold"
    HOT_MIGRATION = "hot-migration"
    SLO = "slo"
    HOTSPOT = "hotspot"
    DRAIN = "drain"
    INSTANCE_LOST = "instance-lost"
    ENGINE_STALLED = "engine-stalled"
    RING_CHANGE = "ring-change"
    PREFIX_KEY = "prefix-key"
    NO_ROOM = "no-room"
    SESSION_MOVED = "session-moved"
    OPERATOR = "operator"


TOLD_AS: Mapping[BindingReason, BindingReason] = MappingProxyType({BindingReason.ENGINE_STALLED: BindingReason.INSTANCE_LOST})
"""What routers are told in the place of a reason that those of the last release do not know; no router acts on it."""


def told_reason(stored: str) -> BindingReason:
    """Why a session is where it is, in a word that every router knows. Raises ValueError for no reason at all."""
    reason = BindingReason(stored)
    return TOLD_AS.get(reason, reason)


@value
class BindingChange:
    """A session's home set or moved.

    The change says exactly which binding it replaces, and loses the race when the session no longer has that binding.
    `based_on` is the newest version the API has told this router (0 = none). `after` is the id of a later change by
    this router that the API has not answered yet, None when there is none. `id` is unique for ever; the
    MigrationRecord of the same move has the same id. `rank` and `previous_rank` are the data-parallel ranks of the two
    instances, None where an instance computes as one, or nobody knows. A change whose previous home is the one it names
    is only a sign of life of a session that stays; with `shared` it tells that the name is no session's, as several
    conversations use it, and that nobody holds it any more.
    """

    id: str = ""
    pool: PoolKey
    session: str
    instance: str
    rank: int | None = None
    previous: str | None = None
    previous_rank: int | None = None
    reason: BindingReason
    at: float
    based_on: int = 0
    after: str | None = None
    context_tokens: int = 0
    shared: bool = False

    @property
    def stays(self) -> bool:
        """Whether it is only a sign of life."""
        return (self.previous, self.previous_rank) == (self.instance, self.rank)


@value
class Binding:
    """A session's current home as the API knows it, streamed to all routers.

    `reason` is one of `told_reason`. `version` grows by one with every move; `instance` None = unbound (expired).
    `change` is the id of the BindingChange that made the binding; by it a router recognises its own change. `rank` is
    the instance's data-parallel rank, if it has several and the change named one. `shared_at`: when the name was last
    found to be shared by several conversations; Unix seconds.
    """

    pool: PoolKey
    session: str
    instance: str | None
    rank: int | None = None
    version: int
    reason: BindingReason
    bound_at: float
    migrated_at: float | None
    context_tokens: int = 0
    change: str | None = None
    shared_at: float | None = None
