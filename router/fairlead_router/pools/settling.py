"""Settles a pool's requests: records how each request ended, finds its token counts, and charges its key."""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_intdigest

from fairlead_router.metrics.endings import CONSEQUENCES, Charged, Ending
from fairlead_router.metrics.pool_counters import MOST_TOKENS, PoolCounters
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.tickets import Ticket
from fairlead_router.pools.traffic_recording import TrafficRecording
from fairlead_router.protocols.answers import StreamReader, Usage, usage_of
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.squeezing import Squeezed

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_SERVED: Final = Ending.SERVED


def ending_of_failure(ticket: Ticket, *, out_of_time: bool) -> Ending:
    """Return the ending of a request whose engine failed, or whose total time is over (`out_of_time`). If the last
    event of the answer had arrived before, the request counts as served.
    """
    stream = ticket.stream
    if stream is not None and stream.finished:
        return _SERVED
    if _has_part(ticket):
        return Ending.BROKEN_OFF
    return Ending.OUT_OF_TIME if out_of_time and ticket.given else Ending.LOST


def ending_of_leaving(ticket: Ticket) -> Ending:
    """Return the ending of a request whose client closed the connection. If the last event of the answer had arrived
    before, the request counts as served.
    """
    stream = ticket.stream
    if stream is not None and stream.finished:
        return _SERVED
    if not ticket.given:
        return Ending.LEFT_WAITING
    return Ending.LEFT_ANSWERED if _has_part(ticket) else Ending.LEFT_UNANSWERED


def _has_part(ticket: Ticket) -> bool:
    return ticket.passed_on or (ticket.stream is not None and ticket.stream.generated_tokens > 0)


class EventSizes:
    """The mean number of tokens per event in a pool's streams, from answers whose tokens the engine counted. It is
    above one with speculative decoding, or if the engine sends events at intervals.
    """

    __slots__ = ("_events", "_tokens")

    def __init__(self) -> None:
        self._events = self._tokens = 0.0

    def observe(self, stream: StreamReader) -> None:
        """Update the mean with a complete answer. Ignores short answers, and answers with implausibly many tokens per
        event: their engine has held back most of the answer, for example for a tool call.
        """
        tokens, events = stream.counted or (0, 0)
        if events >= FEWEST_EVENTS and tokens <= events * MOST_PER_EVENT:
            self._events = self._events * LASTING + events
            self._tokens = self._tokens * LASTING + tokens

    @property
    def is_known(self) -> bool:
        """Whether at least one answer has been observed."""
        return self._events > 0

    @property
    def mean(self) -> float:
        """The mean number of tokens per event; at least 1, and 1 before the first observed answer."""
        return max(1.0, self._tokens / self._events) if self._events else 1.0


FEWEST_EVENTS = 8
MOST_PER_EVENT = 32
LASTING = 0.95
"""The factor by which the weight of all earlier answers shrinks with each observed answer."""
OBSERVED = 8
"""Once the mean is known, one out of about this number of served streams is observed. A hash of the request's id
selects the streams, so that the selection follows no pattern in the traffic. A part of the streams is enough, because
the mean changes only with an engine's settings.
"""


