"""Bindings of sessions to instances: the changes that routers report, and the bindings that the API streams to
routers.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from fairlead.tables import PoolKey
from fairlead.values import value


class BindingReason(StrEnum):
    """The reason for a session's binding; also the trigger of a migration or of a re-route.

    Decided by figures: `slo` staying was predicted to miss the TTFT target · `hot-migration` the instance that held the
    session was hot · `prefix-equal` the new instance held as much of the prompt and had less to do · `prefix-affinity`
    the new instance held more of the prompt · `prefix-outweighed` the new instance held less of the prompt, but its
    total cost was lower · `best-score` the new instance's score was better · `drawn` the new instance was drawn at
    random · `filtered-out` the policy's filters excluded the old instance · `hotspot` the session moved with a queued
    request, out of a queue that endangered the SLO.

    Decided by the place of the prefix on the ring: `ring-change` the place changed because instances came or went ·
    `prefix-key` the place changed because the prefix's key grew or shrank with the prefix's heat · `off-ring` the
    session had been placed away from its prefix's place, and went back there.

    Because the session could not stay: `drain` its instance is leaving · `instance-lost` its instance is gone or
    failing · `engine-stalled` its instance's engine made no progress · `queue-full` the instance's queue was full ·
    `outside-subset` the gateway in front does not allow that instance · `idle-instance` estimates would have refused
    the request, and an idle instance took it. `operator` a person asked for the move. `cold` is a first placement.

    Two reasons apply only to re-routes of a request that returns to its session's instance because a decided move was
    not made: `no-room` the new instance no longer had room for the request's context · `session-moved` the session had
    moved with another request in the meantime. With `operator`, a request returns because the pool's migrations were
    paused in the meantime.

    `prefix-copied` moves neither a session nor a request. The router let an instance fetch a prefix that many sessions
    share, before any of these sessions arrived there.
    """

    COLD = "cold"
    HOT_MIGRATION = "hot-migration"
    SLO = "slo"
    PREFIX_EQUAL = "prefix-equal"
    PREFIX_AFFINITY = "prefix-affinity"
    PREFIX_OUTWEIGHED = "prefix-outweighed"
    BEST_SCORE = "best-score"
    DRAWN = "drawn"
    FILTERED_OUT = "filtered-out"
    HOTSPOT = "hotspot"
    DRAIN = "drain"
    INSTANCE_LOST = "instance-lost"
    ENGINE_STALLED = "engine-stalled"
    QUEUE_FULL = "queue-full"
    OUTSIDE_SUBSET = "outside-subset"
    IDLE_INSTANCE = "idle-instance"
    RING_CHANGE = "ring-change"
    PREFIX_KEY = "prefix-key"
    OFF_RING = "off-ring"
    NO_ROOM = "no-room"
    SESSION_MOVED = "session-moved"
    OPERATOR = "operator"
    PREFIX_COPIED = "prefix-copied"


GAINING = frozenset(
    {
        BindingReason.HOT_MIGRATION,
        BindingReason.SLO,
        BindingReason.PREFIX_EQUAL,
        BindingReason.PREFIX_AFFINITY,
        BindingReason.PREFIX_OUTWEIGHED,
        BindingReason.BEST_SCORE,
        BindingReason.DRAWN,
        BindingReason.FILTERED_OUT,
        BindingReason.HOTSPOT,
        BindingReason.RING_CHANGE,
        BindingReason.PREFIX_KEY,
        BindingReason.OFF_RING,
    }
)
"""Triggers for sessions that could have stayed. Such a session moves only if the policy allows such moves and the move
gains at least the policy's minimum.
"""

TOLD_AS: Mapping[BindingReason, BindingReason] = MappingProxyType({})
"""Maps each reason that routers of the last release do not know to the reason that is sent to these routers instead.
Routers do not act on the reason.

Empty as long as no reason was added since a release.
"""


def told_reason(stored: str) -> BindingReason:
    """Return the reason for a session's placement as a reason that every router knows. Raises ValueError if `stored` is
    not a reason.
    """
    reason = BindingReason(stored)
    return TOLD_AS.get(reason, reason)


@value
class BindingChange:
    """The first binding of a session to an instance, or its move to another instance.

    The change says exactly which binding it replaces, and loses the race if the session no longer has that binding.
    `based_on` is the newest version that this router has from the API (0 = none). `after` is the id of this router's
    previous change if the API has not acknowledged it yet, else None. `id` is globally unique; the MigrationRecord of
    the same move has the same id. `rank` and `previous_rank` are the data-parallel ranks of the two instances, None if
    an instance has a single rank or the rank is unknown. A change that names the previous instance again only confirms
    that the session is in use. With `shared`, the change reports that several conversations use the session's name, so
    the name identifies no session and is no longer bound.
    """

    pool: PoolKey
    session: str
    instance: str
    reason: BindingReason
    at: float
    id: str = ""
    rank: int | None = None
    previous: str | None = None
    previous_rank: int | None = None
    based_on: int = 0
    after: str | None = None
    context_tokens: int = 0
    shared: bool = False

    @property
    def stays(self) -> bool:
        """Whether the change only confirms that the session is in use on its present instance."""
        return (self.previous, self.previous_rank) == (self.instance, self.rank)


@value
class Binding:
    """The instance that holds a session, as the API knows it; streamed to all routers.

    `reason` is one of `told_reason`. `version` grows by one with every move; `instance` None = unbound (expired).
    `change` is the id of the BindingChange that made the binding, so that a router recognises its own change. `rank` is
    the instance's data-parallel rank, if the instance has several and the change named one. `shared_at` is the last
    time at which the name was found to be shared by several conversations, in Unix seconds.
    """

    pool: PoolKey
    session: str
    instance: str | None
    version: int
    reason: BindingReason
    bound_at: float
    migrated_at: float | None
    rank: int | None = None
    context_tokens: int = 0
    change: str | None = None
    shared_at: float | None = None
