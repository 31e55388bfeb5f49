"""Migrations and re-routes: moves of sessions and requests between instances, with the prediction and the result.

Whether a move was faster than staying is computed by the database (`fairlead_api.moves.tables.PAID_OFF`).
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from fairlead.reports.bindings import BindingReason
from fairlead.reports.generic import Pool, Time
from fairlead.reports.units import Unit
from fairlead.tables import PoolKey
from fairlead.targets import target_of
from fairlead.values import value


@value
class MoveCause:
    """The cause of a move of a session or request: the trigger, the deciding figure, and the `threshold` that this
    figure exceeded. Both numbers are None if no figure decided.

    Their meaning follows from the trigger and the unit. `slo`: the TTFT predicted for staying, and the target ·
    `hot-migration`: the pending work at the source (or the TTFT predicted for staying), and the limit from which an
    instance is hot · `prefix-equal`: the pending work (or cost) at the source, and at the target · `prefix-affinity`:
    the prompt tokens held by the target, and by the source · `prefix-outweighed`: the cost of staying, and of moving ·
    `best-score`: the score of the target, and of the source · `hotspot`: the time that the source's queue took, and the
    TTFT target (or the pending work, and the limit) · `queue-full`: the number of waiting requests, and the limit ·
    `prefix-copied`: the seconds of computing that the copy was expected to save, and the sum of its predicted transfer
    time and the least gain.
    """

    trigger: BindingReason
    crossed: float | None = None
    threshold: float | None = None
    unit: Unit | None = None


class MoveOutcome(StrEnum):
    """The outcome of the request with which a session moved. The outcome is `underway` until the request has got its
    first token or has ended without one.
    """

    UNDERWAY = "underway"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class CacheFate(StrEnum):
    """The result of an attempt to bring KV blocks to another instance. Unless the result is `moved`, the target
    computes the blocks itself.
    """

    MOVED = "moved"
    UNNAMED = "unnamed"
    """The source computed the prompt but did not name its KV blocks, because no connector is configured there."""
    REFUSED = "refused"
    """The source or the target responded with an error."""
    LOST = "lost"
    """The source or the target did not respond, or broke the transfer off."""
    LATE = "late"
    """The transfer took longer than the allowed time."""


@value
class CacheTransfer:
    """The transfer of KV blocks from one instance to another, or the reason why there was none. Times are in seconds.

    `tokens` is the number of tokens whose blocks the target lacked and received; `bytes` is the size of their KV
    blocks, estimated from the transfers that engines counted before, None without such counts. `predicted_seconds` is
    None without a prediction.
    """

    fate: CacheFate
    seconds: float
    tokens: int = 0
    bytes: int | None = None
    predicted_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Generic[Pool, Time]):
    """The fields that a session migration and a re-route share, in routers' reports and in the public API.

    `predicted_source_ttft_seconds` and `predicted_target_ttft_seconds` were predicted at decision time for the request
    that carried the move; `benefit_seconds` is their difference. All three are None if nothing could be predicted,
    because the source is gone or no request carried the move. `actual_ttft_seconds` is the real TTFT of that request,
    None until it is known.

    `trigger` is the reason for the move, and `crossed` (with `threshold`, in `crossed_unit`) the figure that decided:
    see `MoveCause`. The hits are prompt tokens that source and target were assumed to hold at decision time, None if
    unknown, as in moves of earlier releases. `least_gain_seconds` is the benefit that the policy required at the time,
    None if it required none.

    `cache` is the outcome of the transfer of KV blocks from source to target, and `transfer_seconds` the request's wait
    for the transfer; both are None if no transfer was tried. The target lacked tokens, of which `tokens_moved` were
    transferred and `tokens_recomputed` were not. `transfer_bytes` is None if engines have not counted any bytes yet.
    With `handed_over`, no client's request carried the move; the router itself sent the session's last prompt to the
    target, as the source was being removed.

    `source_rank` and `target_rank` are data-parallel ranks, None for instances with a single one; a session may move
    from one rank of an instance to another. Subclasses declare `pool` and `at` again with their types, since the
    OpenAPI document cannot express type variables.
    """

    id: str
    pool: Pool
    session: str | None
    request: str | None
    source: str
    target: str
    trigger: BindingReason
    at: Time
    predicted_source_ttft_seconds: float | None
    predicted_target_ttft_seconds: float | None
    benefit_seconds: float | None
    """TTFT predicted for staying minus TTFT predicted for moving; negative if the move was predicted to cost time."""
    actual_ttft_seconds: float | None = None
    tokens_moved: int = 0
    tokens_recomputed: int = 0
    outcome: MoveOutcome = MoveOutcome.UNDERWAY
    source_rank: int | None = None
    target_rank: int | None = None
    crossed: float | None = None
    threshold: float | None = None
    crossed_unit: Unit | None = None
    source_hit_tokens: int | None = None
    target_hit_tokens: int | None = None
    least_gain_seconds: float | None = None
    cache: CacheFate | None = None
    transfer_seconds: float | None = None
    predicted_transfer_seconds: float | None = None
    transfer_bytes: int | None = None
    handed_over: bool = False

    @property
    def origin(self) -> str:
        """The instance from which the session or request came, or one of the instance's ranks by name
        (`fairlead.targets`).
        """
        return target_of(self.source, self.source_rank)

    @property
    def destination(self) -> str:
        """The instance or rank to which the session or request went, named as in `origin`."""
        return target_of(self.target, self.target_rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRecord(Move[PoolKey, float]):
    """A session migration: the binding of a session moved to another instance, with a new or a queued request.

    It has the id of its BindingChange and is sent in the same report; the API stores it only if that change wins.
    """

    pool: PoolKey
    at: float
    session: str
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRouteRecord(Move[PoolKey, float]):
    """A re-route: a request that was queued at one instance, or already sent to it, went to another instance. With the
    trigger `prefix-copied`, a shared prefix was copied without a client's request; `request` is then the id of the
    copy.

    No session's binding moved; `session` is only the session that the request named.
    """

    pool: PoolKey
    at: float
    request: str


AnyRecord = TypeVar("AnyRecord", MigrationRecord, ReRouteRecord)


def with_transfer(move: AnyRecord, transfer: CacheTransfer) -> AnyRecord:
    """Return the record of a move with the result of the transfer of its KV blocks filled in."""
    lacking = move.tokens_moved + move.tokens_recomputed
    moved = min(transfer.tokens, lacking)
    return replace(
        move,
        tokens_moved=moved,
        tokens_recomputed=lacking - moved,
        cache=transfer.fate,
        transfer_seconds=transfer.seconds,
        predicted_transfer_seconds=transfer.predicted_seconds,
        transfer_bytes=transfer.bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOutcome:
    """The result of an earlier MigrationRecord or ReRouteRecord: the real TTFT of its request, or why it had none, and
    the transfer of its KV blocks (`transfer`; None if no transfer was tried).
    """

    id: str
    pool: PoolKey
    actual_ttft_seconds: float | None
    outcome: MoveOutcome
    transfer: CacheTransfer | None = None
