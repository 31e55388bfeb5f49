"""Load shares: if several routers of a pool each decide alone, they send each other reports of their requests in
flight.

A newer share replaces the older one. Between two shares, pending prefills are assumed to progress. A share older than
`KNOWN_SECONDS` is dropped. Then, as before the first share, each other router is assumed to have as much work as this
router.
"""

from collections import deque
from math import exp

from fairlead.reports.shares import InstanceWork, OthersShare, PlacedPrompt, PoolShare, added, placed
from fairlead.routing.contracts.loads import InstanceLoad, OthersLoad
from fairlead.routing.scheduling.state import SchedulerState

KNOWN_SECONDS = 6.0
"""Age in seconds after which a received share no longer counts. Routers send a share every second."""
AGE_SECONDS = 0.25
"""Seconds between two adjustments of received shares to their age."""
WORKED_OFF = 20.0
"""Seconds of pending prefill that are deducted from a received share per second of its age. An engine computes one
second of prefill per second. More is deducted, because otherwise all routers with the same reports of short queues
would choose the same instances. If work remains after a while, the instance has stopped, or has work for more than half
a minute.
"""
SETTLING_SECONDS = 3.0
"""Seconds after a change of the decider during which received shares may still include this router's requests."""
TOLD_SECONDS = 4.0
MOST_PROMPTS = 256
"""Maximum number of prompts that are repeated in shares. Each prompt is repeated for some seconds, because some shares
are lost.
"""
SHARE_SECONDS = 10.0
"""Time constant, in seconds, for smoothing the fraction of an instance's time that prefills take."""
MOST_TOKENS, MOST_REQUESTS = 1 << 40, 1 << 20
"""Plausible maximum of tokens, and of requests, that a router has in flight on one instance. Larger counts are reduced
to the maximum.
"""


