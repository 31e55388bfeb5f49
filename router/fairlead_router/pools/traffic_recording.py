"""Records a pool's requests without their texts. For simulations it records arrivals, lengths, and hashes of the
session and of prompt blocks; for costs it records the tokens by key, class and session.

A hash of the session's name decides whether all requests of the session are recorded or none. For a request without a
session, the beginning of the prompt is used instead of the name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.traffic import ID_BITS, TRAFFIC_BLOCK_TOKENS, RecordedRequest, hashed, salt_of, session_number
from fairlead.reports.usage import PoolUsage
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.session_trees import Lineage
from fairlead.tables import PoolKey, RoutingTable
from fairlead.targets import instance_of, rank_of
from fairlead_router.metrics.endings import CONSEQUENCES, Ending, Outcome
from fairlead_router.protocols.answers import Usage

MOST_BLOCKS = 1024
"""Maximum number of block ids that are recorded for a prompt, which is enough for half a million tokens."""
MOST_ENDED = 20_000
"""Maximum number of ended requests that are buffered between two calls of `take`, which are 0.2 s apart."""
KNOWN_BLOCKS = 65_536
"""Maximum number of routing blocks of earlier prompts that are kept with their ids, which take about 5 MB."""
_MASK = 0xFFFF_FFFF_FFFF_FFFF


class Served(NamedTuple):
    """The service of a request by an engine: the target, the time at which the request was sent to it, and the seconds
    until the first token and until the end. The seconds are None unless a single engine served the request and its
    first token was seen.
    """

    target: str
    hit_tokens: int
    """Number of prompt tokens that the router predicted to be cached at the target."""
    sent_at: float
    ttft_seconds: float | None = None
    answer_seconds: float | None = None


class Ended(Protocol):
    """A request that has ended, with the token counts from its engine."""

    @property
    def request(self) -> RoutingRequest: ...

    @property
    def usage(self) -> Usage | None: ...

    @property
    def served(self) -> Served | None: ...

    @property
    def verdict(self) -> Dispatch | Refusal | None: ...

    @property
    def ending(self) -> Ending | None: ...

    @property
    def ended_at(self) -> float: ...


_OUTCOMES = {
    Outcome.SERVED: RequestOutcome.SERVED,
    Outcome.FAILED: RequestOutcome.FAILED,
    Outcome.CANCELLED: RequestOutcome.CANCELLED,
    Outcome.REFUSED: RequestOutcome.REFUSED,
    Outcome.REJECTED_BY_ENGINE: RequestOutcome.DECLINED,
}
_SAID_NOTHING = Lineage()


class BlockIds:
    """Computes the ids of prompts' blocks in one pool. The id of each full block of 512 tokens is a hash of the
    prompt's routing blocks up to the end of the block.

    A prompt usually continues the last prompt of its session, or the last prompt with the same first block. The common
    part of both prompts is not hashed again. Bisection finds the end of the common part, because each routing block is
    a hash that includes all blocks before it.
    """

    def __init__(self) -> None:
        self._facts = (b"", 0)
        self._prompts: dict[str | int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """By session or first block: the routing blocks of the last prompt, and the ids computed from them. The oldest
        prompt comes first.
        """
        self._kept = 0

    def of(self, salt: bytes, request: RoutingRequest, block_tokens: int) -> tuple[int, ...]:
        """Return the block ids of a request's prompt, hashed with the salt. Each routing block of the prompt has
        `block_tokens` tokens.
        """
        if self._facts != (salt, block_tokens):
            self._facts = (salt, block_tokens)
            self._prompts.clear()
            self._kept = 0
        blocks = request.blocks
        whole = min(request.prompt_tokens // TRAFFIC_BLOCK_TOKENS, MOST_BLOCKS, len(blocks) * block_tokens // TRAFFIC_BLOCK_TOKENS)
        if not whole:
            return ()
        name = blocks[0] if request.session is None else request.session
        before, known = self._prompts.pop(name, ((), ()))
        self._kept -= len(before)
        common = bisect_left(range(min(len(before), len(blocks))), True, key=lambda place: before[place] != blocks[place])
        ids = list(known[: min(whole, common * block_tokens // TRAFFIC_BLOCK_TOKENS)])
        for number in range(len(ids) + 1, whole + 1):
            covering = -(-number * TRAFFIC_BLOCK_TOKENS // block_tokens)
            ids.append(hashed(salt, _bytes(blocks[covering - 1]) + number.to_bytes(4, "big")))
        self._prompts[name] = blocks, tuple(ids)
        self._kept += len(blocks)
        while self._kept > KNOWN_BLOCKS:
            oldest, _ = self._prompts.pop(next(iter(self._prompts)))
            self._kept -= len(oldest)
        return tuple(ids)


class TrafficRecording:
    """Buffers the requests of one pool that have ended since the last `take`. `share`: the share (0-1) of the pool's
    sessions that are recorded for simulations.
    """

    __slots__ = ("_block_ids", "_dropped", "_ended", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._ended: list[Ended] = []
        self._dropped = 0
        self._block_ids = BlockIds()

    def ended(self, one: Ended) -> None:
        """Add an ended request. `take` reads its fields later, because token counts arrive a moment after the end."""
        if len(self._ended) < MOST_ENDED:
            self._ended.append(one)
        else:
            self._dropped += 1

    def take(self, table: RoutingTable) -> tuple[tuple[RecordedRequest, ...], tuple[PoolUsage, ...], int]:
        """Return three results for the requests that have ended since the last call: the records for simulations, the
        used tokens, and the number of requests that did not fit into the buffer.
        """
        taken, self._ended = self._ended, []
        dropped, self._dropped = self._dropped, 0
        traffic = tuple(recorded_requests(taken, table, self._share, self._block_ids)) if self._share > 0 else ()
        return traffic, usage_of(taken, table.pool), dropped


def usage_of(ended: Sequence[Ended], pool: PoolKey) -> tuple[PoolUsage, ...]:
    """Return the tokens that these requests used at engines, summed by minute, key, class and session."""
    sums: dict[tuple[int, str, str, str], list[int]] = {}
    for one in ended:
        served = one.served
        if served is None:
            continue
        request, usage = one.request, one.usage
        place = int(one.ended_at // 60) * 60, request.owner, request.priority_class, request.session or ""
        counted = sums.setdefault(place, [0, 0, 0, 0])
        counted[0] += 1
        if usage is None:
            continue  # nothing is known of what its engine computed
        prompt = usage.prompt_tokens or request.prompt_tokens
        hit = min(_cached(usage, served) or 0, prompt)
        counted[1] += prompt - hit
        counted[2] += hit
        counted[3] += usage.output_tokens
    return tuple(
        PoolUsage(
            pool=pool, minute=minute, key=key, priority_class=of_class, session=session,
            requests=requests, prefill_tokens=prefill, hit_tokens=hit, output_tokens=output,
        )
        for (minute, key, of_class, session), (requests, prefill, hit, output) in sums.items()
    )  # fmt: skip


def recorded_requests(
    ended: Sequence[Ended], table: RoutingTable, share: float, block_ids: BlockIds | None = None
) -> Iterator[RecordedRequest]:
    """Yield the records of the requests whose sessions belong to the recorded `share`. `block_ids` caches hashes
    between calls.
    """
    block_ids = block_ids or BlockIds()
    salt = salt_of(table.uid)
    below = share * (1 << ID_BITS)
    for one in ended:
        request = one.request
        named, first = request.session, request.first_bytes_hash
        key = hashed(salt, _bytes(first)) if named is None else session_number(salt, named)
        if key >= below:
            continue
        usage, served, verdict, said = one.usage, one.served, one.verdict, request.lineage or _SAID_NOTHING
        yield RecordedRequest(
            pool=table.pool,
            at=request.arrived_at,
            session=None if request.session is None else key,
            prompt_tokens=request.prompt_tokens,
            output_tokens=None if usage is None else usage.output_tokens,
            blocks=block_ids.of(salt, request, table.engine.block_tokens),
            sample_rate=share,
            instance=None if served is None else instance_of(served.target),
            rank=None if served is None else rank_of(served.target),
            sent_seconds=None if served is None else served.sent_at - request.arrived_at,
            ttft_seconds=None if served is None else served.ttft_seconds,
            answer_seconds=None if served is None else served.answer_seconds,
            engine_prompt_tokens=None if usage is None else usage.prompt_tokens,
            cached_tokens=_cached(usage, served),
            ended_seconds=None if one.ending is None else max(0.0, one.ended_at - request.arrived_at),
            outcome=None if one.ending is None else _OUTCOMES[CONSEQUENCES[one.ending].counted],
            rejection=verdict.reason if isinstance(verdict, Refusal) else None,
            decision=None if verdict is None else verdict.decision_id or None,
            tenant=request.owner,
            task=said.task,
            tool=said.tool,
            window_number=said.window,
            name=named,
            parent=said.parent,
            priority_class=request.priority_class,
        )


def _cached(usage: Usage | None, served: Served | None) -> int | None:
    """Return the number of cached prompt tokens that the engine reported or, without a report, that the router
    predicted. None if no engine served the request.
    """
    if usage is not None and usage.cached_tokens is not None:
        return usage.cached_tokens
    return None if served is None else served.hit_tokens


def _bytes(number: int) -> bytes:
    return (number & _MASK).to_bytes(8, "big")
