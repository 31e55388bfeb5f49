"""Sessions whose instance leaves get an heir, which computes their last prompt before their next turn comes.

When an instance drains, is cordoned or is lost, this router sends the last prompt of its sessions once more, for one
token, through the pool's scheduler like any request: the policy's own choice of a home is the heir, so the binding and
the ring agree, and the session's move is recorded as any other. The sessions come in the order of `kept_prompts`, as
many as `spec.routing.handOverBudget` allows, and none while a client's request waits.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fairlead.instances import InstanceState, Role
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of
from fairlead_router.metrics.endings import Ending
from fairlead_router.pools.kept_prompts import KeptPrompt, KeptPrompts
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import decoded
from fairlead_router.protocols.answers_so_far import encoded
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.relaying.calls import Call, Calls, Client
from fairlead_router.relaying.proxying import Proxy

LOOK_SECONDS = 0.25
BLINK_SECONDS = 5.0
"""An instance that takes no requests and does not drain may be back within this time."""
SAVED_SECONDS = 2.0
"""How much unused budget is kept for later."""
_LENGTH = re.compile(rb"^content-length: \d+\r\n", re.MULTILINE)
_ID = re.compile(rb"^x-request-id: [^\r\n]*\r\n", re.MULTILINE)
_NEEDLESS = (
    "stream_options", "n", "best_of", "max_completion_tokens", "min_tokens", "logprobs", "top_logprobs", "prompt_logprobs", "echo",
    "return_token_ids", "background",
)  # fmt: skip
"""Fields that only say what the answer is to be, and would make it longer or dearer."""

logger = logging.getLogger(__name__)


class _Nobody(Client):
    """Nobody waits for the answer."""

    def begin(self, status: int, headers: bytes, length: int | None) -> None: ...

    def write(self, piece: bytes) -> bool:
        return True

    def end(self, piece: bytes) -> None: ...

    def accompany(self, headers: list[tuple[bytes, bytes]]) -> None: ...

    def abort(self) -> None: ...

    def on_writable(self, resume: Callable[[], None]) -> None: ...


class _Account:
    """What one pool may still spend, in tokens, and what it does now."""

    def __init__(self, now: float) -> None:
        self.balance = 0.0
        self.at = now
        self.since: dict[str, float] = {}
        """By target, since when it takes no requests, as seen here."""
        self.revisions: dict[str, str] = {}
        """Of instances, also of those that have left the table while sessions look back to them."""
        self.under_way: dict[str, asyncio.Task[None]] = {}
        """By session."""


class Heirs:
    """Hands sessions over, until the router itself ends. `now` is its clock in Unix seconds."""

    def __init__(
        self, pools: Pools, calls: Calls, proxy: Proxy, prompts: KeptPrompts, is_ending: Callable[[], bool], now: Callable[[], float]
    ) -> None:
        self._pools = pools
        self._calls = calls
        self._proxy = proxy
        self._prompts = prompts
        self._is_ending = is_ending
        self._now = now
        self._accounts: dict[Pool, _Account] = {}

    async def look(self) -> None:
        """Hand over what is worth it and affordable; runs every LOOK_SECONDS."""
        now = self._now()
        if self._is_ending():
            return
        self._prompts.expire(now)
        pools = self._pools.all()
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
        for key, task in tuple(account.under_way.items()):
            if task.done():
                del account.under_way[key]
                task.result()
        leaving = self._leaving(pool, account, now)
        computing = sum(entry.accepting and entry.role is not Role.DECODE for entry in pool.table.instances)
        if not leaving or not computing:
            return
        speed = computing * (pool.scheduler.prefill_figure(now).value or 0.0) / self._pools.routers
        budget = pool.table.routing.hand_over_budget * speed
        account.balance = min(SAVED_SECONDS * budget, account.balance + budget * (now - account.at))
        account.at = now
        at_once = max(1, computing // self._pools.routers)
        if account.balance <= 0 or pool.account.waiting or len(account.under_way) >= at_once:
            return
        for _, prompt in self._prompts.worths(pool.key, leaving, now):
            if len(account.under_way) >= at_once or account.balance <= 0:
                return
            if prompt.key not in account.under_way:
                account.balance -= prompt.request.prompt_tokens
                task = asyncio.create_task(self._hand_over(pool, account, prompt), name=f"hand over {prompt.request.id}")
                account.under_way[prompt.key] = task

    def _leaving(self, pool: Pool, account: _Account, now: float) -> set[str]:
        """Targets with sessions that take no requests any more, and will not in a moment."""
        draining = {entry.id for entry in pool.table.instances if entry.state is InstanceState.DRAINING}
        known = {prompt.instance for prompt in self._prompts.of(pool.key)}
        sought = set(map(instance_of, known))
        before = {name: revision for name, revision in account.revisions.items() if name in sought}
        account.revisions = {**before, **{entry.id: entry.revision for entry in pool.table.instances}}
        away = {one for one in known if instance_of(one) not in pool.accepting}
        account.since = {one: account.since.get(one, now) for one in away}
        return {one for one in away if instance_of(one) in draining or now - account.since[one] >= BLINK_SECONDS}

    async def _hand_over(self, pool: Pool, account: _Account, prompt: KeptPrompt) -> None:
        prompt.given_up = True  # however that ends, but for an instance that computes it
        call = self._call(pool, prompt)
        request = replace(
            prompt.request,
            id=call.id,
            arrived_at=call.arrived_at,
            max_output_tokens=1,
            streamed=False,
            warms=True,
            explain=False,
            client_id="",
            within=_successors(pool, account.revisions.get(instance_of(prompt.instance), "")),
        )
        left = prompt.instance
        await self._proxy.relay(call, request, pool, _Nobody())
        ticket = call.ticket
        served = ticket is not None and ticket.ending is Ending.SERVED
        if ticket is None or not isinstance(ticket.verdict, Dispatch) or not served:
            pool.counters.handed_over["failed"] += 1
            return
        prompt.given_up = False
        account.balance += prompt.request.prompt_tokens - _computed(ticket)
        pool.counters.handed_over["warmed"] += 1
        pool.counters.handed_over_tokens += _computed(ticket)
        if prompt.instance == left:
            prompt.instance = ticket.verdict.instance

    def _call(self, pool: Pool, prompt: KeptPrompt) -> Call:
        document = _for_one_token(decoded(prompt.body), prompt.dialect)
        body = encoded(document)
        call_id = self._calls.next_id()
        head = _LENGTH.sub(b"content-length: %d\r\n" % len(body), prompt.head, count=1)
        head = _ID.sub(b"x-request-id: %s\r\n" % call_id.encode(), head, count=1)
        call = self._calls.new(call_id, self._now(), head, body, stream=False, dialect=prompt.dialect)
        call.model = prompt.model
        if pool.divides and prompt.request.divisible:
            call.document = document
        return call


def _successors(pool: Pool, left: str) -> tuple[str, ...] | None:
    """The instances of another revision than the one that leaves (`left`), as a rollout replaces it: the others of its
    own leave next. None where there are none, or none that could serve it alone: then any instance may be the heir.
    """
    newer = [entry for entry in pool.table.instances if left and entry.accepting and entry.revision not in ("", left)]
    roles = {entry.role for entry in newer}
    serves = roles and (not pool.divides or roles >= {Role.PREFILL, Role.DECODE})
    return tuple(entry.id for entry in newer) if serves else None


def _computed(ticket: Ticket) -> int:
    """Tokens that it cost: what the engine reported as not cached, else what was predicted."""
    verdict, usage = ticket.verdict, ticket.usage
    if usage is not None and usage.cached_tokens is not None and usage.prompt_tokens:
        return max(0, usage.prompt_tokens - usage.cached_tokens)
    return verdict.miss_tokens if isinstance(verdict, Dispatch) else 0


def _for_one_token(document: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The same prompt, of which the engine is to answer one token."""
    short = {name: value for name, value in document.items() if name not in _NEEDLESS}
    if dialect is Dialect.RESPONSES:
        return {**short, "stream": False, "max_output_tokens": 1, "store": False}
    return {**short, "stream": False, "max_tokens": 1}
