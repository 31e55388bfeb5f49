"""The live counters of one instance, which queues update and policies read."""

from dataclasses import dataclass, field
from math import inf

from fairlead.instances import Role
from fairlead.routing.contracts.decode_history import DecodeHistory
from fairlead.tables import InstanceEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersLoad:
    """Requests that other routers have in flight on an instance, according to their reports. The reports are some
    seconds old. `prefill_share` (0-1) is the share of the instance's recent time that the prefills of these requests
    took.
    """

    pending_prefill_tokens: int = 0
    """The other routers' pending prefill tokens, reduced by the tokens that were probably computed since the report."""
    pending_prefill_microseconds: int = 0
    in_flight: int = 0
    decoding: int = 0
    decode_tokens: int = 0
    prefill_share: float = 0.0


@dataclass(slots=True, kw_only=True)
class InstanceLoad:
    """The live counters of one instance. Counters of prefill tokens count uncached prompt tokens, by the latest
    estimate of each request's cache hit.
    """

    entry: InstanceEntry
    pending_prefill_tokens: int = 0
    """Tokens of requests that are queued or dispatched and have no first token yet."""
    pending_prefill_microseconds: int = 0
    """Predicted time of the pending prefills, in microseconds, by the latest prediction for each request."""
    dispatched_prefill_tokens: int = 0
    in_flight: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Dispatched requests without a first token, in order of dispatch. Each has the time of its dispatch and its
    predicted prefill time in microseconds.
    """
    late_prefill_microseconds: int = 0
    """The part of `pending_prefill_microseconds` that belongs to queued requests that can no longer meet their TTFT
    target.
    """
    prefill_pace: float = 1.0
    """Actual over predicted prefill time on this instance, smoothed. It is above 1 if decodes slow down the prefills.
    """
    recent_prefill_seconds: float = 1.0
    """The mean predicted seconds of the prefills that `prefill_pace` averages."""
    lasting_pace: float = 1.0
    """Actual over predicted prefill time, averaged over many more prefills than `prefill_pace`. It shows the instance's
    lasting speed, not its momentary speed.
    """
    usual_prefill_seconds: float = 1.0
    """The mean predicted seconds of the prefills that `lasting_pace` averages."""
    paced_at: float | None = None
    """Time of the last update of `prefill_pace` and `lasting_pace`; None before the first update."""
    history: DecodeHistory = field(default_factory=DecodeHistory)
    """The instance's decodes and prefills over time. Updated only while early rejection or the queues need measured
    decode step times.
    """
    waiting: int = 0
    """Number of requests that are queued in this router for the instance."""
    prefilling: int = 0
    """Number of dispatched requests without a first token."""
    decoding: int = 0
    decode_tokens: int = 0
    """Context tokens of the running decodes."""
    incoming: int = 0
    """Number of requests that are queued or being prefilled on other instances and will decode on this instance."""
    incoming_tokens: int = 0
    transfers_out: int = 0
    """Number of prefills on other instances that fetch KV blocks from this instance."""
    sessions: int = 0
    kv_usage: float | None = None
    engine_waiting: int | None = None
    """Number of requests, from any router, that the engine has accepted but not begun to compute, according to its
    latest metrics; None if unknown.
    """
    engine_told_at: float = -inf
    last_first_token_at: float | None = None
    rest_owed: float = 0.0
    """Seconds of rest that the prefills sent to the instance require and that the instance has not taken yet. A rest is
    time without prefills, in which an engine only decodes.
    """
    prefilling_since: float | None = None
    """Time since which the instance has always had uncached tokens to compute; None while it has none."""
    broken_until: float = 0.0
    """Time until which the circuit is open (Unix seconds). Until then the instance is not a candidate, unless
    `is_spared`.
    """
    is_stalled: bool = False
    """Whether the engine has work but makes no progress. Such an instance is not a candidate, unless `is_spared`."""
    is_spared: bool = False
    """Whether the instance is a candidate in spite of its open circuit, because the circuits of all other suitable
    instances are open too. The view sets this.
    """
    longest_prefilled_microseconds: int = 0
    """The longest predicted prefill, in microseconds, that ended on the instance after this field was last read."""
    heard_at: float = -inf
    """Time of this router's last response from the engine's HTTP server (Unix seconds)."""
    others: OthersLoad | None = None
    """Other routers' load on the instance; None while no other router reports (see `scheduling.others`)."""
    lacks_decode: bool = False
    """Whether no instance could decode the prompts that this prefill instance computes; this instance is then not a
    candidate. The view sets this.
    """

    def scale_pace(self, times: float, *, lasting: bool = True) -> None:
        """Multiply the paces by `times` after the predicted speed changed by this factor, so that pace × prediction
        stays the same. `lasting_pace` is changed only if `lasting` is True.
        """
        if self.paced_at is not None:
            self.prefill_pace *= times
            if lasting:
                self.lasting_pace *= times
            self.recent_prefill_seconds /= times
            self.usual_prefill_seconds /= times

    def forget_pace(self) -> None:
        """Reset the paces to 1: the instance's prefills are assumed to take exactly as long as predicted."""
        self.prefill_pace = self.recent_prefill_seconds = self.lasting_pace = self.usual_prefill_seconds = 1.0
        self.paced_at = None

    def rest_credit(self, now: float) -> float:
        """Return the seconds since the end of the instance's last prefill (0 while a prefill runs), minus the seconds
        of rest that the instance still has to take. Infinite before any prefill.
        """
        if self.prefilling:
            return -self.rest_owed
        return inf if self.last_first_token_at is None else now - self.last_first_token_at - self.rest_owed

    def owe_rest(self, seconds: float, now: float) -> None:
        """Record that a prefill was dispatched that requires `seconds` of rest. Rest that the instance has already
        taken is subtracted. If `seconds` is 0, because nothing decodes on the instance, no rest is owed.
        """
        self.rest_owed = max(0.0, seconds - self.rest_credit(now)) if seconds else 0.0

    @property
    def is_idle(self) -> bool:
        """Return whether the instance has no work, and no request that prefills elsewhere will decode on it."""
        return not (self.decoding or self.prefilling or self.waiting or self.incoming or self.pending_prefill_tokens)

    @property
    def computes_nothing(self) -> bool:
        """Return whether the engine has nothing to do, as far as this router knows. Requests may still wait in this
        router.
        """
        return not (self.prefilling or self.decoding or (self.others is not None and self.others.decoding))

    @property
    def under_way(self) -> tuple[float, float]:
        """Return the start (Unix seconds) and the predicted duration (seconds) of the oldest prefill in flight; (inf,
        0) if no prefill is in flight. A prefill starts when it is sent or, if that is later, at the first token of the
        prefill before it.
        """
        for sent_at, microseconds in self.in_flight.values():
            before = self.last_first_token_at
            return sent_at if before is None else max(sent_at, before), microseconds / 1e6
        return inf, 0.0

    def done_seconds(self, now: float) -> float:
        """Return the seconds that the oldest prefill in flight has taken so far; at most its predicted duration."""
        since, seconds = self.under_way
        return min(max(now - since, 0.0), seconds)

    def free_kv_tokens(self, capacity_tokens: int) -> int:
        """Return the number of free KV tokens out of `capacity_tokens`. Cached blocks that no running request uses can
        be evicted, so they count as free. The used part is the larger of two figures: the engine's own figure, and the
        tokens of this router's requests that run on the instance.
        """
        known = self.decode_tokens + self.dispatched_prefill_tokens
        measured = 0 if self.kv_usage is None else int(self.kv_usage * capacity_tokens)
        return capacity_tokens - max(known, measured)

    def is_shut(self, now: float) -> bool:
        """Return whether the instance gets no requests at `now`, because its circuit is open or its engine is
        stalled.
        """
        return self.is_stalled or self.broken_until > now

    def may_be_sent(self, now: float) -> bool:
        """Return whether a request can be sent to the engine at `now`."""
        return self.is_spared or not self.is_shut(now)

    def is_candidate(self, now: float) -> bool:
        """Return whether new requests may be placed on the instance at `now`: it accepts requests, is not shut, and
        some instance can decode what it prefills.
        """
        return self.may_be_sent(now) and self.entry.accepting and self.entry.role is not Role.DECODE and not self.lacks_decode

    def takes_decodes(self, now: float) -> bool:
        """Return whether requests prefilled on other instances may decode on this one at `now`: it accepts requests, is
        not shut, and is not a prefill instance.
        """
        return self.may_be_sent(now) and self.entry.accepting and self.entry.role is not Role.PREFILL


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenWork:
    """The work that this router has given to an engine.

    `requests` is the number of routed requests without a complete response; `others` the number of requests that
    bypassed the scheduler. `longest_prefill_seconds` is the longest predicted prefill in flight. `prefilled_seconds` is
    the longest predicted prefill that has ended since the previous such record was made for the engine.
    """

    requests: int
    others: int = 0
    longest_prefill_seconds: float = 0.0
    prefilled_seconds: float = 0.0
