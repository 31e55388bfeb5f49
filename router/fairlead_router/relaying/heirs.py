"""Hands the sessions of leaving instances over to heirs. The heir of a session is the instance that computes the
session's last prompt in advance, before the session's next turn.

When an instance drains, is cordoned or is lost, this router sends the last prompt of each of its sessions again, with
at most one output token, through the pool's scheduler. The policy chooses the heir as it chooses the instance of any
request, so the binding and the ring agree, and the session's move is recorded like any other move. `kept_prompts` gives
the order of the sessions. The rate is at most `spec.routing.handOverBudget`, and no prompt is sent while a client's
request waits.

If engines can copy KV blocks, the heir fetches the blocks that a draining instance still holds. A fetch needs almost no
computation, so neither the budget nor waiting requests limit it. The draining instance is kept for these fetches for at
most HOLD_SECONDS. If a fetch fails, the prompt is computed within the budget.

`PrefixCopies` uses the same kept prompts to copy prefixes that many sessions share, before any request needs the copy.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from fairlead.hand_overs import FETCHES_AT_ONCE, HOLD_SECONDS
from fairlead.instances import InstanceState, Role
from fairlead.reports.moves import CacheFate
from fairlead.routing.contracts.copies import PrefixCopy
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of
from fairlead_router.metrics.endings import Ending
from fairlead_router.pools.kept_prompts import KeptPrompt, KeptPrompts
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import Usage, decoded
from fairlead_router.protocols.answers_so_far import encoded
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.relaying.cache_moves import CacheMoves, prompt_to_move
from fairlead_router.relaying.calls import Call, Calls, Client
from fairlead_router.relaying.proxying import Proxy

LOOK_SECONDS = 0.25
COPIES_LOOK_SECONDS = 1.0
BLINK_SECONDS = 5.0
"""If an instance stops accepting requests without draining, it counts as leaving only after this many seconds. Until
then it may accept requests again.
"""
SAVED_SECONDS = 2.0
"""Unused tokens of the hand-over budget are saved for later, at most the tokens of this many seconds."""
_LENGTH = re.compile(rb"^content-length: \d+\r\n", re.MULTILINE)
_ID = re.compile(rb"^x-request-id: [^\r\n]*\r\n", re.MULTILINE)
_NEEDLESS = (
    "stream_options", "n", "best_of", "max_completion_tokens", "min_tokens", "logprobs", "top_logprobs", "prompt_logprobs", "echo",
    "return_token_ids", "background",
)  # fmt: skip
"""Request fields that affect only the answer, and would make it longer or more expensive. They are removed."""

logger = logging.getLogger(__name__)


class _Nobody(Client):
    """A client that discards the answer of a request that the router itself makes."""

    def begin(self, status: int, headers: bytes, length: int | None) -> None: ...

    def write(self, piece: bytes) -> bool:
        return True

    def end(self, piece: bytes) -> None: ...

    def accompany(self, headers: list[tuple[bytes, bytes]]) -> None: ...

    def abort(self) -> None: ...

    def on_writable(self, resume: Callable[[], None]) -> None: ...

    def keeps(self, size: int) -> bool:
        return True


class _Account:
    """The tokens that one pool may still spend on hand-overs (`balance`), and its hand-overs in progress."""

    def __init__(self, now: float) -> None:
        self.balance = 0.0
        self.at = now
        self.since: dict[str, float] = {}
        """By target: the time since which this router has seen the target accept no requests."""
        self.revisions: dict[str, str] = {}
        """By instance: its revision. Includes instances that have left the table, as long as kept prompts name them."""
        self.computing: dict[str, asyncio.Task[None]] = {}
        """By session: the hand-overs in progress in which the heir computes the prompt. `fetching` has the hand-overs
        in which the heir fetches the blocks.
        """
        self.fetching: dict[str, asyncio.Task[None]] = {}
        self.sources: set[str] = set()
        """The leaving targets from which an heir can fetch blocks."""

    def revision_of(self, target: str) -> str:
        """Return the revision of the target's instance; "" if it is unknown."""
        return self.revisions.get(instance_of(target), "")

    def end(self) -> None:
        """Remove the hand-overs that have ended. Raises the exception of a hand-over that failed because of a bug."""
        for under_way in (self.computing, self.fetching):
            for key in [key for key, task in under_way.items() if task.done()]:
                under_way.pop(key).result()

    def save(self, budget: float, now: float) -> None:
        """Add `budget` tokens for each second since the last call to the tokens that may be spent."""
        self.balance = min(SAVED_SECONDS * budget, self.balance + budget * (now - self.at))
        self.at = now


