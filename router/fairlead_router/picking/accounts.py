"""Reports a picked request's progress to its pool: the pieces of its response, the engine that served it, and its end.

An account is settled exactly once, by `ended` or `abandoned`. The proxy does not say why a stream ends early. So the
request counts as cancelled both if its client left and if its engine was lost in the middle of the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of, rank_of
from fairlead_router.picking.messages import HeaderList
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.served_names import refuses_name
from fairlead_router.pools.settling import LaterAnswer
from fairlead_router.pools.side_circuits import Tries
from fairlead_router.pools.side_circuits import fault_of as fault_of_kind
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import (
    LongAnswer,
    StreamReader,
    Usage,
    WholeAnswer,
    content_type,
    is_response_id,
    read_whole,
    usage_of_head,
)
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.kept_headers import decision_headers
from fairlead_router.protocols.side_answers import SideAnswer
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_router.relaying.passing import ANSWER
from fairlead_router.relaying.usage_asking import REFUSALS, UsageAsking, names_the_option
from fairlead_router.serving.body_memory import MemoryShare

WHOLE_ANSWER_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes of an unstreamed response that are buffered. If a response is longer, or memory is short,
only some small fields are read as the response passes.
"""

PASSED_OVER = "passed-over"
"""The kind of an engine's failure that the proxy saw and the router did not see."""

HeaderPairs = list[tuple[bytes, bytes]]


class Account(Protocol):
    """The account of one picked request. It follows the request's response."""

    def began(self, headers: HeaderList, served: str | None, now: float) -> HeaderPairs:
        """Record that the response has begun. `served`: the endpoint that the proxy reports, or None. Return the
        headers to set in the response.
        """

    def piece(self, piece: bytes, now: float, *, last: bool) -> bytes:
        """Record a further piece of the response's body. Return the bytes for the client."""

    def ended(self, now: float) -> None:
        """Record that the response is complete."""

    def abandoned(self, now: float) -> None:
        """Record that the stream ended before the response was complete."""


class NoAccount:
    """The account of a request that no pool counts."""

    def began(self, headers: HeaderList, served: str | None, now: float) -> HeaderPairs:
        """Return no headers: there is nothing to record."""
        return []

    def piece(self, piece: bytes, now: float, *, last: bool) -> bytes:
        """Return the piece unchanged."""
        return piece

    def ended(self, now: float) -> None:
        """Do nothing: there is no account to settle."""

    def abandoned(self, now: float) -> None:
        """Do nothing: there is no account to settle."""