class Settling:
    """Settles tickets: counts them in `counters`, and passes each ended request to `traffic`."""

    __slots__ = ("_counters", "_event_sizes", "_traffic")

    def __init__(self, counters: PoolCounters, traffic: TrafficRecording) -> None:
        self._counters = counters
        self._traffic = traffic
        self._event_sizes = EventSizes()

    def plausible(self, usage: Usage) -> Usage:
        """Return an engine's token counts without impossible values, and count the impossible values."""
        if (
            0 <= usage.output_tokens <= MOST_TOKENS
            and 0 <= (usage.prompt_tokens or 0) <= MOST_TOKENS
            and 0 <= (usage.cached_tokens or 0) <= MOST_TOKENS
        ):
            return usage
        plausible = self._counters.plausible
        return Usage(plausible(usage.output_tokens) or 0, plausible(usage.cached_tokens), plausible(usage.prompt_tokens))

    def part(self, ticket: Ticket) -> Usage | None:
        """Return the known token counts of an answer that broke off; None if no part of the answer could be read."""
        stream = ticket.stream
        if stream is None:
            return None if ticket.usage is None else self.plausible(ticket.usage)
        return self.left(ticket, stream)

    def left(self, ticket: Ticket, stream: StreamReader) -> Usage:
        """Return the token counts of a stream that ended early. Each event that the engine has not counted is assumed
        to have as many tokens as an event of the pool's other streams. The estimate is at most the request's own limit.
        """
        told, tokens = stream.usage(), stream.estimated_tokens(self._event_sizes.mean)
        if most := ticket.request.max_output_tokens * (1 if ticket.charge is None else ticket.charge.answers):
            tokens = max(stream.generated_tokens, min(tokens, most))
        return self.plausible(Usage(tokens, told.cached_tokens, told.prompt_tokens))

    def end(self, ticket: Ticket, ending: Ending, now: float, usage: Usage | None = None) -> None:
        """Record the ending of a ticket, count its request and settle its charge. The ticket must not have ended
        before.
        """
        consequences = CONSEQUENCES[ending]
        ticket.ending = ending
        ticket.ended_at = now
        if usage is not None:
            if not usage.prompt_tokens:
                usage = Usage(usage.output_tokens, usage.cached_tokens, ticket.request.prompt_tokens)
            ticket.usage = usage
        if ticket.request.warms:
            return
        self._counters.output_tokens += 0 if usage is None else usage.output_tokens
        if ending is _SERVED:
            sizes = self._event_sizes
            if ticket.stream is not None and (not sizes.is_known or xxh3_64_intdigest(ticket.request.id.encode()) % OBSERVED == 0):
                sizes.observe(ticket.stream)
            self._counters.served += 1
        else:
            self._counters.count_end(consequences.counted)
        if ticket.charge is not None:
            known = usage or Usage(0, None, ticket.request.prompt_tokens)
            prompt_tokens = 0 if consequences.charged is Charged.NOTHING else known.prompt_tokens or 0
            self.settle(ticket.charge, prompt_tokens, known.output_tokens if consequences.charged is Charged.TOKENS else 0, now)
        self._traffic.ended(ticket)

    def settle(self, charge: Charge, prompt_tokens: int, output_tokens: int, now: float) -> None:
        """Charge these tokens to the key, when a request has ended or its answer is fetched later. Counts above the
        plausible maximum are reduced to it, because one wrong count could lock a key out for years.
        """
        most = charge.most_tokens
        self._counters.implausible_usages += (prompt_tokens > most) + (output_tokens > most)
        charge.settle(min(prompt_tokens, most), min(output_tokens, most), now)


class LaterAnswer:
    """Reads a stored response that a client fetches after its request has ended, and charges its tokens. Call `feed`
    with each piece, and then `settle`.
    """

    __slots__ = ("_charge", "_document", "_reader", "_settling")

    def __init__(self, settling: Settling, charge: Charge) -> None:
        self._settling = settling
        self._charge = charge
        self._reader = StreamReader(Dialect.RESPONSES)
        self._document = Squeezed(0)

    def feed(self, piece: bytes) -> None:
        """Read the next piece of the response's document or events."""
        self._reader.feed(piece)
        self._document.feed(piece)

    def settle(self, now: float) -> None:
        """Charge the response's tokens that were not charged yet. If the original request is still running, do nothing,
        because its end charges them.
        """
        if not self._charge.has_ended:
            return
        self._reader.end()
        usage = usage_of(self._document) or self._reader.usage()  # a long document looks like an event to the reader
        self._settling.settle(self._charge, usage.prompt_tokens or 0, usage.output_tokens, now)
