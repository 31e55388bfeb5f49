"""The account of one pool's requests: the waiting requests, the requests in flight, and the ways in which requests
ended.

Only the account reports requests to the scheduler. Each request ends exactly once, in one of the ways in
`fairlead_router.metrics.endings`. The scheduler, the counters and the charge of the request's key get the same token
counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from fairlead.priority_classes import PriorityClasses
from fairlead.reports.loads import HeldDemand, InstanceInFlight, PoolUse
from fairlead.reports.moves import CacheTransfer
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal, Scheduler
from fairlead.routing.knowledge.token_sizes import TokenSizes
from fairlead.tables import PoolKey, RoutingTable
from fairlead_router.metrics.endings import Ending
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.settling import Settling, ending_of_failure, ending_of_leaving
from fairlead_router.pools.tickets import Ticket
from fairlead_router.pools.traffic_recording import TrafficRecording
from fairlead_router.pools.waiting_room import WaitingRoom
from fairlead_router.protocols.answers import Usage

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_SERVED: Final = Ending.SERVED

DECLINED = "declined"
"""The kind of failure of an instance that refused a request (4xx), if another instance then gets the request."""

KEEP_REPORTING_SECONDS = 3.0
"""Seconds for which a router keeps reporting requests in flight for which another router now reports. After that, the
other router has surely reported them.
"""

logger = logging.getLogger(__name__)


class PoolAccount:
    """The account of one pool's requests. Other modules may read its attributes, but change them only by its methods.

    Ending a ticket twice is harmless, because the request of an ended ticket is not reported to the scheduler again.
    `recount` is called when a finished request has changed the measured number of bytes per token.
    """

    __slots__ = (
        "_classes", "_counters", "_kept_rows", "_key", "_metrics", "_recount", "_scheduler", "_ticked_at", "_token_sizes", "_told_at",
        "_used_at", "_waiting_room", "asking_routers", "direct", "holds", "is_decided_elsewhere", "settling", "tickets", "traffic", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        key: PoolKey,
        scheduler: Scheduler,
        metrics: RouterMetrics,
        now: float,
        recount: Callable[[float], None],
        *,
        recorded_share: float = 0.0,
    ) -> None:
        self._key = key
        self._scheduler = scheduler
        self._metrics = metrics
        self._counters = metrics.pool(str(key))
        self._recount = recount
        self.tickets: dict[str, Ticket] = {}
        self.traffic = TrafficRecording(recorded_share)
        """Records a share of the pool's requests for simulations."""
        self.settling = Settling(self._counters, self.traffic)
        self.direct: dict[str, int] = {}
        """By instance: the number of direct requests in flight, which bypass the scheduler. Instances without such
        requests are left out.
        """
        self.holds: dict[str, float] = {}
        """By draining instance: the Unix time since which the instance is reported as in use, because other instances
        fetch KV blocks from it; 0 = it is no longer reported.
        """
        self.waiting = 0
        """Number of requests of this router's clients that wait for a decision."""
        self.asking_routers = 0
        """Number of other routers that let this router decide for this pool."""
        self.is_decided_elsewhere = False
        """Whether another router decides for this pool, and reports the pool's requests."""
        self._kept_rows = KeptRows()
        """The requests in flight at the time at which another router began to report them. This router reports them for
        a while too.
        """
        self._waiting_room = WaitingRoom(scheduler.held)
        """The direct requests that wait for an instance of the pool."""
        self._used_at = now
        """The latest time at which the pool may have had a request. It begins with the start of this process, because
        the time before the start does not count as idle.
        """
        self._ticked_at = 0.0
        self._told_at = 0.0
        """The time at which the token counts of all streams were last reported to the scheduler."""

    def take(self, table: RoutingTable, classes: PriorityClasses, sizes: TokenSizes) -> None:
        """Use this table, these priority classes and these token sizes for further requests."""
        self._classes = classes
        self._token_sizes = sizes
        self._waiting_room.take(table)

    # ── use ──

    def held(self) -> HeldDemand:
        """Return the number and the prompt tokens of the requests that wait until the pool has an instance."""
        return self._waiting_room.held()

    def use(self, now: float) -> PoolUse:
        """Return the use of the pool by this router's clients: the waiting requests, and the seconds since the last
        request.
        """
        held = self.held()
        idle_seconds = 0.0 if self._is_used() else max(0.0, now - self._used_at)
        return PoolUse(pool=self._key, held_requests=held.requests, held_prompt_tokens=held.prompt_tokens, idle_seconds=idle_seconds)

    def in_flight(self) -> tuple[InstanceInFlight, ...]:
        """Return the requests in flight on each instance, for the report to the control API: the requests that the
        scheduler has queued for the instance or sent to it, and direct requests. If another router decides for the
        pool, only direct requests are included, and for a while the requests that were in flight before.
        """
        rows = {} if self.is_decided_elsewhere else {row.instance: row for row in self._scheduler.in_flight()}
        self._kept_rows.add_to(rows)
        for instance, count in self.direct.items():
            row = rows.get(instance) or InstanceInFlight(pool=self._key, instance=instance, in_flight=0, waiting=0)
            rows[instance] = replace(row, in_flight=row.in_flight + count)
        for instance in [one for one, since in self.holds.items() if since]:
            row = rows.get(instance) or InstanceInFlight(pool=self._key, instance=instance, in_flight=0, waiting=0)
            rows[instance] = replace(row, in_flight=max(1, row.in_flight))
        return tuple(rows.values())

    def hold(self, draining: Iterable[str], now: float) -> None:
        """Report each of these draining instances as in use until `let_go`, so that the control plane does not delete
        it.
        """
        self.holds = {instance: self.holds.get(instance, now) for instance in draining}

    def let_go(self, instance: str) -> None:
        """Stop reporting the draining instance as in use."""
        self.holds[instance] = 0.0

    async def wait_for_instance(self, body_bytes: int, now: float) -> None:
        """Wait until the pool has an instance for direct requests. Return at once if no instance is expected, or if the
        waiting room is full.
        """
        self._used_at = now
        await self._waiting_room.wait_for_instance(body_bytes)

    def stop_waiting(self) -> None:
        """Let all direct requests that wait for an instance try again."""
        self._waiting_room.open()

    def begin_direct(self, instance: str, now: float) -> None:
        """Count a direct request, which bypasses the scheduler, at its instance until `end_direct`."""
        self.direct[instance] = self.direct.get(instance, 0) + 1
        self._used_at = now

    def end_direct(self, instance: str) -> None:
        """Stop counting a direct request at its instance."""
        left = self.direct[instance] - 1
        if left:
            self.direct[instance] = left
        else:
            del self.direct[instance]

    def join(self) -> None:
        """Record that another router has begun to let this router decide about its requests."""
        self.asking_routers += 1

    def leave(self, now: float) -> None:
        """Record that another router decides about its own requests again. This router keeps reporting that router's
        requests in flight for a while, until that router reports them.
        """
        self.asking_routers -= 1
        self._keep_reporting(now)

    def decide_elsewhere(self, now: float) -> None:
        """Let another router decide for the pool. This router keeps reporting the requests in flight for a while, until
        the other router reports them.
        """
        self._keep_reporting(now)
        self.is_decided_elsewhere = True

    def decide_here(self) -> None:
        """Let this router decide for the pool again."""
        self.is_decided_elsewhere = False

    def _keep_reporting(self, now: float) -> None:
        self._kept_rows.keep(self._scheduler.in_flight(), now)

    def _is_used(self) -> bool:
        return bool(self.tickets or self.direct or self._waiting_room.waiters)

    # ── a request's way through ──

    def submit(self, request: RoutingRequest, now: float, charge: Charge | None = None) -> Ticket:
        """Submit a request to the scheduler, and return its ticket, which may already have a decision. `charge` is
        settled when the request ends.
        """
        ticket = Ticket(request, charge)
        self.tickets[request.id] = ticket
        if not request.warms:
            self.waiting += 1
            self._used_at = now
            self._counters.submitted += 1
            if self._classes.are_declared:
                self._counters.classes[request.priority_class].submitted += 1
        try:
            results = self._scheduler.submit(request, now)
        except BaseException:
            self._end(ticket, Ending.LOST, now)  # the scheduler refused to know it, so nothing may be kept of it here
            raise
        self.deliver(results, now)
        if self._waiting_room.waiters:
            self._waiting_room.make_room()
        return ticket

    def prefilled(self, ticket: Ticket, now: float) -> Refusal | None:
        """Record that the prefill instance has computed the prompt. Return None if the decode instance now generates
        the response. Return the refusal, which ends the ticket, if the request is refused after its prefill.
        """
        if ticket.ended:
            return None
        refusal: Refusal | None = None
        others: list[Dispatch | Refusal] = []
        for result in self._scheduler.prefilled(ticket.request.id, now):
            if isinstance(result, Refusal) and result.request.id == ticket.request.id:
                ticket.verdict = refusal = result
                self._refuse(ticket, result, Ending.REFUSED_AFTER_PREFILL, now)
            else:
                others.append(result)
        self.deliver(others, now)
        return refusal

    def first_token(self, ticket: Ticket, now: float) -> None:
        """Record that the engine has begun to stream the response. Only the first call counts."""
        if ticket.ending is None and not ticket.saw_first_token:
            ticket.saw_first_token = True
            ticket.first_token_at = now
            if not ticket.request.warms:
                self._counters.ttft.observe(now - ticket.request.arrived_at)
                if self._classes.are_declared:
                    self._counters.classes[ticket.request.priority_class].ttft.observe(now - ticket.request.arrived_at)
            if results := self._scheduler.first_token(ticket.request.id, now):
                self.deliver(results, now)

    def retry(self, ticket: Ticket, failed_instance: str, now: float, *, reached: bool, to: str | None = None) -> Dispatch | Refusal:
        """Return the scheduler's next dispatch, because `failed_instance` failed before its response had content. If
        there is no further attempt, return a refusal, which ends the ticket. The scheduler counts the attempts.

        `to`: the instance to which a proxy has already sent the request; None = the scheduler chooses. `reached`:
        whether the failed instance may have received the request.
        """
        assert not ticket.ended
        verdict = self._scheduler.retry(ticket.request.id, now, failed_instance, reached=reached, to=to)
        ticket.verdict = verdict
        if isinstance(verdict, Refusal):
            self._refuse(ticket, verdict, Ending.EXHAUSTED, now)
        else:
            if not ticket.request.warms:
                self._counters.count_decode_only(verdict)
                self._counters.retries += 1
            ticket.dispatched_at = now
            ticket.saw_first_token = False
            ticket.stream = None
        return verdict

    def fetched(self, ticket: Ticket, transfer: CacheTransfer, now: float) -> None:
        """Record the result of an attempt to fetch KV blocks of the request's prompt to its instance."""
        if ticket.ending is None:
            self._scheduler.transferred(ticket.request.id, now, transfer)

    def carry_on(
        self, ticket: Ticket, left: str, now: float, *, carried_tokens: int, why: str, unlike: str | None = None
    ) -> Dispatch | None:
        """Return a dispatch to an instance that continues the response, which broke off at the instance `left` (see
        `Scheduler.carry_on`). If no other instance can continue it, return None; the ticket is then unchanged.
        """
        if ticket.ended:
            return None
        self._tell_generated(ticket, now)
        request = ticket.request.id
        dispatch = self._scheduler.carry_on(request, now, left, carried_tokens=carried_tokens, why=why, unlike=unlike)
        if dispatch is not None:
            self._counters.carried[why] += 1
            self._counters.recomputed_tokens += dispatch.miss_tokens
            self._counters.count_decode_only(dispatch)
            ticket.verdict = dispatch
            ticket.dispatched_at = now
            ticket.carried_at = now if ticket.carried_at is None else ticket.carried_at
            ticket.is_carried = True
        return dispatch

    def can_carry_on(self, ticket: Ticket, left: str, now: float) -> bool:
        """Return whether an instance other than `left` could generate the rest of the response now."""
        return not ticket.ended and self._scheduler.can_carry_on(ticket.request.id, now, left)

    def goes_on(self, ticket: Ticket, now: float) -> None:
        """Record that a broken-off response continues: another instance has sent its first piece."""
        if ticket.ending is None and ticket.carried_at is not None:
            self._counters.carrying.observe(now - ticket.carried_at)
            ticket.carried_at = None
            if ticket.saw_first_token:
                self.deliver(self._scheduler.first_token(ticket.request.id, now), now)
            else:
                self.first_token(ticket, now)

    def second_opinion(self, ticket: Ticket, instance: str, now: float, *, counts: bool, beyond: Collection[str] = ()) -> Dispatch | None:
        """Return a dispatch to another instance, for a request that `instance` refused; None if there is no other
        instance.

        `beyond`: further instances that may get the request, although it was not meant for them. `counts`: whether the
        refusal counts as a failure of `instance` if the other instance serves the request.
        """
        verdict = self._scheduler.second_opinion(ticket.request.id, now, instance, counts=counts, beyond=beyond)
        if verdict is not None:
            self._scheduler.attempt_failed(ticket.request.id, instance, DECLINED, now)
            self._counters.retries += not ticket.request.warms
            ticket.verdict = verdict
            ticket.dispatched_at = now
        return verdict

    def pass_over(self, ticket: Ticket, instance: str, now: float) -> Dispatch | None:
        """Return a dispatch to another instance, because the chosen `instance` must not get the request after all. None
        if there is no other instance.
        """
        verdict = self._scheduler.second_opinion(ticket.request.id, now, instance, counts=False, reached=False)
        if verdict is not None:
            if not ticket.request.warms:
                self._counters.count_decode_only(verdict)
            ticket.verdict = verdict
            ticket.dispatched_at = now
        return verdict

    def _tell_generated(self, ticket: Ticket, now: float) -> None:
        if ticket.stream is not None:
            tokens = ticket.stream.generated_tokens
            self._scheduler.generated(ticket.request.id, now, tokens)
            if ticket.charge is not None:
                ticket.charge.generated(min(tokens, ticket.charge.most_tokens), now)

    def complete(self, ticket: Ticket, now: float, usage: Usage) -> None:
        """Record that the engine's response is complete. Impossible token counts in `usage` are treated as missing."""
        if ticket.ending is not None:
            return
        usage = self.settling.plausible(usage)
        if usage.cached_tokens is not None and isinstance(ticket.verdict, Dispatch):
            self._counters.compare(ticket.verdict, usage.cached_tokens)
        self._end(ticket, _SERVED, now, usage)
        if results := self._scheduler.complete(ticket.request.id, now, usage.output_tokens, usage.cached_tokens):
            self.deliver(results, now)
        request = ticket.request
        if usage.prompt_tokens and self._token_sizes.observe(
            request.prompt_bytes, usage.prompt_tokens, now, request.prompt_kind, text=request.is_plain_text
        ):
            size = round(self._token_sizes.bytes_per_token, 3)
            logger.info("bytes per token learned", extra={"pool": str(self._key), "bytes_per_token": size})
            self._recount(now)

    def fail(self, ticket: Ticket, now: float, *, out_of_time: bool = False) -> None:
        """Record that the request failed after the first byte of its response, or was given up. `out_of_time`: whether
        it exceeded its total time.
        """
        self._break_off(ticket, ending_of_failure(ticket, out_of_time=out_of_time), now, self._scheduler.fail)

    def cancel(self, ticket: Ticket, now: float) -> None:
        """Record that the client closed the connection."""
        self._break_off(ticket, ending_of_leaving(ticket), now, self._scheduler.cancel)

    def _break_off(self, ticket: Ticket, ending: Ending, now: float, tell: Callable[[str, float], Sequence[Dispatch | Refusal]]) -> None:
        if ticket.ended:
            return
        if ending is _SERVED and ticket.stream is not None:
            self.complete(ticket, now, self.settling.left(ticket, ticket.stream))
            return
        self._tell_generated(ticket, now)
        self._end(ticket, ending, now, self.settling.part(ticket))
        self.deliver(tell(ticket.request.id, now), now)

    def decline(self, ticket: Ticket, now: float) -> None:
        """Record that the engine refused the request because the request is invalid."""
        if not ticket.ended:
            self._end(ticket, Ending.DECLINED, now)
            self.deliver(self._scheduler.decline(ticket.request.id, now), now)

    def give_up(self, ticket: Ticket, now: float) -> None:
        """Refuse the request if it still waits for a decision, because it has reached its maximum waiting time."""
        if not ticket.ended:
            self.deliver(self._scheduler.give_up(ticket.request.id, now), now)

    def _refuse(self, ticket: Ticket, refusal: Refusal, ending: Ending, now: float) -> None:
        if not ticket.ended:
            self._end(ticket, ending, now)
            if ticket.request.warms:
                return
            self._counters.refused[refusal.reason.value] += 1
            if self._classes.are_declared:
                self._counters.classes[ticket.request.priority_class].refused += 1

    def _end(self, ticket: Ticket, ending: Ending, now: float, usage: Usage | None = None) -> None:
        """Settle the account of a ticket and drop the ticket. The ticket must not have ended before."""
        self.settling.end(ticket, ending, now, usage)
        if self.tickets.pop(ticket.request.id, None) is not None and ticket.verdict is None:
            self.waiting -= not ticket.request.warms

    def deliver(self, results: Sequence[Dispatch | Refusal], now: float) -> None:
        """Pass each decision to its request's ticket. An event about one request may cause decisions about others."""
        for result in results:
            ticket = self.tickets.get(result.request.id)
            if ticket is None or ticket.verdict is not None:
                self._metrics.accounting_errors += 1
                logger.error(
                    "decision for a request that does not wait for one", extra={"pool": str(self._key), "request": result.request.id}
                )
                if ticket is None and isinstance(result, Dispatch):
                    self.deliver(self._scheduler.cancel(result.request.id, now), now)
                continue
            self.waiting -= not ticket.request.warms
            ticket.decide(result)
            if isinstance(result, Refusal):
                self._refuse(ticket, result, Ending.REFUSED, now)
            else:
                ticket.dispatched_at = now
                ticket.queued_seconds = now - ticket.request.arrived_at
                if not ticket.request.warms:
                    self._counters.count_decode_only(result)
                    self._counters.prompt_tokens += ticket.request.prompt_tokens
                    self._counters.hit_tokens += result.hit_tokens
                    self._counters.queued.observe(ticket.queued_seconds)
            if ticket.when_decided is not None:
                ticket.when_decided()

    def tick(self, now: float) -> None:
        """Let the scheduler dispatch queued requests, refuse requests that have waited too long, rebalance, and end
        prefills whose first token the router cannot see. Called many times a second.

        Once a second, also report the streams' token counts to the scheduler.
        """
        if self.tickets and now - self._told_at >= 1.0:
            self._told_at = now
            for ticket in self.tickets.values():
                self._tell_generated(ticket, now)
        if self._is_used():
            self._used_at = now
        if now >= self._kept_rows.until:
            self._kept_rows = KeptRows()
        if self.tickets or self.asking_routers or now - self._ticked_at >= 1.0:
            self._ticked_at = now
            self.deliver(self._scheduler.tick(now), now)
            if self._waiting_room.waiters:
                self._waiting_room.make_room()

    def shut_down(self, now: float) -> None:
        """Refuse all queued requests. Dispatched requests continue."""
        self._waiting_room.open()
        self.deliver(self._scheduler.shut_down(now), now)


class KeptRows:
    """A copy of the numbers of requests in flight on the instances of one pool, valid until the time `until`.

    Without the copy a draining instance would seem idle when the decider changes, while no router reports its requests.
    """

    __slots__ = ("_rows", "until")

    def __init__(self) -> None:
        self._rows: dict[str, InstanceInFlight] = {}
        self.until = inf

    def keep(self, rows: Iterable[InstanceInFlight], now: float) -> None:
        """Copy the numbers of requests that were sent to instances. Waiting requests are left out, because the router
        that decides from now on queues them again.
        """
        for row in rows:
            sent = row.in_flight - row.waiting
            if sent > (self._rows[row.instance].in_flight if row.instance in self._rows else 0):
                self._rows[row.instance] = replace(row, in_flight=sent, waiting=0)
        self.until = now + KEEP_REPORTING_SECONDS

    def add_to(self, rows: dict[str, InstanceInFlight]) -> None:
        """Raise each number in `rows` to at least the copied number."""
        for row in self._rows.values():
            known = rows.get(row.instance, row)
            rows[row.instance] = replace(known, in_flight=max(row.in_flight, known.in_flight))
