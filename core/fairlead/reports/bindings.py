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

    Decided by figures: `slo` staying was predicted to miss the TTFT target · `hot-migration` the instance that held it
    was hot · `prefix-equal` the new instance held as much of the prompt and had less to do · `prefix-affinity` the new
    instance held more of the prompt · `prefix-outweighed` the new instance held less of the prompt, but cost less all
    the same · `best-score` the new instance's score was better · `drawn` the new instance was drawn at random ·
    `filtered-out` the policy's filters excluded the old instance · `hotspot` moved with a queued request, out of a
    queue that endangered the SLO.

    Decided by the place of the prefix on the ring: `ring-change` its place on the ring changed because instances came
    or went · `prefix-key` its place changed because its prefix's key grew or shrank with the prefix's heat · `off-ring`
    it had been placed away from its prefix's place, and went back there.

    Because it could not stay: `drain` its instance is leaving · `instance-lost` its instance is gone or failing ·
    `engine-stalled` its instance's engine made no progress · `queue-full` the queue there was full · `outside-subset`
    the gateway in front does not allow that instance · `idle-instance` it would have been refused by estimates, and an
    idle instance took it. `operator` a person asked for it. `cold` is a first placement.

    Two reasons apply only to re-routes of a request, which returns to its session's home because a decided move was not
    made: `no-room` the new instance no longer had room for its context · `session-moved` the session had moved with
    another request meanwhile. With `operator`, a request returns because the pool's migrations were paused meanwhile.

    `prefix-copied` moves neither a session nor a request: the router let an instance fetch a prefix that many sessions
    share, before one of them came there.
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
"""Triggers of sessions that could have stayed: such a session moves only if the policy allows such moves and the move
gains at least the policy's minimum.
"""

TOLD_AS: Mapping[BindingReason, BindingReason] = MappingProxyType({})
"""For each reason that routers of the last release do not know, the reason that is sent to them instead; routers do not
act on it.

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
    """A session's first home, or its move to a new home.

    The change says exactly which binding it replaces, and loses the race if the session no longer has that binding.
    `based_on` is the newest version that this router has from the API (0 = none). `after` is the id of this router's
    previous change if the API has not acknowledged it yet, else None. `id` is globally unique; the MigrationRecord of
    the same move has the same id. `rank` and `previous_rank` are the data-parallel ranks of the two instances, None if
    an instance has a single rank or the rank is unknown. A change that names the previous home again only confirms that
    the session is in use. With `shared`, the change reports that several conversations use the session's name, so the
    name identifies no session and is no longer bound.
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
        """Whether the change only confirms that the session is in use at its present home."""
        return (self.previous, self.previous_rank) == (self.instance, self.rank)


@value
class Binding:
    """A session's current home as the API knows it, streamed to all routers.

    `reason` is one of `told_reason`. `version` grows by one with every move; `instance` None = unbound (expired).
    `change` is the id of the BindingChange that made the binding; a router recognises its own change by it. `rank` is
    the instance's data-parallel rank, if it has several and the change named one. `shared_at`: when the name was last
    found to be shared by several conversations; Unix seconds.
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
