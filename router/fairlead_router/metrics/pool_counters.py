"""The router's counters for each pool. Counting on the request path is plain arithmetic on these objects."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import Final

from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.targets import instance_of
from fairlead_router.kv_events.metrics import Belief
from fairlead_router.metrics.endings import Outcome

# Under plain names: Python 3.11 takes long to look up a member of an enum.
_DECODE_ONLY: Final = DecisionReason.DECODE_ONLY

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

MOST_TOKENS = 2**24
"""Maximum plausible number of tokens of a request, which is more than any model's context length. A larger reported
number is impossible.
"""


class Distribution:
    """A histogram of durations in seconds, with the bounds in BUCKETS."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        rows, running = [], 0
        for bound, count in zip((*(str(b) for b in BUCKETS), "+Inf"), self.counts, strict=True):
            running += count
            rows.append((bound, float(running)))
        return rows


class ClassCounters:
    """Counters of the requests of one priority class."""

    __slots__ = ("refused", "submitted", "ttft")

    def __init__(self) -> None:
        self.submitted = 0
        self.refused = 0
        self.ttft = Distribution()


class PoolCounters:
    """Counters of one pool since the router started."""

    __slots__ = (
        "beliefs",
        "canaries",
        "cancelled",
        "carried",
        "carrying",
        "classes",
        "decode_only",
        "direct",
        "engine_stalls",
        "failed",
        "handed_over",
        "handed_over_tokens",
        "handover",
        "hit_tokens",
        "implausible_usages",
        "known_prompts",
        "lost_moves",
        "output_tokens",
        "prefill",
        "prompt_tokens",
        "queued",
        "recomputed_tokens",
        "refused",
        "rejected_by_engine",
        "retries",
        "served",
        "submitted",
        "tokenizing",
        "transferred_tokens",
        "transferring",
        "transfers",
        "ttft",
        "uncarried",
        "unfetched",
        "unkept_decisions",
        "upstream_errors",
    )

    def __init__(self) -> None:
        self.submitted = 0
        self.served = 0
        self.failed = 0
        self.cancelled = 0
        self.rejected_by_engine = 0
        self.classes: defaultdict[str, ClassCounters] = defaultdict(ClassCounters)
        """Counters by priority class, for a pool that declares classes."""
        self.direct: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.retries = 0
        self.upstream_errors: Counter[str] = Counter()
        self.carried: Counter[str] = Counter()
        """Number of broken-off responses that another instance continued, by the reason why they broke off."""
        self.uncarried: Counter[str] = Counter()
        """Number of broken-off responses that were not continued, by the obstacle."""
        self.recomputed_tokens = 0
        self.handed_over: Counter[str] = Counter()
        """Number of sessions whose instance leaves and whose prompts another instance was asked to compute in advance,
        by outcome (`warmed` or `failed`).
        """
        self.handed_over_tokens = 0
        self.carrying = Distribution()
        """Seconds from the moment at which a response broke off to its next piece from another instance."""
        self.prompt_tokens = 0
        self.hit_tokens = 0
        self.output_tokens = 0
        self.implausible_usages = 0
        self.engine_stalls = 0
        self.canaries: Counter[str] = Counter()
        self.lost_moves = 0
        self.decode_only: Counter[str] = Counter()
        self.unfetched = 0
        self.unkept_decisions = 0
        self.beliefs: defaultdict[tuple[str, str], Belief] = defaultdict(Belief)
        """Predicted and reported cached tokens, by instance and by the basis of the prediction: `events`, `expected` or
        `history`.
        """
        self.known_prompts: Counter[str] = Counter()
        """Number of requests to a pool with KV events, by the part of the prompt's tokens that was known on arrival."""
        self.tokenizing: Counter[str] = Counter()
        """Number of prompts that engines were asked to tokenize, by outcome."""
        self.transfers: Counter[str] = Counter()
        """Number of attempts to fetch KV blocks from another instance, by outcome (`CacheFate`)."""
        self.transferred_tokens = 0
        self.transferring = Distribution()
        self.prefill = Distribution()
        self.handover = Distribution()
        self.ttft = Distribution()
        self.queued = Distribution()

    def count_end(self, outcome: Outcome) -> None:
        """Count a request's end by its outcome. Refusals are also counted by reason (`refused`)."""
        match outcome:
            case Outcome.SERVED:
                self.served += 1
            case Outcome.FAILED:
                self.failed += 1
            case Outcome.CANCELLED:
                self.cancelled += 1
            case Outcome.REJECTED_BY_ENGINE:
                self.rejected_by_engine += 1
            case Outcome.REFUSED:
                pass

    def plausible(self, tokens: int | None) -> int | None:
        """Return the token count that an engine reported. If the count is impossible, return None and add one to
        `implausible_usages`.
        """
        if tokens is None or 0 <= tokens <= MOST_TOKENS:
            return tokens
        self.implausible_usages += 1
        return None

    def count_transfer(self, transfer: CacheTransfer) -> None:
        """Count an attempt to move KV blocks from one instance to another."""
        self.transfers[transfer.fate.value] += 1
        self.transferred_tokens += transfer.tokens
        if transfer.fate is CacheFate.MOVED:
            self.transferring.observe(transfer.seconds)

    def count_decode_only(self, dispatch: Dispatch) -> None:
        """Count a dispatched request if a decode instance also computes its prompt."""
        if dispatch.reason is _DECODE_ONLY:
            self.decode_only["no-prefill" if dispatch.request.divisible else "indivisible"] += 1

    def compare(self, dispatch: Dispatch, cached_tokens: int) -> None:
        """Count the difference between the cached tokens that the router predicted and the cached tokens that the
        engine reported.

        Skips a prompt that another instance computed, or for which another instance sent KV blocks, because the engine
        then reports the received blocks as cached.
        """
        if dispatch.decode is None and not dispatch.transfer_tokens:
            basis = "expected" if dispatch.by_guess else "events" if dispatch.by_events else "history"
            self.beliefs[instance_of(dispatch.instance), basis].compare(dispatch.hit_tokens, cached_tokens)
