"""A proxy's request from its arrival until its destination is chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from fairlead.targets import instance_of
from fairlead_router.picking.accounts import Account
from fairlead_router.picking.finding import withheld
from fairlead_router.picking.messages import NO_SCORES, HeaderList
from fairlead_router.picking.sidecars import PREFILL_HEADER
from fairlead_router.pools.pool import Pool
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.refusals import ErrorAnswer
from fairlead_router.protocols.requests import RANK_HEADER, is_shown_id
from fairlead_router.relaying.class_priorities import PLACES
from fairlead_router.serving.bodies import header_value
from fairlead_router.serving.body_memory import MemoryFull, MemoryShare


class PickedRequest:
    """A proxy's request from its arrival until its destination is chosen. The owner of the stream passes two callbacks.
    Exactly one of them is called with the result: `go(endpoints, withheld headers, changed headers, body, scores)` or
    `refuse`. `account` is set before `go` is called.
    """

    __slots__ = (
        "_made_id",
        "account",
        "arrived_at",
        "authority",
        "body",
        "dialect",
        "encoded",
        "go",
        "gone",
        "headers",
        "is_denied",
        "memory",
        "priority",
        "refuse",
        "task",
    )

    def __init__(
        self,
        headers: HeaderList,
        authority: bytes,
        arrived_at: float,
        memory: MemoryShare,
        go: Callable[[str, list[bytes], list[tuple[bytes, bytes]], bytes, Mapping[str, float]], None],
        refuse: Callable[[ErrorAnswer], None],
    ) -> None:
        self.headers = headers
        self.authority = authority
        self.arrived_at = arrived_at
        self.memory = memory
        """The request's share of the memory for bodies. It is kept as long as the body."""
        self.body = b""
        """The request's body: first as received, later as the engine gets it. It is the only copy while the request
        waits.
        """
        self.encoded = True
        """Whether the body still has the content codings that the headers name."""
        self._made_id = ""
        self.go = go
        self.refuse = refuse
        self.dialect = Dialect.OPENAI
        self.account: Account | None = None
        self.task: asyncio.Task[None] | None = None
        self.gone = False
        self.priority: bytes | None = None
        """The value of the header that gives the engine the priority of the request's class; None = the header is not
        set.
        """
        self.is_denied = False
        """Whether the client asked to have its routing decision kept, but is not allowed to."""

    def hold(self, size: int) -> None:
        """Add `size` bytes to the memory held for the body. Raises MemoryFull."""
        if not self.memory.take(size):
            raise MemoryFull

    def shown_id(self, make: Callable[[], str]) -> str:
        """Return the request id for responses: the client's own id, or else an id made by `make` at the first call."""
        given = header_value(self.headers, b"x-request-id") or ""
        if is_shown_id(given):
            return given
        self._made_id = self._made_id or make()
        return self._made_id

    def abandon(self, now: float) -> None:
        """Give the request up because its stream has ended, at whatever stage the request is."""
        self.gone = True
        self.body = b""
        if self.task is not None:
            self.task.cancel()
        account, self.account = self.account, None
        if account is not None:
            account.abandoned(now)

    def send(
        self,
        pool: Pool,
        endpoints: list[str],
        request_id: str,
        rank: int | None = None,
        prefill: str | None = None,
        scores: Mapping[str, float] = NO_SCORES,
    ) -> None:
        """Let the proxy send the request to the first of the endpoints, and to the next one if an endpoint fails. The
        client's credentials are included if the first endpoint's instance may get them.

        `rank`: the data-parallel rank, the same at every endpoint. `prefill`: the instance to which a side-car sends
        the prompt first. `scores`: the scores of the endpoints.
        """
        destination = ",".join(endpoints)
        headers = [(b"x-gateway-destination-endpoint", destination.encode())]
        if rank is not None:
            headers.append((RANK_HEADER, b"%d" % rank))
        self._made_id = self._made_id or request_id
        if not is_shown_id(header_value(self.headers, b"x-request-id") or ""):
            headers.append((b"x-request-id", self._made_id.encode()))
        served = [next((name for name, address in pool.addresses.items() if address == endpoints[0]), "")]
        if prefill is not None:
            served.append(instance_of(prefill))
            headers.append((PREFILL_HEADER, pool.addresses[served[1]].encode()))
        decided = [RANK_HEADER]
        if pool.passes_priority:
            decided.append(PLACES[pool.table.engine.type].header)
            if self.priority is not None:
                headers.append((decided[-1], self.priority))
        unwanted = withheld(self.headers, credentials=all(map(pool.passes_credentials, served)))
        unwanted += (name for name in decided if name not in unwanted and header_value(self.headers, name) is not None)
        replaced = {name for name, _ in headers}
        removed = [name for name in unwanted if name not in replaced]
        if not self.encoded:
            removed.append(b"content-encoding")
        body, self.body = self.body, b""
        self.go(destination, removed, headers, body, scores)
