"""Sends batches from the disk to the control API until it acknowledges them, and sends the router's state at least once
a second.

The API corrects the times in a record by the offset of the clock that dated the record. A batch of an earlier process
is sent with that process's estimate of the API's clock. It is sent only after this process has its own estimate.

A batch on disk has no state (acknowledged tables, in-flight counts). The current state is added when a batch is sent,
because old counts, sent again after an outage, would mislead an operator that waits until an instance is idle. A post
has as many consecutive batches as the API accepts. Each batch keeps its id, so the API stores each batch once, even if
batches are sent again or divided differently among posts.

History is sent in one lane and samples in two, at the same time, so that a failing batch slows only its own lane. The
batches of history stay in order.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Protocol

from fairlead.reports.batches import Acknowledgement, AskAddress, Cargo, ReportBatch, ReportReceipt, RouterGone, RouterState
from fairlead.reports.engines import LearntFigure
from fairlead.tables import PoolKey
from fairlead_client.internal import REPORT_SECONDS, SystemApi
from fairlead_client.outcomes import Cause, Later, Outcome, Refused, Taken
from fairlead_client.report_posts import encode_batch
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.pools import Pools
from fairlead_router.reporting.learnt_figures import known_caches, learnt_figures
from fairlead_router.reporting.spool import Spool, SpooledBatch
from fairlead_router.reporting.spool_metrics import SpoolMetrics

LANES = (Cargo.HISTORY, Cargo.SAMPLES, Cargo.SAMPLES)
POST_BATCHES = 1_000
"""Maximum number of consecutive batches in one post."""
ATTEMPTS_AT_A_FAULT = 5
"""Number of times that the API responds to a batch with an error of its own (500) before the batch is moved aside. Only
a batch among others that the API accepts is moved aside.
"""
PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
"""Errors of reading a file for which the file is not at fault, because the process has no descriptor or memory left."""
SHORTEST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class Lane:
    """The state of one lane, which sends history or samples. `most_batches`: the maximum number of batches in the next
    post. `faults`: the number of times that the current single batch has failed.
    """

    cargo: Cargo
    most_batches: int = POST_BATCHES
    faults: int = 0
    _pause: float = SHORTEST_PAUSE_SECONDS

    def pause(self) -> float:
        """Return the seconds to wait after a failure. They double with each call, up to LONGEST_PAUSE_SECONDS."""
        now, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        return now

    def went_well(self) -> None:
        """Record that a post was accepted. The next post may have twice as many batches, up to POST_BATCHES, and the
        next pause is short.
        """
        self.most_batches = min(POST_BATCHES, self.most_batches * 2)
        self.faults, self._pause = 0, SHORTEST_PAUSE_SECONDS

    def halve(self, batches: int) -> None:
        """Halve the number of batches per post, because a post of `batches` batches has failed. If one batch is
        invalid, repeated halving finds it and delivers the other batches.
        """
        self.most_batches = max(1, batches // 2)
        self.faults = 0

    def failed_alone(self) -> bool:
        """Count a failure of a post with a single batch.

        Return whether the batch has failed often enough to be moved aside. The caller also checks that the API accepts
        other batches.
        """
        self.faults += 1
        return self.faults >= ATTEMPTS_AT_A_FAULT


POST_RECORDS = 2_000
POST_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes of the batches in one post. POST_RECORDS and `POST_BATCHES` limit a post too."""
STATE_SECONDS = 1.0
"""Maximum number of seconds between two posts with the state. A post has no batches if there are none. The state shows
the API that this router is live.
"""
STATE_POST_SECONDS = 4.0
"""Timeout in seconds for a post that has only the state. It is short so that, if an API process hangs, the router can
report to another API process in time. A router that is silent for 10 s counts as gone, and draining instances are then
deleted in spite of its requests.
"""
LOOK_SECONDS = 0.2
"""Seconds between two checks for news that must be reported at once: a new table, or pools in which requests begin or
stop waiting for an instance.
"""
LEARNED_SECONDS = 0.9
"""Minimum number of seconds between two computations of the measured figures. A computation examines hundreds of
observations, and under load there is a post after each collection of records.
"""

logger = logging.getLogger(__name__)


class AskableRouters(Protocol):
    """The directory of routers that can decide for this router. `own`: the address at which other routers connect to
    this router; None if they cannot.
    """

    @property
    def own(self) -> AskAddress | None: ...

    def hear(self, told: Mapping[str, AskAddress]) -> None:
        """Keep the list of live routers from a receipt of the API."""


