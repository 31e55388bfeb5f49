"""Delivers the notices of webhooks: claims the due notices, posts each, and records the outcome.

A claim hides a notice from other processes for `LEASE`. If the process ends before it records the outcome, the notice
is due again after that time, with the same id: delivery is at least once. A receiver that fails gets later attempts,
each after a longer pause, up to `MOST_ATTEMPTS`.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from fairlead_api.webhooks.messages import Message, body, headers
from fairlead_api.webhooks.receivers import Receiver, receiver_of
from fairlead_client.resources.webhooks import NoticeAttempt

MOST_ATTEMPTS = 12
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 4 * 3600.0
PAUSE_FACTOR = 4.0
TIMEOUT_SECONDS = 10.0
"""Maximum duration in seconds of one attempt to deliver a notice."""
LEASE = timedelta(seconds=60)
AT_ONCE = 64
OF_ONE_WEBHOOK = 8
"""Maximum numbers of notices that are claimed together: AT_ONCE in total, and OF_ONE_WEBHOOK for one webhook. Because
of the second limit, a failing webhook does not delay all others.
"""
UNKNOWN_END = "no outcome is recorded: the attempt is in progress, or its process ended; the receiver may have the notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A notice that this process has claimed, to deliver now. `number` is the number of its attempts, including this
    one.
    """

    message: Message
    url: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an attempt to deliver a notice. `due_at` is the time of the next attempt, None if there will be
    none.
    """

    notice: str
    number: int
    attempt: NoticeAttempt
    due_at: datetime | None


class DeliveryStore(Protocol):
    """The port to the database for delivering notices."""

    async def claim(self, now: datetime) -> Sequence[Claimed]:
        """Claim due notices, so that no other process delivers them for a while. For each webhook, the notices that
        have been due longest come first. Records the beginning of an attempt for each claimed notice.
        """

    async def record(self, outcome: Outcome, now: datetime) -> None:
        """Record the outcome of the attempt, unless another attempt to deliver the notice has begun meanwhile."""


class Post(Protocol):
    """Posts a body to a receiver."""

    async def __call__(self, receiver: Receiver, content: bytes, sent: dict[str, str]) -> tuple[int | None, str | None]:
        """Post the body, and return the status of the receiver's response (None without a response) and why the attempt
        failed (None if it did not fail). Never raises.
        """


def pause_seconds(number: int, notice: str) -> float:
    """Return the seconds from a failed attempt to the next. They increase fourfold with each attempt, up to four hours.
    Up to a fifth is added, depending on the notice's id, so that notices that failed together are not repeated
    together. Pure.
    """
    pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * PAUSE_FACTOR ** (number - 1))
    return pause * (1 + zlib.crc32(f"{notice} {number}".encode()) % 1000 / 5000)


def outcome_of(claimed: Claimed, attempt: NoticeAttempt, now: datetime) -> Outcome:
    """Return the outcome of an attempt to deliver a claimed notice, with the time of the next attempt. Pure."""
    again = attempt.problem is not None and claimed.number < MOST_ATTEMPTS
    notice = claimed.message.id
    due_at = now + timedelta(seconds=pause_seconds(claimed.number, notice)) if again else None
    return Outcome(notice=notice, number=claimed.number, attempt=attempt, due_at=due_at)


class Deliveries:
    """Delivers due notices. `monotonic` returns seconds; it measures how long attempts take."""

    def __init__(self, store: DeliveryStore, post: Post, clock: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._store = store
        self._post = post
        self._clock = clock
        self._monotonic = monotonic

    async def deliver(self, now: datetime) -> None:
        """Attempt to deliver each due notice once. A receiver that does not respond delays the next round by at most
        `TIMEOUT_SECONDS`.
        """
        claimed = await self._store.claim(now)
        ended = await asyncio.gather(*(self._attempt(one, now) for one in claimed), return_exceptions=True)
        for problem in ended:  # of the database; each of the others has ended first
            if problem is not None:
                raise problem

    async def _attempt(self, claimed: Claimed, now: datetime) -> None:
        content, began = body(claimed.message), self._monotonic()
        status, problem = await self._post(receiver_of(claimed.url), content, headers(claimed.message, content, now))
        attempt = NoticeAttempt(at=now, seconds=round(self._monotonic() - began, 3), status=status, problem=problem)
        after = self._clock()
        await self._store.record(outcome_of(claimed, attempt, after), after)
