"""Reuse distances: the share of the prompt tokens that a cache of any size would serve.

A cache that evicts the least recently used block keeps a block until as many other blocks were used as fit into the
cache. The distance of a reference is the number of distinct blocks that were used since the block's last use. A
reference is a hit if its distance is below the cache's size. So one pass over recorded prompts gives the hits for all
cache sizes. To limit the work, only blocks with a hash below a threshold are followed, and their distances are scaled
up (SHARDS: Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015).

In a pool, every block is assumed to be at one instance: with `n` instances, each instance gets 1/n of the blocks. In
reality, prefixes that many instances hold need more room, and running requests also use a GPU's cache. So a simulation
must confirm an estimate before anybody acts on it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Protocol

from xxhash import xxh3_64_intdigest

MOST_REFERENCES = 50_000
"""Maximum number of references to blocks that are followed, about a second's work. If there are more, a sample of the
blocks is followed.
"""
GROUPS = 10
"""Number of groups of sessions from which an estimate's error is computed."""
_TWENTIETH = 2.26
"""Factor from a standard error to an error that is exceeded in one of twenty cases: Student's t with nine degrees of
freedom.
"""
_HASHES = 1 << 64


class Prompt(Protocol):
    """A recorded prompt. `hash_ids` are the ids of its blocks of `block_tokens` tokens each; the last block may not be
    full.
    """

    @property
    def input_length(self) -> int: ...

    @property
    def hash_ids(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HitShare:
    """The share (0-1) of prompt tokens that a cache serves. In nineteen of twenty cases the true share is within
    `error` of `value`, as far as the recorded sessions represent others.
    """

    value: float
    error: float


class ReuseDistances:
    """The reuse distances of the blocks in some prompts, in order of time.

    `sessions` names the session of each prompt, because the prompts of a session are not independent. A prompt without
    a name is grouped with the prompts that have the same first block.
    """

    def __init__(self, prompts: Iterable[Prompt], block_tokens: int, sessions: Sequence[str | None] = ()) -> None:
        rows = list(prompts)
        full = [tuple(row.hash_ids[: row.input_length // block_tokens]) for row in rows]
        self.sample_rate = min(1.0, MOST_REFERENCES / max(1, sum(map(len, full))))
        """The share (0-1) of the blocks that are followed."""
        self._block_tokens = block_tokens
        self._tokens = [0] * GROUPS
        self._distances: list[list[int]] = [[] for _ in range(GROUPS)]
        self._lacking = [0.0] * GROUPS
        """By group, the difference between the expected and the actual number of references in the sample. The
        difference counts as hits, because it is mainly caused by the few blocks with which nearly all prompts begin
        (SHARDS-adj).
        """
        self._last: dict[int, int] = {}
        self._times = _Counted(sum(map(len, full)))
        self._now = 0
        for place, (row, blocks) in enumerate(zip(rows, full, strict=True)):
            named = sessions[place] if sessions else None
            key = named.encode() if named is not None else b"%d" % (row.hash_ids[0] if row.hash_ids else place)
            group = xxh3_64_intdigest(key) % GROUPS
            self._tokens[group] += row.input_length
            usable = blocks[: max(0, row.input_length - 1) // block_tokens]  # a prompt's last token is always computed
            followed = self._followed(usable)
            self._lacking[group] += len(usable) * self.sample_rate - len(followed)
            self._distances[group] += self._distances_of(followed)
            self._use(self._followed(blocks))
        for distances in self._distances:
            distances.sort()

    def hit_share(self, capacity_tokens: int, instances: int = 1) -> HitShare:
        """Return the share of the tokens that caches of this size, one at each instance, serve."""
        most = capacity_tokens // self._block_tokens * instances * self.sample_rate
        tokens, per_reference = sum(self._tokens), self._block_tokens / self.sample_rate
        if not tokens or most <= 0:
            return HitShare(value=0.0, error=0.0)
        hits = [per_reference * count for count in self._hits(most)]
        value = min(1.0, max(0.0, sum(hits) / tokens))
        squares = sum((hit - value * of) ** 2 for hit, of in zip(hits, self._tokens, strict=True))
        error = sqrt(GROUPS / (GROUPS - 1) * squares) / tokens  # of a ratio of sums over groups
        return HitShare(value=value, error=max(_TWENTIETH * error, self._error_of_sampling(most, value, tokens)))

    def _hits(self, most: float) -> list[float]:
        """Return, for each group, the number of references that a cache of this many followed blocks serves."""
        return [bisect_left(distances, most) + lacking for distances, lacking in zip(self._distances, self._lacking, strict=True)]

    def _error_of_sampling(self, most: float, value: float, tokens: int) -> float:
        """Return the error of the share that is caused by following only a sample of the blocks.

        A distance counted on a sample is wrong by up to twice the square root of its number of blocks in nineteen of
        twenty cases. So the share's error is the difference between the shares of two cache sizes that are this far
        apart. The references added for the first blocks have an error as large as their number.
        """
        if self.sample_rate >= 1.0:
            return 0.0
        ends = (most - 2 * sqrt(most), most + 2 * sqrt(most))
        per_reference = self._block_tokens / self.sample_rate / tokens
        return max(*(abs(sum(self._hits(end)) * per_reference - value) for end in ends), abs(sum(self._lacking)) * per_reference)

    def _followed(self, blocks: Sequence[int]) -> list[int]:
        if self.sample_rate >= 1.0:
            return list(blocks)
        threshold = self.sample_rate * _HASHES
        return [block for block in blocks if xxh3_64_intdigest(b"%d" % block) < threshold]

    def _distances_of(self, blocks: Sequence[int]) -> list[int]:
        """Return the distances of the prompt's blocks that were used before. All distances are looked up before any of
        the blocks is recorded as used.
        """
        return [self._times.after(self._last[block]) for block in blocks if block in self._last]

    def _use(self, blocks: Sequence[int]) -> None:
        """Record a use of the blocks. The first block counts as used last, so each block is evicted before its
        predecessors in the prompt.
        """
        last, times = self._last, self._times
        for block in reversed(blocks):
            before = last.get(block)
            if before is not None:
                times.add(before, -1)
            last[block] = self._now
            times.add(self._now, 1)
            self._now += 1


class _Counted:
    """Counts the blocks that were last used after a given time: a Fenwick tree over the times of references."""

    def __init__(self, size: int) -> None:
        self._sums = [0] * (size + 1)
        self._total = 0

    def add(self, time: int, count: int) -> None:
        self._total += count
        place = time + 1
        while place < len(self._sums):
            self._sums[place] += count
            place += place & -place

    def after(self, time: int) -> int:
        place, before = time + 1, 0
        while place:
            before += self._sums[place]
            place &= place - 1
        return self._total - before
