"""The reports that separately deciding routers exchange about a pool, through the control API: their requests in flight
per instance, and where they placed prompts.

A share is a router's whole present state and replaces the previous share, so nothing is counted twice even if shares
are lost, repeated or late.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fairlead.tables import PoolKey


class Apart(StrEnum):
    """The reason why a router decides alone although other routers also send requests to the pool's instances."""

    NOT_FOUND = "not-found"
    """The router knows no other router that can be asked: the other routers report no address, or the control API has
    not sent an address yet.
    """
    NO_ANSWER = "no-answer"
    """Other routers are listed, but none of them responds."""
    OTHER_RELEASE = "other-release"
    """The listed routers speak another version of the protocol."""
    AFTER_PREFILL = "after-prefill"
    """The pool refuses requests after their prefill. Such a refusal needs each decision at once, so the pool's routers
    do not ask another router.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceWork:
    """One router's requests in flight on an instance, or on one of the instance's ranks. `prefill_share` (0-1) is the
    predicted share of the instance's recent time that the router's prefills took.
    """

    instance: str
    in_flight: int = 0
    waiting: int = 0
    pending_prefill_tokens: int = 0
    decoding: int = 0
    decode_tokens: int = 0
    prefill_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPrompt:
    """A sketch of a prompt and the instance on which it was placed: the prompt's blocks at the depths 1, 2, 4, ..., and
    its last block, at depth `length`. Each block is a hash as `told_block` returns it.
    """

    instance: str
    blocks: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShare:
    """A router's report about a pool for which it decides alone, and the reason why it decides alone (`Apart`, or a
    reason that only newer routers know).
    """

    pool: PoolKey
    why: str
    work: tuple[InstanceWork, ...] = ()
    prompts: tuple[PlacedPrompt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersShare:
    """The load that other routers report about a pool: the sums of their work by instance, and where their prompts are.

    `names` are the routers that report, including the receiver. `age_seconds` is the age of the oldest share in the
    sums, by the API's clock.
    """

    pool: PoolKey
    names: tuple[str, ...]
    age_seconds: float
    work: tuple[InstanceWork, ...] = ()
    prompts: tuple[PlacedPrompt, ...] = ()


def share_of_others(router: str, pool: PoolKey, shares: Mapping[str, tuple[PoolShare, float]]) -> OthersShare:
    """Return the share to send to `router`: the sum of the other routers' newest shares, each given with its age in
    seconds.
    """
    others = {name: one for name, one in shares.items() if name != router}
    work: dict[str, InstanceWork] = {}
    for share, _ in others.values():
        for row in share.work:
            known = work.get(row.instance)
            work[row.instance] = row if known is None else added(known, row)
    return OthersShare(
        pool=pool,
        names=tuple(sorted({*shares, router})),
        age_seconds=max((age for _, age in others.values()), default=0.0),
        work=tuple(work[instance] for instance in sorted(work)),
        prompts=tuple(prompt for share, _ in others.values() for prompt in share.prompts),
    )


def added(one: InstanceWork, other: InstanceWork) -> InstanceWork:
    """Return the sum of two routers' work on the same instance."""
    return replace(
        one,
        in_flight=one.in_flight + other.in_flight,
        waiting=one.waiting + other.waiting,
        pending_prefill_tokens=one.pending_prefill_tokens + other.pending_prefill_tokens,
        decoding=one.decoding + other.decoding,
        decode_tokens=one.decode_tokens + other.decode_tokens,
        prefill_share=min(1.0, one.prefill_share + other.prefill_share),
    )


def placed(instance: str, blocks: Sequence[int]) -> PlacedPrompt:
    """Return the sketch of a prompt with these blocks (at least one) that was placed on this instance."""
    length = len(blocks)
    return PlacedPrompt(instance=instance, blocks=tuple(told_block(blocks[depth - 1]) for depth in depths(length)), length=length)


def told_block(block: int) -> int:
    """Return a block's hash in the form in which it is sent: its upper 53 bits, an integer that every JSON reader
    parses exactly.
    """
    return block >> 11


def depths(length: int) -> Iterable[int]:
    """Return the depths, shallowest first, that a sketch records for a prompt of this many blocks."""
    return (*(1 << power for power in range(length.bit_length()) if 1 << power < length), length)