class RoutedAccount:
    """The account of a request that a scheduler placed. `told`: the endpoints that were sent to the proxy, in order."""

    def __init__(
        self,
        pool: Pool,
        ticket: Ticket,
        dialect: Dialect,
        held: HeldResponses,
        asking: UsageAsking,
        memory: MemoryShare,
        *,
        is_known: bool = True,
    ) -> None:
        """Make the account. `memory`: the response's share of the memory for bodies. `is_known`: whether the request's
        path is a path of the gateway, so that the format of the response is known.
        """
        self.pool = pool
        self._memory = memory
        self._is_known = is_known
        self.asks_usage = False
        """Whether the router lets the engine report usage that the client did not request."""
        self._asking = asking
        self.ticket = ticket
        self.told: Sequence[str] = ()
        self.name = ""
        """The name of the requested model or adapter at the engines."""
        self._dialect = dialect
        self._held = held
        self._status = 0
        self._failed = False
        self._remembered = False
        self._whole = WholeAnswer()
        self._in_head: Usage | None = None
        """The usage in a header of the response; None if there is none."""
        self._kind = b""
        self._reader: StreamReader | None = None
        self._pieces: list[bytes] | None = []
        self._size = 0
        self._long: LongAnswer | None = None

    def began(self, headers: HeaderList, served: str | None, now: float) -> HeaderPairs:
        """Record the beginning of the response (see `Account`). If the scheduler has not dispatched the request yet,
        the response comes from the proxy itself, and the request is cancelled.
        """
        dispatch = self.ticket.verdict
        if not self.told or not isinstance(dispatch, Dispatch):
            self.pool.account.cancel(self.ticket, now)
            return []
        if served is not None and served != (dispatch.decode_address or dispatch.address):
            dispatch = self._follow(dispatch, served, now)
        self._status, event_stream = status_and_kind(headers)
        answering = answering_target(dispatch)
        kind = fault_of(self._status, credentials=self.pool.passes_credentials(answering))
        if kind is not None:
            self._failed = True
            self.pool.engine_failed(answering, kind, now, self.ticket)
        elif self.ticket.request.streamed and event_stream and self._status < 400:
            hides_usage = self.asks_usage and not any(name == b"content-length" for name, _ in headers)
            self._reader = self.ticket.stream = StreamReader(self._dialect, hides_usage=hides_usage, answers=self.ticket.request.answers)
        else:
            self._in_head, self._kind = usage_of_head(headers), content_type(headers)
        return self._named(dispatch)

    def _follow(self, dispatch: Dispatch, served: str, now: float) -> Dispatch:
        """Record that the proxy sent the request to a later endpoint of its list, `served`, because the earlier
        endpoints failed. Return the new dispatch, or the old one if the instance is the same or unknown.
        """
        pool, failed = self.pool, answering_target(dispatch)
        instance = next((name for name, address in pool.addresses.items() if address == served), None)
        if instance is None or instance == instance_of(failed):
            return dispatch
        by_address = {address: name for name, address in pool.addresses.items()}
        before = self.told[: self.told.index(served)] if served in self.told else self.told[:1]
        for address in before:
            if address in by_address:
                pool.engine_failed(by_address[address], PASSED_OVER, now, self.ticket)
        target = pool.target(instance, rank_of(failed))
        verdict = pool.account.retry(self.ticket, failed, now, reached=True, to=target)
        return verdict if isinstance(verdict, Dispatch) else dispatch

    def _named(self, dispatch: Dispatch) -> HeaderPairs:
        pool, ticket = self.pool, self.ticket
        named = [
            (b"x-fairlead-pool", pool.header),
            (b"x-fairlead-instance", instance_of(dispatch.instance).encode()),
            (b"x-fairlead-decision", dispatch.decision_id.encode()),
            (b"x-fairlead-reason", dispatch.reason.value.encode()),
            (b"x-fairlead-queued-ms", b"%d" % (ticket.queued_seconds * 1000.0)),
        ]
        if dispatch.request.explain:
            named += decision_headers(dispatch)[1:]
        if (rank := rank_of(dispatch.instance)) is not None:
            named.append((b"x-fairlead-rank", b"%d" % rank))
        if dispatch.decode is not None:
            named.append((b"x-fairlead-decode", instance_of(dispatch.decode).encode()))
        if pool.classes.are_declared:
            named.append((b"x-fairlead-priority-class", dispatch.request.priority_class.encode()))
        return named

    def piece(self, piece: bytes, now: float, *, last: bool) -> bytes:
        """Record a piece of the response's body (see `Account`). The first piece with generated content counts as the
        first token.
        """
        reader = self._reader
        if reader is not None:
            shown = reader.feed(piece) if piece else b""
            if last:
                shown += reader.end()
            if reader.began and not self.ticket.saw_first_token:
                self.pool.account.first_token(self.ticket, now)
            if self._dialect is Dialect.RESPONSES and not self._remembered:
                self._remember(reader.response_id)
            return shown
        if self._pieces is not None:
            self._size += len(piece)
            self._pieces.append(piece)
            if self._size > WHOLE_ANSWER_BYTES or not self._memory.take_beside(len(piece)):
                self._keep_no_more(self._pieces)
        elif self._long is not None:
            self._long.feed(piece)
        return piece

    def _keep_no_more(self, pieces: list[bytes]) -> None:
        self._long, self._pieces = LongAnswer(has_input=self.ticket.request.prompt_bytes > 0), None
        for piece in pieces:
            self._long.feed(piece)
        self._memory.release()

    def ended(self, now: float) -> None:
        """Record that the response is complete (see `Account`)."""
        self._memory.release()
        pool, ticket, dispatch = self.pool, self.ticket, self.ticket.verdict
        if self._failed:
            pool.account.fail(ticket, now)
        elif isinstance(dispatch, Dispatch) and self.told:
            if self._status >= 400:
                self._note_refusal(dispatch)
                if refuses_name(self._status, b"".join(self._pieces or ()), self.name):
                    pool.choice.names.doubt(instance_of(answering_target(dispatch)))
                pool.account.decline(ticket, now)
            elif self._is_answer():
                pool.engine_worked(answering_target(dispatch), now)
                pool.account.complete(ticket, now, self._usage())
            else:
                pool.engine_failed(answering_target(dispatch), ANSWER, now, ticket)
                pool.account.fail(ticket, now)

    def abandoned(self, now: float) -> None:
        """Record that the stream ended early (see `Account`). If the protocol's last event was passed on, the engine
        has served the request, whichever side closed the stream.
        """
        self._memory.release()
        reader, dispatch = self._reader, self.ticket.verdict
        if reader is not None and reader.failure is not None and isinstance(dispatch, Dispatch):
            self._failed = True
            self.pool.engine_failed(answering_target(dispatch), ANSWER, now, self.ticket)
        if self._failed:
            self.pool.account.fail(self.ticket, now)
            return
        if reader is not None and reader.finished and isinstance(dispatch, Dispatch):
            self.pool.engine_worked(answering_target(dispatch), now)
        self.pool.account.cancel(self.ticket, now)

    def _is_answer(self) -> bool:
        """Return whether the body of a response with a success status is generated content. For a path that the gateway
        does not know, return whether the body is anything but an error.
        """
        if self._reader is not None:
            return (self._reader.shortfall if self._is_known else self._reader.failure) is None
        if self._pieces is not None:
            body = b"".join(self._pieces)
            has_input = self.ticket.request.prompt_bytes > 0
            self._whole = read_whole(body, has_input=has_input, kind=self._kind, dialect=self._dialect)
            if self._dialect is Dialect.RESPONSES:
                self._remember(self._whole.response_id)
            if not self._is_known and b'"error"' not in body:
                return True
        if self._long is not None and self._is_known:
            return self._long.failure is None
        return self._whole.failure is None

    def _usage(self) -> Usage:
        if self._reader is not None:
            return self._reader.usage()
        usage = self._whole.usage if self._long is None else self._long.usage
        return usage or self._in_head or Usage()

    def _note_refusal(self, dispatch: Dispatch) -> None:
        """Record that an engine refused the option that requests usage. Later requests to this engine do not get the
        option; this request cannot be sent again.
        """
        if self.asks_usage and self._status in REFUSALS and names_the_option(b"".join(self._pieces or ())):
            self._asking.refused(dispatch.decode_address or dispatch.address)

    def _remember(self, response: str | None) -> None:
        if is_response_id(response) and isinstance(self.ticket.verdict, Dispatch):
            self._remembered = True
            self._held.remember(response, self.pool.key, answering_target(self.ticket.verdict), self.ticket)


