"""Accounting: which request counts where, exactly once, from its submission to its end.

A tracked request is in one stage; its tokens are in one instance's counters according to that stage; every change of stage goes through a method
here that takes it out of the old counters and puts it into the new ones. Nothing else writes the counts of an `InstanceLoad`.
"""

from dataclasses import dataclass, field
from enum import Enum

from fairlead.routing.protocols import DecisionReason, InstanceLoad, RoutingRequest


class Stage(Enum):
    """Where an accepted request is."""

    HELD = "held"
    """Counted nowhere: no instance accepts requests at the moment."""
    QUEUED = "queued"
    PREFILLING = "prefilling"
    DECODING = "decoding"


@dataclass(slots=True, kw_only=True)
class TrackedRequest:
    """An accepted request. `instance` is "" while held; `miss_tokens` is what it counts for on that instance."""

    request: RoutingRequest
    submitted_at: float
    stage: Stage = Stage.HELD
    instance: str = ""
    alternate: str | None = None
    fallbacks: tuple[str, ...] = ()
    session: str | None = None
    """The key of its binding, if the policy keeps one for it."""
    decision_id: str = ""
    reason: DecisionReason = DecisionReason.FALLBACK
    hit_tokens: int = 0
    miss_tokens: int = 0
    waiting_since: float = 0.0
    dispatched_at: float | None = None
    first_token_at: float | None = None
    tried: tuple[str, ...] = ()
    moves: list[str] = field(default_factory=list)
    """Ids of the migrations this request carried, whose outcome it will tell."""


class Accounting:
    """Counters of all instances of a pool, and the requests they are made of."""

    def __init__(self) -> None:
        self.loads: dict[str, InstanceLoad] = {}
        self.requests: dict[str, TrackedRequest] = {}

    def admit(self, tracked: TrackedRequest) -> None:
        """Accept a request, counted nowhere yet. Raises ValueError when its id is already in flight."""
        if tracked.request.id in self.requests:
            raise ValueError(f"request {tracked.request.id!r} is already in flight")
        self.requests[tracked.request.id] = tracked

    def enqueue(self, tracked: TrackedRequest, instance: str, hit_tokens: int, now: float) -> None:
        """HELD → QUEUED at `instance`, counting its uncached tokens there."""
        assert tracked.stage is Stage.HELD
        load = self.loads[instance]
        tracked.stage = Stage.QUEUED
        tracked.instance = instance
        self._estimate(tracked, hit_tokens)
        load.waiting += 1
        self._add_pending(load, tracked.miss_tokens, now)

    def dispatch(self, tracked: TrackedRequest, hit_tokens: int, now: float) -> None:
        """QUEUED → PREFILLING where it waits, with the hit as it is believed now."""
        assert tracked.stage is Stage.QUEUED
        load = self.loads[tracked.instance]
        before = tracked.miss_tokens
        self._estimate(tracked, hit_tokens)
        tracked.stage = Stage.PREFILLING
        tracked.dispatched_at = now
        load.waiting -= 1
        load.prefilling += 1
        load.dispatched_prefill_tokens += tracked.miss_tokens
        self._add_pending(load, tracked.miss_tokens - before, now)

    def prefilled(self, tracked: TrackedRequest, now: float) -> None:
        """PREFILLING → DECODING: its prompt is computed."""
        assert tracked.stage is Stage.PREFILLING
        load = self.loads[tracked.instance]
        self._leave_prefill(load, tracked)
        tracked.stage = Stage.DECODING
        load.decoding += 1
        load.decode_tokens += tracked.request.prompt_tokens
        load.last_first_token_at = now

    def unplace(self, tracked: TrackedRequest) -> None:
        """Any stage → HELD: out of every counter, still in flight."""
        if tracked.stage is Stage.HELD:
            return
        load = self.loads[tracked.instance]
        if tracked.stage is Stage.QUEUED:
            load.waiting -= 1
            self._remove_pending(load, tracked.miss_tokens)
        elif tracked.stage is Stage.PREFILLING:
            self._leave_prefill(load, tracked)
        else:
            load.decoding -= 1
            load.decode_tokens -= tracked.request.prompt_tokens
        tracked.stage = Stage.HELD
        tracked.instance = ""

    def end(self, tracked: TrackedRequest) -> None:
        """Out of every counter and forgotten."""
        self.unplace(tracked)
        del self.requests[tracked.request.id]

    def in_flight(self, instance: str) -> int:
        """Requests queued for or dispatched to the instance."""
        load = self.loads[instance]
        return load.waiting + load.prefilling + load.decoding

    def _estimate(self, tracked: TrackedRequest, hit_tokens: int) -> None:
        tracked.hit_tokens = hit_tokens
        tracked.miss_tokens = max(1, tracked.request.prompt_tokens - hit_tokens)

    def _add_pending(self, load: InstanceLoad, tokens: int, now: float) -> None:
        load.pending_prefill_tokens += tokens
        if load.prefilling_since is None:
            load.prefilling_since = now

    def _remove_pending(self, load: InstanceLoad, tokens: int) -> None:
        load.pending_prefill_tokens -= tokens
        if not load.pending_prefill_tokens:
            load.prefilling_since = None

    def _leave_prefill(self, load: InstanceLoad, tracked: TrackedRequest) -> None:
        load.prefilling -= 1
        load.dispatched_prefill_tokens -= tracked.miss_tokens
        self._remove_pending(load, tracked.miss_tokens)


def discrepancies(accounting: Accounting) -> tuple[str, ...]:
    """Instances whose counters differ from a fresh count of the tracked requests, in words; empty when accounting is exact."""
    found: list[str] = []
    for instance, load in sorted(accounting.loads.items()):
        here = [tracked for tracked in accounting.requests.values() if tracked.instance == instance]
        queued = [tracked for tracked in here if tracked.stage is Stage.QUEUED]
        prefilling = [tracked for tracked in here if tracked.stage is Stage.PREFILLING]
        decoding = [tracked for tracked in here if tracked.stage is Stage.DECODING]
        dispatched = sum(tracked.miss_tokens for tracked in prefilling)
        counted = {
            "pending_prefill_tokens": dispatched + sum(tracked.miss_tokens for tracked in queued),
            "dispatched_prefill_tokens": dispatched,
            "waiting": len(queued),
            "prefilling": len(prefilling),
            "decoding": len(decoding),
            "decode_tokens": sum(tracked.request.prompt_tokens for tracked in decoding),
        }
        wrong = [f"{name} is {getattr(load, name)}, not {value}" for name, value in counted.items() if getattr(load, name) != value]
        if (load.prefilling_since is None) != (load.pending_prefill_tokens == 0):
            wrong.append(f"prefilling_since is {load.prefilling_since} with {load.pending_prefill_tokens} tokens pending")
        if wrong:
            found.append(f"{instance}: {'; '.join(wrong)}")
    return tuple(found)
