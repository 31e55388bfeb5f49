"""Bindings: the home of a session, as routers change it and as the API streams it."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from fairlead.tables import PoolKey
from fairlead.values import value


class BindingReason(StrEnum):
    """Why a session's KV home is where it is: the trigger of a migration, and of a re-route.

    By the numbers that decided: `slo` staying was predicted to miss the TTFT target · `hot-migration` the instance that
    held it was hot · `prefix-equal` both held as much of the prompt, and the other had less to do · `prefix-affinity`
    the other held more of the prompt · `prefix-outweighed` it held less of it, and cost less all the same ·
    `best-score` its score was better · `drawn` it was drawn by chance ·
    `filtered-out` the filters of the policy did not pass it · `hotspot` moved with a queued request, out of a
    queue that endangered the SLO.

    By where the prefix belongs: `ring-change` its place on the ring changed because instances came or went ·
    `prefix-key` its place changed because its prefix's key grew or shrank with the prefix's heat · `off-ring` it had
    been placed away from its prefix's place, and went back there.

    Because it could not stay: `drain` its instance is leaving · `instance-lost` its instance is gone or failing ·
    `engine-stalled` its instance's engine made no progress · `queue-full` the queue there was full · `outside-subset`
    the gateway in front does not allow that instance · `idle-instance` it would have been refused by estimates, and an
    idle instance took it. `operator` a person asked for it. `cold` is a first placement.

    Two are of requests alone, which go back to where their session is, since a move of it that was decided was not
    made: `no-room` its new host had no room for its context any more · `session-moved` it had moved with another
    request meanwhile. A request goes back by `operator` when the pool's migrations were paused meanwhile.
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
"""Triggers of sessions that could have stayed: they move for the least gain of their policy, or not at all."""

TOLD_AS: Mapping[BindingReason, BindingReason] = MappingProxyType({})
"""The reason sent to routers instead of one that those of the last release do not know; no router acts on it.

Empty as long as no reason was added since a release.
"""


def told_reason(stored: str) -> BindingReason:
    """Why a session is where it is, in a word that every router knows. Raises ValueError without a reason."""
    reason = BindingReason(stored)
    return TOLD_AS.get(reason, reason)


@value
class BindingChange:
    """A session's home set or moved.

    The change says exactly which binding it replaces, and loses the race when the session no longer has that binding.
    `based_on` is the newest version this router has from the API (0 = none). `after` is the id of a later change by
    this router that the API has not answered yet, None when there is none. `id` is unique forever; the MigrationRecord
    of the same move has the same id. `rank` and `previous_rank` are the data-parallel ranks of the two instances, None
    where an instance computes as one, or nobody knows. A change whose previous home is the one it names is only a sign
    of life of a session that stays; with `shared` it says that the name belongs to no session, as several conversations
    use it, and that nobody holds it any more.
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
