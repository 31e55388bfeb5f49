"""The messages that routers send: batches, the router's current state, and a router's last report; also the API's
receipt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from fairlead.reports.arrivals import ArrivalSample
from fairlead.reports.bindings import Binding, BindingChange
from fairlead.reports.canaries import CanarySample
from fairlead.reports.decisions import DecisionRecord
from fairlead.reports.engines import KnownCache, LearntFigure, TroubledEngine
from fairlead.reports.key_use import KeyUse
from fairlead.reports.loads import InstanceInFlight, LoadSample, PoolUse
from fairlead.reports.moves import MigrationOutcome, MigrationRecord, ReRouteRecord
from fairlead.reports.objectives import SloSample
from fairlead.reports.rejections import RejectionRecord
from fairlead.reports.shares import PoolShare
from fairlead.reports.traffic import RecordedRequest
from fairlead.reports.usage import PoolUsage
from fairlead.tables import PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The version of a pool's table by which this router routes now."""

    pool: PoolKey
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAddress:
    """The address at which other routers may ask this router to decide for them, and the secret that they must know to
    ask.

    Any router that knows the `secret` may ask. Only live routers get the secret, and each router process creates a new
    secret. Routers with different `protocol` versions do not ask each other.
    """

    host: str
    port: int
    secret: str = field(repr=False)
    protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterState:
    """A router's present state, true at `sent_at`: the tables it uses and its work in progress.

    Unlike a batch, the state is not a sum over the time since the last report. `use` has every pool that the router
    serves. `asked_at` is None for a router that others cannot ask. `shares` cover the pools for which the router
    decides alone although other routers also send requests to them.
    """

    sent_at: float
    acknowledged: tuple[Acknowledgement, ...] = ()
    in_flight: tuple[InstanceInFlight, ...] = ()
    use: tuple[PoolUse, ...] = ()
    troubled_engines: tuple[TroubledEngine, ...] = ()
    known_caches: tuple[KnownCache, ...] = ()
    learnt_figures: tuple[LearntFigure, ...] = ()
    asked_at: AskAddress | None = None
    shares: tuple[PoolShare, ...] = ()


class Cargo(StrEnum):
    """The kind of records in a batch. It decides which batches are dropped first when space runs out."""

    HISTORY = "history"
    SAMPLES = "samples"


class RowTime(StrEnum):
    """The check that the API makes of a row's time when the row arrives.

    Rows of `HISTORY` are kept whatever their age, and an impossible `at` is replaced by the time of arrival. Rows of
    `MOMENT` (with a time `at`), `SECOND` or `MINUTE` are dropped if they are too old or in the future. Rows of `NONE`
    have no time.
    """

    HISTORY = "history"
    MOMENT = "at"
    SECOND = "second"
    MINUTE = "minute"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKind:
    """The handling of the rows in one field of a report: routers' batching, and the API's checks and storage.

    `kept` names the setting of the retention in days: older rows are not stored. `table` is the table, partitioned by
    days, that stores the rows unchanged; empty = the rows are stored differently.
    """

    cargo: Cargo
    time: RowTime
    kept: str = ""
    table: str = ""
    of_schedulers: bool = True
    """Whether the scheduler of each pool records these rows for its own pool; False = the router itself records them.
    """
    of_pools: bool = True


def _rows(cargo: Cargo, time: RowTime, **about: Any) -> Any:
    """Return a field of rows of one kind."""
    return field(default=(), metadata={_KIND: RowKind(cargo=cargo, time=time, **about)})


_KIND = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """The records of one router since its previous batch, as kept on the router's disk until they are acknowledged.
    `id` is globally unique.
    """

    id: str
    router: str
    bindings: tuple[BindingChange, ...] = _rows(Cargo.HISTORY, RowTime.HISTORY)
    migrations: tuple[MigrationRecord, ...] = _rows(Cargo.HISTORY, RowTime.HISTORY)
    migration_outcomes: tuple[MigrationOutcome, ...] = _rows(Cargo.HISTORY, RowTime.NONE)
    reroutes: tuple[ReRouteRecord, ...] = _rows(Cargo.HISTORY, RowTime.HISTORY)
    reroute_outcomes: tuple[MigrationOutcome, ...] = _rows(Cargo.HISTORY, RowTime.NONE)
    decisions: tuple[DecisionRecord, ...] = _rows(Cargo.SAMPLES, RowTime.MOMENT, kept="decisions_days", table="decisions")
    rejections: tuple[RejectionRecord, ...] = _rows(Cargo.HISTORY, RowTime.SECOND, kept="rejections_days", table="rejections")
    loads: tuple[LoadSample, ...] = _rows(Cargo.SAMPLES, RowTime.SECOND, kept="load_samples_days", table="load_samples")
    arrivals: tuple[ArrivalSample, ...] = _rows(Cargo.SAMPLES, RowTime.SECOND, kept="load_samples_days", table="arrivals")
    slo_samples: tuple[SloSample, ...] = _rows(Cargo.SAMPLES, RowTime.SECOND, kept="load_samples_days", table="slo_samples")
    canary_samples: tuple[CanarySample, ...] = _rows(Cargo.SAMPLES, RowTime.MOMENT, kept="load_samples_days", table="canary_samples")
    key_use: tuple[KeyUse, ...] = _rows(Cargo.HISTORY, RowTime.MINUTE, kept="rollups_1m_days", of_schedulers=False, of_pools=False)
    usage: tuple[PoolUsage, ...] = _rows(Cargo.HISTORY, RowTime.MINUTE, kept="cost_days", of_schedulers=False)
    traffic: tuple[RecordedRequest, ...] = _rows(
        Cargo.SAMPLES, RowTime.MOMENT, kept="traffic_days", table="recorded_requests", of_schedulers=False
    )


ROW_KINDS: Mapping[str, RowKind] = MappingProxyType({one.name: one.metadata[_KIND] for one in fields(ReportBatch) if _KIND in one.metadata})
"""The kind of the rows in each field of ReportBatch that contains rows, by the field's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(ReportBatch):
    """A batch as it is sent, with the fields of RouterState added.

    If one post has several consecutive batches, the first batch has the whole state, and the other batches have only
    `sent_at`: the time of sending, by the same clock as the times of the batch's rows.
    """

    sent_at: float
    acknowledged: tuple[Acknowledgement, ...] = ()
    in_flight: tuple[InstanceInFlight, ...] = ()
    use: tuple[PoolUse, ...] = ()
    troubled_engines: tuple[TroubledEngine, ...] = ()
    known_caches: tuple[KnownCache, ...] = ()
    learnt_figures: tuple[LearntFigure, ...] = ()
    asked_at: AskAddress | None = None
    shares: tuple[PoolShare, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReceipt:
    """The API's response to one batch of reports.

    `lost` are the ids of this report's changes that did not bind, `conflicts` the present bindings of their sessions.
    `live_routers` are all routers that reported in the last 10 s (`FAIRLEAD_ROUTER_LIVE_SECONDS`), the sender among
    them; None from an API that does not report it. `routers` are the live routers that can be asked, by name, the
    sender among them. Only the first receipt of a post has `routers`, and only if the receiver can be asked itself;
    otherwise they are None. `at` is the time of the post's arrival, in Unix seconds of the API's clock; None from an
    API that does not report it.
    """

    id: str
    duplicate: bool
    conflicts: tuple[Binding, ...] = ()
    lost: tuple[str, ...] = ()
    live_routers: int | None = None
    routers: dict[str, AskAddress] | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterGone:
    """A router's last message: the API forgets its in-flight counts and no longer waits for its acknowledgements."""

    router: str
    at: float