class Others:
    """The load shares of one pool: the share that this router sends to other routers, and the shares that it gets."""

    def __init__(self, state: SchedulerState, router: str) -> None:
        self._state = state
        self.router = router
        self._share: OthersShare | None = None
        self._told_at = 0.0
        self._deaf_until = 0.0
        self._aged_at = 0.0
        self._placed: deque[tuple[float, PlacedPrompt]] = deque(maxlen=MOST_PROMPTS)
        self._prefilled: dict[str, tuple[float, float, float]] = {}
        """For each target: the time at which its prefills were last read, the sum of their predicted seconds until
        then, and the smoothed fraction of the target's time that prefills take.
        """

    # ── what others are told ──

    def share(self, why: str, now: float) -> PoolShare | None:
        """Return the load report to send. None if no other router is known, or if another router decides for this
        router.
        """
        state = self._state
        state.tells_prompts = state.view.routers > 1 and not state.is_front
        if not state.tells_prompts:
            state.placed.clear()
            self._placed.clear()
            return None
        for instance, blocks in state.placed:
            self._placed.append((now, placed(instance, blocks)))
        state.placed.clear()
        while self._placed and self._placed[0][0] < now - TOLD_SECONDS:
            self._placed.popleft()
        work = tuple(self._work(name, load, now) for name, load in sorted(state.loads.items()))
        return PoolShare(pool=state.table.pool, why=why, work=work, prompts=tuple(prompt for _, prompt in self._placed))

    def _work(self, name: str, load: InstanceLoad, now: float) -> InstanceWork:
        return InstanceWork(
            instance=name,
            in_flight=load.waiting + load.prefilling + load.decoding,
            waiting=load.waiting,
            pending_prefill_tokens=load.pending_prefill_tokens,
            decoding=load.decoding,
            decode_tokens=load.decode_tokens,
            prefill_share=self._prefill_share(name, load.history.prefill_seconds, now),
        )

    def _prefill_share(self, name: str, total: float, now: float) -> float:
        at, before, share = self._prefilled.get(name, (now, total, 0.0))
        if now > at:
            weight = 1 - exp((at - now) / SHARE_SECONDS)
            share += weight * (min(1.0, max(0.0, total - before) / (now - at)) - share)
        self._prefilled[name] = (now, total, share)
        return share

    # ── what others told ──

    def hear(self, share: OthersShare, now: float) -> None:
        """Use the newest share, which has the sums over all other routers. It replaces the earlier share."""
        state = self._state
        if state.is_front or now < self._deaf_until or share.age_seconds > KNOWN_SECONDS:
            return
        self._share, self._told_at = share, now - max(0.0, share.age_seconds)
        others = [name for name in share.names if name != self.router]
        state.view.told_routers = len(others)
        state.view.told.hear(share.prompts)
        state.view.divide(self.router, share.names)
        self._age(now)

    def age(self, now: float) -> None:
        """Adjust the received shares to their age; called at every tick."""
        if self._share is None or now - self._aged_at < AGE_SECONDS:
            return
        if now - self._told_at > KNOWN_SECONDS:
            self.forget()
        else:
            self._age(now)

    def settle(self, now: float) -> None:
        """Ignore received shares for a while after a change of the decider, because they may count requests that this
        router now counts itself.
        """
        self._deaf_until = now + SETTLING_SECONDS
        self.forget()

    def forget(self) -> None:
        """Forget the other routers' load. The instances where they placed prompts are remembered for as long as caches
        may hold the prompts.
        """
        state = self._state
        self._share = None
        state.view.told_routers = 0
        state.view.divide(self.router, ())
        for name, load in state.loads.items():
            if load.others is not None:
                load.others = None
                state.accounting.changed.add(name)

    def _age(self, now: float) -> None:
        assert self._share is not None
        self._aged_at = now
        state = self._state
        speed = state.view.prefill_speed
        worked_off = WORKED_OFF * max(0.0, now - self._told_at) * speed
        work = self._by_target(self._share.work)
        for name, load in state.loads.items():
            row = work.get(name)
            pending = 0 if row is None else max(0, int(row.pending_prefill_tokens - worked_off))
            load.others = OthersLoad(
                pending_prefill_tokens=pending,
                pending_prefill_microseconds=int(1e6 * pending / speed),
                in_flight=0 if row is None else row.in_flight,
                decoding=0 if row is None else row.decoding,
                decode_tokens=0 if row is None else row.decode_tokens,
                prefill_share=0.0 if row is None else row.prefill_share,
            )
            state.accounting.changed.add(name)

    def _by_target(self, rows: tuple[InstanceWork, ...]) -> dict[str, InstanceWork]:
        """Return the rows, keyed by this router's targets. If the other routers do not know an instance's ranks, its
        row is divided among the ranks.
        """
        found: dict[str, InstanceWork] = {}
        for told in rows:
            row = _bounded(told)
            known = [load.entry.id for load in self._state.present_loads_of(row.instance)]
            for target in known:
                part = row if len(known) == 1 else _part(row, len(known))
                found[target] = part if target not in found else added(found[target], part)
        return found


def _part(row: InstanceWork, parts: int) -> InstanceWork:
    return InstanceWork(
        instance=row.instance,
        in_flight=-(-row.in_flight // parts),
        waiting=-(-row.waiting // parts),
        pending_prefill_tokens=row.pending_prefill_tokens // parts,
        decoding=-(-row.decoding // parts),
        decode_tokens=row.decode_tokens // parts,
        prefill_share=row.prefill_share / parts,
    )


def _bounded(row: InstanceWork) -> InstanceWork:
    """Return the row with implausible values replaced."""
    return InstanceWork(
        instance=row.instance,
        in_flight=min(max(0, row.in_flight), MOST_REQUESTS),
        waiting=min(max(0, row.waiting), MOST_REQUESTS),
        pending_prefill_tokens=min(max(0, row.pending_prefill_tokens), MOST_TOKENS),
        decoding=min(max(0, row.decoding), MOST_REQUESTS),
        decode_tokens=min(max(0, row.decode_tokens), MOST_TOKENS),
        prefill_share=min(max(0.0, row.prefill_share), 1.0) if row.prefill_share == row.prefill_share else 0.0,
    )
