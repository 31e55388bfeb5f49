"""Estimates from a trace alone how many of a rollout's hits each design of a hand-over keeps.

Each session's blocks are at one of four instances, which are replaced one after another. No engine is busy, and a block
is available as soon as it is computed or fetched. So this shows only the loss that a hand-over can prevent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from benchmarks.pool_operations.work import Work

from fairlead.hand_overs import HOLD_SECONDS
from fairlead.routing.knowledge.next_turns import SOON_SECONDS
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow

DRAINS_SECONDS = (27.0, 55.0, 86.0, 120.0)
"""The times of the instances' drains in a live run without transfers, in seconds after the rollout's begin. The designs
are computed with these times.
"""
WINDOW_SECONDS = 100.0
SEEDS = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A design of a hand-over of the sessions on a drained instance.

    `computes` is the share of the throughput of all instances that may be used to compute prompts of these sessions on
    other instances. `fetches` is the number of sessions per second that fetch their blocks while their old instance is
    kept. If `stays` is set, sessions go only to new instances.
    """

    words: str
    computes: float = 0.2
    fetches: float = 0.0
    stays: bool = True


DESIGNS = (
    Design(words="nobody is handed over", computes=0.0, stays=False),
    Design(words="computed with a fifth of the throughput, at any instance", stays=False),
    Design(words="computed with a fifth of the throughput, at instances that stay"),
    Design(words="computed with all of the throughput, at instances that stay", computes=1.0),
    Design(words="6 sessions/s fetch, at any instance", fetches=6.0, stays=False),
    Design(words="6 sessions/s fetch, at instances that stay", fetches=6.0),
    Design(words="20 sessions/s fetch, at instances that stay", fetches=20.0),
)


@dataclass(slots=True)
class _Session:
    instance: str
    blocks: Sequence[int]
    at: float


@dataclass(slots=True)
class _Pool:
    """The caches of the instances, and the sessions of drained instances. Some of these sessions may fetch their blocks
    from a certain time on; for the others, prompts are computed in a fixed order.
    """

    design: Design
    tokens_per_second: float
    chance: random.Random
    old: list[str] = field(default_factory=lambda: [f"old-{number}" for number in range(len(DRAINS_SECONDS))])
    new: list[str] = field(default_factory=list)
    caches: dict[str, set[int]] = field(default_factory=dict)
    sessions: dict[int, _Session] = field(default_factory=dict)
    fetching: list[tuple[float, int]] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    balance: float = 0.0
    at: float = 0.0

    def any_of(self, *, moves: bool) -> str:
        """Return a random instance for a session. If the session `moves` and the design has `stays`, it is one of the
        new instances.
        """
        return self.chance.choice(self.new if moves and self.design.stays and self.new else [*self.old, *self.new])

    def drain(self, now: float) -> None:
        """Drain the next old instance, and add a new instance instead."""
        gone = self.old.pop(0)
        self.new.append(f"new-{len(self.new)}")
        recent = [key for key, one in self.sessions.items() if one.instance == gone and now - one.at <= SOON_SECONDS]
        recent.sort(key=lambda key: -self.sessions[key].at)
        reached = int(self.design.fetches * HOLD_SECONDS)
        self.fetching += [(now + number / self.design.fetches, key) for number, key in enumerate(recent[:reached])]
        self.left += recent[reached:]

    def hand_over(self, now: float) -> None:
        """Hand over the sessions that are due by now. Sessions that may fetch move with their blocks. Prompts of the
        others are computed as far as the throughput allows.
        """
        for key in [key for due, key in self.fetching if due <= now]:
            self._move(key)
        self.fetching = [one for one in self.fetching if one[0] > now]
        speed = self.design.computes * self.tokens_per_second
        self.balance, self.at = min(2 * speed, self.balance + speed * (now - self.at)), now
        while self.left and self.balance > 0:
            self.balance -= self._move(self.left.pop(0))

    def _move(self, key: int) -> int:
        session = self.sessions[key]
        if self.has(session.instance):
            return 0
        session.instance = self.any_of(moves=True)
        cache = self.caches.setdefault(session.instance, set())
        lacking = len(set(session.blocks) - cache) * BLOCK_TOKENS
        cache.update(session.blocks)
        return lacking

    def has(self, instance: str) -> bool:
        """Return whether the instance still exists."""
        return instance in self.old or instance in self.new

    def serve(self, key: int, row: TraceRow, now: float) -> int:
        """Serve a session's turn, and return its hit tokens."""
        session = self.sessions.get(key)
        where = session.instance if session is not None and self.has(session.instance) else self.any_of(moves=session is not None)
        cache = self.caches.setdefault(where, set())
        hit = next((number for number, block in enumerate(row.hash_ids) if block not in cache), len(row.hash_ids))
        cache.update(row.hash_ids)
        self.sessions[key] = _Session(where, row.hash_ids, now)
        return hit * BLOCK_TOKENS


def kept(work: Work, design: Design, instances: int, begin: float, seed: int) -> list[float]:
    """Return the hits as shares of the ideal, for the window before `begin` and the three windows from `begin` on."""
    pool = _Pool(design, instances * work.prefill_tokens_per_second, random.Random(seed))
    drains, owners = [begin + seconds for seconds in DRAINS_SECONDS], dict[int, int]()
    found = {window: [0, 0] for window in range(-1, 3)}
    for number, (row, ideal) in enumerate(zip(work.rows, work.ideal, strict=True)):
        now = (row.timestamp_ms - work.rows[0].timestamp_ms) / 1e3 / work.speed
        while drains and drains[0] <= now:
            pool.drain(drains.pop(0))
        pool.hand_over(now)
        key = next((owners[block] for block in reversed(row.hash_ids[1:]) if block in owners), number)
        hit = min(ideal, pool.serve(key, row, now))
        owners.update(dict.fromkeys(row.hash_ids[1:], key))  # the first block is everybody's
        window = found.get(int((now - begin) // WINDOW_SECONDS))
        if window is not None:
            window[0] += ideal
            window[1] += hit
    return [hit / ideal if ideal else 0.0 for ideal, hit in found.values()]


def run_designs(work: Work, instances: int, warm_up: float) -> int:
    """Print the hits that each design keeps, as means over several placements. Return 0."""
    print("| design | hits before, from the begin, and in the next two windows |\n|---|---|")
    for design in DESIGNS:
        runs = [kept(work, design, instances, warm_up, seed) for seed in SEEDS]
        print(f"| {design.words} | {', '.join(f'{fmean(one):.0%}' for one in zip(*runs, strict=True))} |", flush=True)
    return 0
