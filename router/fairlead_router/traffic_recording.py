"""Records a pool's requests for simulations: arrival, lengths, and hashes of session and prompt blocks; never a text.

A session is recorded whole or not at all, as its name decides; so are requests without a session that begin alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Protocol

from fairlead.reports.traffic import TRAFFIC_BLOCK_TOKENS, RecordedRequest
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.tables import RoutingTable
from fairlead_router.answers import Usage

MOST_BLOCKS = 1024
"""Ids kept of a prompt: half a million tokens."""
MOST_ENDED = 5_000
"""Most requests kept between two takes, which are a fifth of a second apart."""
_BITS = 53
"""Ids are numbers that JSON carries exactly."""
_MASK = 0xFFFF_FFFF_FFFF_FFFF


class Ended(Protocol):
    """A request that has ended, with what its engine told of it."""

    @property
    def request(self) -> RoutingRequest: ...

    @property
    def usage(self) -> Usage | None: ...


class TrafficRecording:
    """The requests of one pool that ended since they were taken last; `share` (0-1) of its sessions, 0 = none."""

    __slots__ = ("_dropped", "_ended", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._ended: list[Ended] = []
        self._dropped = 0

    def ended(self, one: Ended) -> None:
        """A request ended. It is read when it is taken, since its tokens are told a moment later."""
        if self._share <= 0:
            return
        if len(self._ended) < MOST_ENDED:
            self._ended.append(one)
        else:
            self._dropped += 1

    def take(self, table: RoutingTable) -> tuple[tuple[RecordedRequest, ...], int]:
        """What is to be reported since the last take, and how many were lost because nobody took them in time."""
        taken, self._ended = self._ended, []
        dropped, self._dropped = self._dropped, 0
        return tuple(recorded_requests(taken, table, self._share)), dropped


def recorded_requests(ended: Sequence[Ended], table: RoutingTable, share: float) -> Iterator[RecordedRequest]:
    """The records of those requests that belong to the `share` of sessions recorded. Pure."""
    salt = table.uid.encode()[:64]
    below = share * (1 << _BITS)
    for one in ended:
        request = one.request
        name = f"s{request.session}".encode() if request.session is not None else _bytes(request.first_bytes_hash)
        key = _hashed(salt, name)
        if key >= below:
            continue
        yield RecordedRequest(
            pool=table.pool,
            at=request.arrived_at,
            session=None if request.session is None else key,
            prompt_tokens=request.prompt_tokens,
            output_tokens=None if one.usage is None else one.usage.output_tokens,
            blocks=_block_ids(salt, request, table.engine.block_tokens),
            sample_rate=share,
        )


def _block_ids(salt: bytes, request: RoutingRequest, block_tokens: int) -> tuple[int, ...]:
    """An id for each full block of 512 tokens: the hash of the prompt's routing blocks up to where they cover it."""
    ids: list[int] = []
    for number in range(1, min(request.prompt_tokens // TRAFFIC_BLOCK_TOKENS, MOST_BLOCKS) + 1):
        covering = -(-number * TRAFFIC_BLOCK_TOKENS // block_tokens)
        if covering > len(request.blocks):
            break
        ids.append(_hashed(salt, _bytes(request.blocks[covering - 1]) + number.to_bytes(4, "big")))
    return tuple(ids)


def _bytes(number: int) -> bytes:
    return (number & _MASK).to_bytes(8, "big")


def _hashed(salt: bytes, data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8, key=salt).digest(), "big") >> (64 - _BITS)