def answering_target(dispatch: Dispatch) -> str:
    """Return the target to which the proxy sent the request, which also responds: the decode instance if the dispatch
    has one.
    """
    return dispatch.decode or dispatch.instance


class DirectAccount:
    """The account of a request that bypassed the scheduler. The request went to the first endpoint of `told`, unless
    the proxy reports another endpoint.

    `charge`: the charge of a request that fetches a stored response; the response's tokens are charged when it passes.
    `judges`: whether a response counts as failed if its status is a success but its body is an error.
    """

    def __init__(self, pool: Pool, told: Sequence[str], now: float, charge: Charge | None = None, *, judges: bool = False) -> None:
        self.pool = pool
        self._judges = judges
        self._answer: SideAnswer | None = None
        self._later = None if charge is None else LaterAnswer(pool.account.settling, charge)
        self.instance = instance = told[0]
        self._told = told
        self._outcome = "served"
        self._tries = Tries(pool.choice.circuits)
        pool.account.begin_direct(instance, now)

    def began(self, headers: HeaderList, served: str | None, now: float) -> HeaderPairs:
        """Record that the response began (see `Account`)."""
        other = next((name for name, address in self.pool.addresses.items() if address == served), self.instance)
        if other != self.instance:  # the proxy saw those before it fail
            for passed in self._told[: self._told.index(other)] if other in self._told else self._told[:1]:
                self._failed_at(passed, PASSED_OVER, now)
            self.pool.account.end_direct(self.instance)
            self.instance = other
            self.pool.account.begin_direct(other, now)
        status, _ = status_and_kind(headers)
        kind = fault_of(status, credentials=self.pool.passes_credentials(self.instance))
        if kind is not None:
            self._outcome = "failed"
            self._failed_at(self.instance, kind, now)
        elif status >= 400:
            self._outcome = "rejected-by-engine"
        elif self._judges:
            self._answer = SideAnswer(content_type(headers))
        return [(b"x-fairlead-pool", self.pool.header), (b"x-fairlead-instance", self.instance.encode())]

    def piece(self, piece: bytes, now: float, *, last: bool) -> bytes:
        """Record a piece of the response's body (see `Account`)."""
        for reader in (self._later, self._answer):
            if reader is not None:
                reader.feed(piece)
        return piece

    def ended(self, now: float) -> None:
        """Record that the response is complete (see `Account`)."""
        self._leave(now)
        if self._answer is not None and self._answer.failure is not None:
            self._outcome = "failed"
            self._failed_at(self.instance, ANSWER, now)
        if self._outcome == "served":
            self._tries.served(self.instance, now)
        else:
            self._tries.over(now)
        self.pool.counters.direct[self._outcome] += 1

    def abandoned(self, now: float) -> None:
        """Record that the stream ended early (see `Account`). A failure shown by the response's status still counts."""
        self._leave(now)
        if self._outcome == "failed":
            self._tries.over(now)
        else:
            self._outcome = "cancelled"
            self._tries.left()
        self.pool.counters.direct[self._outcome] += 1

    def _failed_at(self, instance: str, kind: str, now: float) -> None:
        self.pool.counters.upstream_errors[kind] += 1
        self._tries.failed(instance, fault_of_kind(kind), now)

    def _leave(self, now: float) -> None:
        self.pool.account.end_direct(self.instance)
        if self._later is not None:
            self._later.settle(now)


def status_and_kind(headers: HeaderList) -> tuple[int, bool]:
    """Return the status of a response (0 = no valid status), and whether the response is a stream of events."""
    status, events = 0, False
    for name, value in headers:
        if name == b":status":
            status = int(value) if value.isdigit() and len(value) == 3 else 0
        elif name == b"content-type":
            events = value.lower().startswith(b"text/event-stream")
    return status, events


def fault_of(status: int, *, credentials: bool) -> str | None:
    """Return the kind of failure (as in `sending.refuse_engine_faults`) if a response's status is the fault of the
    engine and not of the request; None otherwise.
    """
    if status in (429, 503):
        return "busy"
    if status < 200 or 300 <= status < 400 or status >= 500:
        return "status"
    return "credential" if status in (401, 403) and not credentials else None
