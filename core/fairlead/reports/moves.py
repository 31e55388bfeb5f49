"""Migrations and re-routes: what went from one instance to another, what was predicted, and what came of it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic

from fairlead.reports.bindings import BindingReason
from fairlead.reports.generic import Pool, Time
from fairlead.tables import PoolKey
from fairlead.targets import target_of


class MoveOutcome(StrEnum):
    """The fate of the request that carried a move; `underway` until it got its first token or ended without one."""

    UNDERWAY = "underway"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Generic[Pool, Time]):
    """The fields that a session migration and a re-route share, in routers' reports and in the public API.

    TTFTs are predictions, made at decision time, for the request that carried the move. `benefit_seconds` is their
    difference, negative when leaving was predicted to cost time. All are None where nothing could be predicted,
    because the source is gone or no request carried the move. `actual_ttft_seconds` is that request's real TTFT,
    None until it has one. `source_rank` and `target_rank` are data-parallel ranks, None of instances that compute as
    one; a session may move from one rank of an instance to another. Subclasses declare `pool` and `at` again with
    their types, since the OpenAPI document cannot express type variables.
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
    """Predicted TTFT for staying minus that for moving: negative when the move was predicted to cost time."""
    actual_ttft_seconds: float | None = None
    tokens_moved: int = 0
    tokens_recomputed: int = 0
    outcome: MoveOutcome = MoveOutcome.UNDERWAY
    source_rank: int | None = None
    target_rank: int | None = None

    @property
    def origin(self) -> str:
        """What was left: an instance, or a rank of one by its name (`fairlead.targets`)."""
        return target_of(self.source, self.source_rank)

    @property
    def destination(self) -> str:
        """Where it went, by the same."""
        return target_of(self.target, self.target_rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRecord(Move[PoolKey, float]):
    """A session migration: the home of a bound session moved, at one of its requests or together with a queued one.

    It has the id of its BindingChange and travels in the same report; the API stores it exactly when that change binds.
    """

    pool: PoolKey
    at: float
    session: str
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRouteRecord(Move[PoolKey, float]):
    """A re-route: a request that was queued or already sent to one instance went to another.

    No session's home moved; `session` is only the session that the request named.
    """

    pool: PoolKey
    at: float
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOutcome:
    """The result of an earlier MigrationRecord or ReRouteRecord: the real TTFT of its request, or why it had none."""

    id: str
    pool: PoolKey
    actual_ttft_seconds: float | None
    outcome: MoveOutcome