class Delivery:
    """Sends the batches of the spool. `send_forever` runs as long as the router; `finish` is called at the end."""

    def __init__(
        self,
        router: str,
        pools: Pools,
        keys: GatewayKeys,
        spool: Spool,
        api: SystemApi,
        metrics: RouterMetrics,
        spool_metrics: SpoolMetrics,
        now: Callable[[], float],
        new_id: Callable[[], str],
        others: AskableRouters | None = None,
    ) -> None:
        self._others = others
        self._router = router
        self._pools = pools
        self._keys = keys
        self._spool = spool
        self._api = api
        self._metrics = metrics
        self._spool_metrics = spool_metrics
        self._now = now
        self._new_id = new_id
        self._news = asyncio.Event()
        self._state_sent_at = 0.0
        self._acknowledged: tuple[Acknowledgement, ...] = ()
        """The acknowledgements of tables that the API last received."""
        self._told_holding: frozenset[PoolKey] = frozenset()
        self._learned: tuple[tuple[Acknowledgement, ...], float, tuple[LearntFigure, ...]] = (), -inf, ()
        """From the last computation of the measured figures: the tables that were acknowledged then, the time, and the
        figures.
        """
        self._heard = asyncio.Event()
        """An event that is set when the API has responded, so that the offset of its clock is known."""
        self._random = random.Random()  # only for jitter between retries

    def wake(self) -> None:
        """Wake the lanes, because there are new batches on disk."""
        self._news.set()
        self._news = asyncio.Event()

    async def send_forever(self) -> None:
        """Send history, samples and the state until cancelled."""
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._send_state_forever())
            for cargo in LANES:
                lanes.create_task(self._empty_forever(cargo))

    async def finish(self, seconds: float) -> None:
        """Send as many batches as possible within `seconds`, and report that this router stops. The other batches stay
        on disk.
        """
        try:
            async with asyncio.timeout(seconds):
                for cargo in Cargo:
                    lane = Lane(cargo=cargo)
                    while await self.send(lane):
                        pass
                outcome = await self._api.post_router_gone(RouterGone(router=self._router, at=self._now()))
        except TimeoutError:
            outcome = Later(cause=Cause.TIMED_OUT, problem=f"no time left after {seconds:g} s")
        if not isinstance(outcome, Taken):
            extra = {"error": outcome.problem, "batches_kept": len(self._spool)}
            logger.warning("could not report this router's end to the control API; unsent batches are kept", extra=extra)

    async def _empty_forever(self, cargo: Cargo) -> None:
        """Send the batches of one lane until cancelled. While the API does not accept them, wait between posts, longer
        each time and with jitter.
        """
        lane = Lane(cargo=cargo)
        await self._heard.wait()
        while True:
            news = self._news
            goes_on = await self.send(lane)
            if goes_on is None:
                await news.wait()
            elif not goes_on:
                await asyncio.sleep(lane.pause() * self._random.uniform(0.5, 1.5))

    async def send(self, lane: Lane) -> bool | None:
        """Send the oldest batches of a lane.

        Return True if the lane may send the next batches at once. Return False if the API did not accept these batches,
        which then stay on disk. Return None if there are no batches.
        """
        batches = self._spool.lend(lane.cargo, lane.most_batches, POST_RECORDS, POST_BYTES)
        if not batches:
            return None
        try:
            contents = await asyncio.to_thread(self._read, batches)
            outcome = await self._post(contents, batches) if isinstance(contents, list) else contents
            return await self._settle(lane, batches, outcome)
        finally:
            self._spool.give_back(batches)
            self._spool_metrics.refresh()

    async def _settle(self, lane: Lane, batches: list[SpooledBatch], outcome: Outcome[tuple[ReportReceipt, ...]]) -> bool:
        """Delete the batches of a post, or keep them, or move a batch aside, depending on the outcome. Return whether
        the lane may send the next batches at once.
        """
        match outcome:
            case Taken():
                lane.went_well()
                await asyncio.to_thread(self._spool.discard, batches)
                return True
            case Refused():
                if len(batches) > 1:
                    lane.halve(len(batches))
                    return True
                return await self._set_aside(lane, batches[0], "refused")
            case Later(cause=Cause.FAULT):
                if len(batches) > 1:
                    lane.halve(len(batches))
                    return True
                return lane.failed_alone() and await self._takes_others() and await self._set_aside(lane, batches[0], "fault")
            case Later(cause=Cause.TIMED_OUT) if len(batches) > 1:
                lane.halve(len(batches))
        return False

    async def _takes_others(self) -> bool:
        """Return whether the API accepts a post without the failing batch."""
        return isinstance(await self._send_state(), Taken)

    async def _set_aside(self, lane: Lane, batch: SpooledBatch, why: str) -> bool:
        lane.went_well()
        await asyncio.to_thread(self._move_aside, batch, why)
        return True

    def _move_aside(self, batch: SpooledBatch, why: str) -> None:
        try:
            place = self._spool.set_aside(batch)
        except OSError as error:
            logger.warning("report given up", extra={"file": batch.path.name, "records": batch.records, "error": str(error)})
            self._spool.drop(batch)
        else:
            logger.error("report set aside", extra={"file": str(place), "records": batch.records, "error": why})

    def _read(self, batches: list[SpooledBatch]) -> list[bytes] | Refused | Later:
        """Return the bytes of the batches. If they cannot be read, return `Later` if the process lacks a resource,
        otherwise `Refused`.
        """
        try:
            return [batch.read() for batch in batches]
        except OSError as error:
            logger.warning("spooled batch unreadable", extra={"file": batches[0].path.name, "error": str(error)})
            return Later(cause=Cause.UNAVAILABLE, problem=str(error)) if error.errno in PASSING else Refused(problem=str(error))

    # ── posts ──

    async def _send_state_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            due = self._now() - self._state_sent_at >= STATE_SECONDS
            news = self._acknowledged != self._pools.acknowledgements() or self._told_holding != self._holding()
            if (due or news) and not isinstance(await self._send_state(), Taken):
                await asyncio.sleep(STATE_SECONDS * self._random.uniform(0.5, 1.5))

    async def _send_state(self) -> Outcome[tuple[ReportReceipt, ...]]:
        return await self._post([self._empty()], seconds=STATE_POST_SECONDS)

    def _empty(self) -> bytes:
        return encode_batch(ReportBatch(id=self._new_id(), router=self._router))

    def _state(self) -> RouterState:
        now = self._now()
        use = tuple(pool.account.use(now) for pool in self._pools.all())
        troubled = tuple(row for pool in self._pools.all() for row in pool.engines.troubled())
        readings = self._metrics.event_readings()
        known = (
            known_caches(pool.key, [entry.id for entry in pool.table.instances], readings, pool.counters.beliefs)
            for pool in self._pools.all()
        )
        return RouterState(
            sent_at=now,
            acknowledged=self._pools.acknowledgements(),
            in_flight=self._pools.in_flight(),
            use=use,
            troubled_engines=troubled,
            known_caches=tuple(chain.from_iterable(known)),
            learnt_figures=self._learnt_figures(now),
            asked_at=None if self._others is None else self._others.own,
            shares=self._pools.shares(),
        )

    def _learnt_figures(self, now: float) -> tuple[LearntFigure, ...]:
        """Return the measured figures, which are at most `LEARNED_SECONDS` old. They are based on hundreds of requests,
        so they change slowly.
        """
        tables, (known, computed_at, figures) = self._pools.acknowledgements(), self._learned
        if tables != known or not 0 <= now - computed_at < LEARNED_SECONDS:
            figures = tuple(figure for pool in self._pools.all() for figure in learnt_figures(pool, now))
            self._learned = tables, now, figures
        return figures

    def _holding(self) -> frozenset[PoolKey]:
        """Return the pools in which requests wait for an instance. The control API is informed at once when this
        changes.
        """
        return frozenset(pool.key for pool in self._pools.all() if pool.account.held().requests)

    async def _post(
        self, contents: list[bytes], batches: Sequence[SpooledBatch] = (), seconds: float = REPORT_SECONDS
    ) -> Outcome[tuple[ReportReceipt, ...]]:
        """Send one post, count and log it, and use its receipts: bindings, lost binding changes, and live routers."""
        state = self._state()
        behind = [self._behind(batch) for batch in batches]
        if behind and batches[0].api_ahead is not None:  # the state goes first, and is dated by this process
            contents, behind = [self._empty(), *contents], [0.0, *behind]
        outcome = await self._api.post_reports(contents, state, seconds=seconds, behind=behind)
        if isinstance(outcome, Later) and outcome.cause is Cause.UNREADABLE:
            logger.warning("receipts unreadable", extra={"error": outcome.problem})
            outcome = Taken(())
        if not isinstance(outcome, Taken):
            self._metrics.reports_failed += 1
            is_away = isinstance(outcome, Later) and outcome.cause in {Cause.UNREACHABLE, Cause.TIMED_OUT}
            extra = {"error": outcome.problem, "batches": len(contents)}
            logger.log(
                logging.INFO if is_away else logging.WARNING,
                "control API did not accept reports; they are kept and sent again",
                extra=extra,
            )
            return outcome
        self._metrics.reports_sent += len(contents)
        self._hear_clock(outcome.answer, state.sent_at)
        self._state_sent_at = self._now()
        self._acknowledged = state.acknowledged
        self._told_holding = frozenset(use.pool for use in state.use if use.held_requests)
        for receipt in outcome.answer:
            self._pools.apply_bindings(receipt.conflicts, receipt.lost)
            if receipt.live_routers is not None:
                self._pools.know_routers(receipt.live_routers)
                self._keys.know_routers(receipt.live_routers, self._now())
            if receipt.routers is not None and self._others is not None:
                self._others.hear(receipt.routers)
        return outcome

    def _behind(self, batch: SpooledBatch) -> float:
        """Return the seconds by which the clock that dated the batch is behind this process's clock; negative if it is
        ahead.
        """
        return 0.0 if batch.api_ahead is None else batch.api_ahead - self._pools.api_clock.ahead_seconds

    def _hear_clock(self, receipts: Sequence[ReportReceipt], asked_at: float) -> None:
        clock = self._pools.api_clock
        if clock.hear(receipts[0].at if receipts else None, asked_at, self._now()):
            ahead = clock.ahead_seconds
            if ahead:
                logger.warning(
                    "this router's clock differs from the control API's clock; times are converted to that clock",
                    extra={"ahead_seconds": round(ahead, 1)},
                )
            self._keys.know_clock(ahead)
            self._spool.hear_clock(ahead)
        self._heard.set()
