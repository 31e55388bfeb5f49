"""Messages between a router that decides for other routers, and the routers for which it decides.

A *front* receives requests from clients, sends them to engines and returns the responses. The *decider* chooses the
instances for its fronts, with one view and one set of queues for all their requests. A router can be the front of one
router and the decider of many.

    front ── Asked, and the progress of each request ──► decider
    front ◄────────── Dispatch or Refusal ───────────── decider

Messages of one front arrive in the order in which they were sent, or are lost. Times in messages are Unix seconds of
one clock. If machines have different clocks, the transport converts the times.
"""

from collections.abc import Collection
from typing import Protocol

from xxhash import xxh3_64_intdigest

from fairlead.reports.moves import CacheTransfer, MoveOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.tables import PoolKey
from fairlead.values import value


@value
class Asked:
    """A front's query for the instance that should get a request, which the front received at `submitted_at`."""

    request: RoutingRequest
    submitted_at: float


@value
class UnderWay:
    """A front's report of a request that it already had in flight when it connected to the decider. The request was
    sent to `instance` at `dispatched_at`. With `by_proxy`, a proxy sent it there some time after `dispatched_at`.
    """

    request: RoutingRequest
    submitted_at: float
    instance: str
    decode: str | None
    hit_tokens: int
    dispatched_at: float
    is_prefilled: bool
    generated_tokens: int
    by_proxy: bool = False


@value
class Prefilled:
    """A report that the prompt of the request has been computed and that the request continues at its decode
    instance.
    """

    request: str


@value
class FirstToken:
    """A report that the first token of the request has arrived."""

    request: str


@value
class Transferred:
    """A report that the transfer of the KV blocks that the request fetches has ended. The blocks have arrived or will
    never arrive.
    """

    request: str
    transfer: CacheTransfer | None = None


@value
class Generated:
    """A report of how many output tokens of the request have arrived so far."""

    request: str
    output_tokens: int


@value
class Completed:
    """A report that the response to the request is complete."""

    request: str
    output_tokens: int
    cached_tokens: int | None


@value
class Abandoned:
    """A report that the request ended without being served."""

    request: str
    outcome: MoveOutcome
    rejection: RejectionReason | None = None
    """The front's reason for refusing the request; None if the engine declined it (4xx)."""
    is_recorded: bool = False
    """Whether the front has already recorded the end of the request. The front records it if the decider had not yet
    dispatched or refused the request.
    """


@value
class SentElsewhere:
    """A report that the instance `failed` failed before the first byte of its response, and that the request was sent
    to `instance` at once, by the front or by the front's proxy. A front knows of its proxy's choice only since
    `instance` began to respond.
    """

    request: str
    failed: str
    reached: bool
    instance: str
    decode: str | None
    by_proxy: bool = False
    refused: bool = False
    """Whether the instance `failed` rejected the request (4xx). The rejection may be correct, so no session moves."""
    carried_on: str = ""
    """The reason why the answer, which had begun, continues at `instance`; "" if the answer had not begun."""
    carried_tokens: int = 0
    """Number of tokens of the answer that the client had received when `failed` failed."""
    unlike: str | None = None
    """The reason why the rest of the answer may differ from the answer that `failed` would have generated."""


@value
class AttemptFailed:
    """A report that an instance failed the request in the given way. It is used only for the record of the request's
    decision.
    """

    request: str
    instance: str
    failure: str


@value
class InstanceFailed:
    """A front's report that an instance failed, with the request on which it failed, if any."""

    instance: str
    fault: Fault = Fault.UNREACHED
    request: str | None = None


@value
class InstanceWorked:
    """A front's report that an instance responded to a request completely."""

    instance: str


Word = (
    Asked
    | UnderWay
    | Prefilled
    | FirstToken
    | Transferred
    | Generated
    | Completed
    | Abandoned
    | SentElsewhere
    | InstanceFailed
    | InstanceWorked
    | AttemptFailed
)


class Decider(Protocol):
    """The connection from a front (a router that sends queries) to the router that decides for it."""

    def tell(self, word: Word, now: float) -> None:
        """Send a message. This method never waits and never fails. It does not report whether the decider is lost."""


class Front(Protocol):
    """The connection from a deciding router to one of its fronts (the routers that send it queries)."""

    def tell(self, verdict: Dispatch | Refusal, now: float) -> None:
        """Send the decision on a request. Never waits and never fails."""


def decider_of(pool: PoolKey, routers: Collection[str]) -> str:
    """Return the name of the router that decides for the pool: the router with the highest hash of pool and name
    (rendezvous hashing).

    Routers that know the same set of routers get the same result. Pools are spread over the routers. When a router
    joins or leaves, only the pools for which this router decides get another decider. Raises ValueError when there are
    no routers.
    """
    return max(routers, key=lambda router: (xxh3_64_intdigest(f"{pool}\n{router}".encode()), router))
