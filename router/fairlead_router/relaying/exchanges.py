"""One attempt of a routed call at one instance, and the headers of its answer."""

from __future__ import annotations

from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of, rank_of
from fairlead_router.engines.upstream_connections import UpstreamConnection
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.kept_headers import decision_headers
from fairlead_router.relaying.calls import Call, Client
from fairlead_router.relaying.second_opinions import Doubt
from fairlead_router.relaying.sending import passed_headers


class Exchange:
    """One attempt at a routed request: the call at `instance`. Its answer goes to `client`, its end into `pool`'s
    account by `ticket`. For a divided request it is the answer of the decode instance.
    """

    __slots__ = ("call", "client", "connection", "dispatch", "doubt", "handed_over_at", "instance", "pool", "ticket")

    def __init__(
        self,
        call: Call,
        client: Client,
        pool: Pool,
        ticket: Ticket,
        dispatch: Dispatch,
        instance: str,
        connection: UpstreamConnection,
        handed_over_at: float,
        doubt: Doubt | None,
    ) -> None:
        self.call = call
        self.client = client
        self.pool = pool
        self.ticket = ticket
        self.dispatch = dispatch
        self.instance = instance
        self.connection = connection
        self.handed_over_at = handed_over_at
        """When the decode instance of a divided request got it; 0 = it is not divided."""
        self.doubt = doubt
        """The refusals of other engines so far."""

    @property
    def is_stream(self) -> bool:
        """Whether its client, which asked for a stream, gets one: an engine may also answer with one document."""
        if self.connection.status >= 400:
            return False
        for name, value in self.connection.headers:
            if name == b"content-type":
                return not value.startswith(b"application/json")
        return True

    def answer_headers(self) -> bytes:
        """Header lines for the client: the engine's that may pass, and those that name the decision."""
        dispatch, ticket = self.dispatch, self.ticket
        lines = passed_headers(self.connection)
        lines.append(
            b"x-fairlead-pool: %s\r\nx-fairlead-instance: %s\r\nx-fairlead-decision: %s\r\nx-fairlead-reason: %s\r\nx-fairlead-queued-ms: %d\r\n"
            % (
                self.pool.header,
                instance_of(dispatch.instance).encode(),
                dispatch.decision_id.encode(),
                dispatch.reason.value.encode(),
                ticket.queued_seconds * 1000.0,
            )
        )
        if dispatch.request.explain:
            lines += (b"%s: %s\r\n" % pair for pair in decision_headers(dispatch)[1:])
        if (rank := rank_of(dispatch.instance)) is not None:
            lines.append(b"x-fairlead-rank: %d\r\n" % rank)
        if dispatch.decode is not None:
            lines.append(b"x-fairlead-decode: %s\r\n" % instance_of(dispatch.decode).encode())
        if self.pool.classes.are_declared:
            lines.append(b"x-fairlead-priority-class: %s\r\n" % dispatch.request.priority_class.encode())
        return b"".join(lines)