class Heirs:
    """Hands the sessions of leaving instances over to heirs. `now` is the router's clock in Unix seconds."""

    def __init__(
        self,
        pools: Pools,
        calls: Calls,
        proxy: Proxy,
        moves: CacheMoves,
        prompts: KeptPrompts,
        is_ending: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._pools = pools
        self._calls = calls
        self._proxy = proxy
        self._moves = moves
        self._prompts = prompts
        self._is_ending = is_ending
        self._now = now
        self._accounts: dict[Pool, _Account] = {}

    async def look(self) -> None:
        """Begin the hand-overs of sessions that the budget allows, in the order of their worth. Runs every
        LOOK_SECONDS.
        """
        now, pools = self._now(), self._pools.all()
        if self._is_ending():
            for pool in pools:
                pool.account.hold((), now)  # nobody would let go
            return
        self._prompts.expire(now)
        self._prompts.keep_only([pool.key for pool in pools])
        for pool in tuple(self._accounts):
            if pool not in pools:
                del self._accounts[pool]
        for pool in pools:
            if pool.table.routing.hand_over_budget <= 0:
                self._prompts.forget(pool.key)
            else:
                self._look(pool, self._accounts.setdefault(pool, _Account(now)), now)

    def _look(self, pool: Pool, account: _Account, now: float) -> None:
        account.end()
        leaving = self._leaving(pool, account, now)
        account.sources = {one for one in leaving if _hands_on(pool, account.revision_of(one), one)}
        computing = sum(entry.accepting and entry.role is not Role.DECODE for entry in pool.table.instances)
        if leaving and computing:
            speed = computing * (pool.scheduler.prefill_figure(now).value or 0.0) / self._pools.routers
            account.save(pool.table.routing.hand_over_budget * speed, now)
            self._begin(pool, account, leaving, max(1, computing // self._pools.routers), now)
        self._let_go(pool, account, now)

    def _begin(self, pool: Pool, account: _Account, leaving: set[str], at_once: int, now: float) -> None:
        """Begin as many hand-overs as possible. In some the heir fetches the blocks; in the others it computes the
        prompt.
        """
        if self._may_fetch(pool, account):
            for prompt in self._ranked(pool, account, leaving, now, fetched=True):
                if self._may_fetch(pool, account):
                    account.fetching[prompt.key] = self._task(self._fetch(pool, account, prompt), prompt)
        if self._may_compute(pool, account, at_once):
            for prompt in self._ranked(pool, account, leaving, now, fetched=False):
                if self._may_compute(pool, account, at_once):
                    account.balance -= prompt.request.prompt_tokens
                    account.computing[prompt.key] = self._task(self._compute(pool, account, prompt), prompt)

    def _ranked(self, pool: Pool, account: _Account, leaving: set[str], now: float, *, fetched: bool) -> list[KeptPrompt]:
        """Return the prompts to hand over next, in the order of their worth. `fetched`: return the prompts whose blocks
        heirs can fetch; otherwise return the prompts that heirs must compute.
        """

        def is_next(prompt: KeptPrompt) -> bool:
            under_way = prompt.key in account.computing or prompt.key in account.fetching
            return not under_way and _fetches(account, prompt) is fetched

        return [prompt for _, prompt in self._prompts.worths(pool.key, leaving, now, is_next, fetched=fetched)]

    def _may_fetch(self, pool: Pool, account: _Account) -> bool:
        return pool.moves_caches and len(account.fetching) < FETCHES_AT_ONCE

    def _may_compute(self, pool: Pool, account: _Account, at_once: int) -> bool:
        return account.balance > 0 and not pool.account.waiting and len(account.computing) < at_once

    def _task(self, hand_over: Coroutine[Any, Any, None], prompt: KeptPrompt) -> asyncio.Task[None]:
        return asyncio.create_task(hand_over, name=f"hand over {prompt.request.id}")

    def _let_go(self, pool: Pool, account: _Account, now: float) -> None:
        """Release draining instances from which no heir will fetch, or that have been kept for HOLD_SECONDS."""
        for instance, since in tuple(pool.account.holds.items()):
            if since and (now - since >= HOLD_SECONDS or not (account.fetching or self._has_heirs_to_come(pool, account, instance))):
                pool.account.let_go(instance)

    def _has_heirs_to_come(self, pool: Pool, account: _Account, instance: str) -> bool:
        return any(_fetches(account, one) for one in self._prompts.of(pool.key) if one.instance == instance and not one.given_up)

    def _leaving(self, pool: Pool, account: _Account, now: float) -> set[str]:
        """Return the targets that have sessions, accept no requests, and will probably not accept them again."""
        draining = {entry.id for entry in pool.table.instances if entry.state is InstanceState.DRAINING}
        known = {prompt.instance for prompt in self._prompts.of(pool.key)}
        sought = set(map(instance_of, known))
        before = {name: revision for name, revision in account.revisions.items() if name in sought}
        account.revisions = {**before, **{entry.id: entry.revision for entry in pool.table.instances}}
        away = {one for one in known if instance_of(one) not in pool.accepting}
        account.since = {one: account.since.get(one, now) for one in away}
        return {one for one in away if instance_of(one) in draining or now - account.since[one] >= BLINK_SECONDS}

    async def _compute(self, pool: Pool, account: _Account, prompt: KeptPrompt) -> None:
        """Let the session's heir compute the prompt. All tokens of the prompt were already taken from the budget; the
        budget gets back the tokens that the heir had cached.
        """
        prompt.given_up = True  # however that ends, but for an instance that computes it
        left, call, request = prompt.instance, *self._again(pool, account, prompt)
        await self._proxy.relay(call, request, pool, _Nobody())
        ticket = call.ticket
        if ticket is None or not isinstance(ticket.verdict, Dispatch) or ticket.ending is not Ending.SERVED:
            pool.counters.handed_over["failed"] += 1
            return
        account.balance += prompt.request.prompt_tokens - _computed(ticket)
        _warmed(pool, prompt, left, ticket.verdict.instance, _computed(ticket))

    async def _fetch(self, pool: Pool, account: _Account, prompt: KeptPrompt) -> None:
        """Let the session's heir fetch the prompt's blocks. If this fails, the prompt is not computed here; `_compute`
        does this later, within the budget.
        """
        prompt.given_up = True
        left, call, request = prompt.instance, *self._again(pool, account, prompt)
        ticket = pool.account.submit(request, self._now())
        try:
            came = await self._fetched(call, pool, ticket)
        finally:
            pool.account.fail(ticket, self._now())
        if not isinstance(ticket.verdict, Dispatch):
            pool.counters.handed_over["failed"] += 1
        elif came:
            _warmed(pool, prompt, left, ticket.verdict.instance, ticket.verdict.miss_tokens)
        else:
            prompt.given_up = prompt.is_fetchable = False

    async def _fetched(self, call: Call, pool: Pool, ticket: Ticket) -> bool:
        """Let the heir that the scheduler chooses fetch the blocks, and complete the ticket. Return whether the heir
        has the blocks.
        """
        verdict = await ticket.decided()
        if not isinstance(verdict, Dispatch) or not verdict.longest_transfer_seconds:
            return False
        found = await self._moves.bring(call, pool, ticket, verdict, verdict.longest_transfer_seconds)
        if found.fate is not CacheFate.MOVED:
            return False
        pool.account.complete(ticket, self._now(), Usage())
        return True

    def _again(self, pool: Pool, account: _Account, prompt: KeptPrompt) -> tuple[Call, RoutingRequest]:
        """Return a new call with the kept prompt, for one token, and the routing request by which the scheduler chooses
        the heir.
        """
        call = call_again(self._calls, prompt, self._now())
        request = replace(
            prompt.request,
            id=call.id,
            arrived_at=call.arrived_at,
            max_output_tokens=1,
            streamed=False,
            movable=prompt.request.movable and prompt.is_fetchable,
            warms=True,
            explain=False,
            client_id="",
            within=_successors(pool, account.revision_of(prompt.instance)),
        )
        return call, request


def _warmed(pool: Pool, prompt: KeptPrompt, left: str, heir: str, computed: int) -> None:
    """Record that the heir now has the prompt, and that it computed this many tokens."""
    prompt.given_up = False
    pool.counters.handed_over["warmed"] += 1
    pool.counters.handed_over_tokens += computed
    if prompt.instance == left:
        prompt.instance, prompt.is_fetchable = heir, True


class PrefixCopies:
    """Makes the copies of shared prefixes that are due (`fairlead.routing.scheduling.copying`), one at a time in each
    pool.

    A prefix is copied with the kept prompt of a session. The instance that has the prefix names the prompt's blocks,
    and the target fetches these blocks. No client waits for a copy. If a copy fails, the target does not compute the
    prefix. `now` is the router's clock in Unix seconds.
    """

    def __init__(
        self, pools: Pools, calls: Calls, moves: CacheMoves, prompts: KeptPrompts, is_ending: Callable[[], bool], now: Callable[[], float]
    ) -> None:
        self._pools = pools
        self._calls = calls
        self._moves = moves
        self._prompts = prompts
        self._is_ending = is_ending
        self._now = now
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """By the id of the copy: the copies in progress."""

    async def look(self) -> None:
        """Begin the copies that are due. Runs every COPIES_LOOK_SECONDS."""
        for name in [name for name, task in self._under_way.items() if task.done()]:
            self._under_way.pop(name).result()
        for pool in self._pools.all():
            if pool.table.engine.copies_prefixes and not self._is_ending():
                self._look(pool)

    def _look(self, pool: Pool) -> None:
        copy = pool.scheduler.copy_due(self._prompts.newest(pool.key), self._now())
        if copy is not None:
            kept = next(one for one in self._prompts.newest(pool.key) if one.request.id == copy.request.id)
            self._under_way[copy.id] = asyncio.create_task(self._copy(pool, copy, kept), name=copy.id)

    async def _copy(self, pool: Pool, copy: PrefixCopy, kept: KeptPrompt) -> None:
        prompt = prompt_to_move(call_again(self._calls, kept, self._now()))
        found = await self._moves.move(pool, prompt, copy.source, copy.target, copy.longest_seconds)
        tokens = min(found.tokens, copy.source_tokens - copy.target_tokens)
        size = pool.engines.kv_bytes_per_token
        transfer = replace(found, tokens=tokens, bytes=round(tokens * size) if tokens and size else None)
        pool.scheduler.copied(copy, transfer, self._now())
        pool.judge_handovers(copy.source)


def call_again(calls: Calls, prompt: KeptPrompt, now: float) -> Call:
    """Return a new call for the kept prompt with one output token."""
    body = encoded(_for_one_token(decoded(prompt.body), prompt.dialect))
    call_id = calls.next_id()
    head = _LENGTH.sub(b"content-length: %d\r\n" % len(body), prompt.head, count=1)
    head = _ID.sub(b"x-request-id: %s\r\n" % call_id.encode(), head, count=1)
    call = calls.new(call_id, now, head, body, stream=False, dialect=prompt.dialect)
    call.model = prompt.model
    return call


def _fetches(account: _Account, prompt: KeptPrompt) -> bool:
    """Return whether an heir can probably fetch the prompt's blocks."""
    return prompt.is_fetchable and prompt.request.movable and prompt.instance in account.sources


def _hands_on(pool: Pool, revision: str, source: str) -> bool:
    """Return whether heirs can fetch blocks from the leaving target `source`. Two conditions must hold: the target
    still exists, and the engine of an heir has the same layout of KV blocks as an engine of this `revision`.
    """
    if not pool.moves_caches or source not in pool.addresses:
        return False
    among = _successors(pool, revision)
    heirs = [entry for entry in pool.table.instances if entry.accepting and (among is None or entry.id in among)]
    return not heirs or any(not revision or entry.revision in ("", revision) for entry in heirs)


def _successors(pool: Pool, left: str) -> tuple[str, ...] | None:
    """Return the instances among which the heir is chosen, for a session that leaves an instance of the revision
    `left`.

    These are the instances that stay in the pool and have another revision. If they could not serve the session without
    other instances, return all instances that stay instead. None if all accepting instances may be chosen.
    """
    accepting = [entry for entry in pool.table.instances if entry.accepting]
    stay = [entry for entry in accepting if entry.stays]
    newer = [entry for entry in stay if left and entry.revision not in ("", left)]
    for among in (newer, stay):
        roles = {entry.role for entry in among}
        if roles and len(among) < len(accepting) and (not pool.divides or roles >= {Role.PREFILL, Role.DECODE}):
            return tuple(entry.id for entry in among)
    return None


def _computed(ticket: Ticket) -> int:
    """Return the number of prompt tokens that the heir computed: the tokens that its engine did not report as cached
    or, without a report, the predicted number.
    """
    verdict, usage = ticket.verdict, ticket.usage
    if usage is not None and usage.cached_tokens is not None and usage.prompt_tokens:
        return max(0, usage.prompt_tokens - usage.cached_tokens)
    return verdict.miss_tokens if isinstance(verdict, Dispatch) else 0


def _for_one_token(document: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return the document of a request with the same prompt, for one output token."""
    short = {name: value for name, value in document.items() if name not in _NEEDLESS}
    if dialect is Dialect.RESPONSES:
        return {**short, "stream": False, "max_output_tokens": 1, "store": False}
    return {**short, "stream": False, "max_tokens": 1}
