"""What is sent: batches with what is true of the router at that moment, the receipt, and the last word of a router."""

from dataclasses import dataclass, field

from fairlead.reports.arrivals import ArrivalSample
from fairlead.reports.bindings import Binding, BindingChange
from fairlead.reports.decisions import DecisionRecord
from fairlead.reports.engines import KnownCache, LearntFigure, TroubledEngine
from fairlead.reports.key_use import KeyUse
from fairlead.reports.loads import InstanceInFlight, LoadSample, PoolUse
from fairlead.reports.moves import MigrationOutcome, MigrationRecord, ReRouteRecord
from fairlead.reports.objectives import SloSample
from fairlead.reports.rejections import RejectionRecord
from fairlead.reports.shares import PoolShare
from fairlead.reports.traffic import RecordedRequest
from fairlead.tables import PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The table version of a pool this router is routing by."""

    pool: PoolKey
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAddress:
    """The address at which other routers may ask a router to decide for them, and the secret they need.

    Any router that knows the `secret` may ask; only live routers get it, and each process makes a new one. Routers that
    speak another `protocol` do not ask each other.
    """

    host: str
    port: int
    secret: str = field(repr=False)
    protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterState:
    """A router's present state, true at `sent_at`: the tables it uses and its work in progress.

    It does not accumulate since the last report, as a batch does. `use` has every pool that the router serves; a router
    that does not report it has none. `asked_at` is None for a router that others cannot ask. `shares` cover the pools
    for which it decides itself beside others.
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
class ReportBatch:
    """The records of one router since its last batch, as they wait on the router's disk. `id` is unique forever."""

    id: str
    router: str
    bindings: tuple[BindingChange, ...] = ()
    migrations: tuple[MigrationRecord, ...] = ()
    migration_outcomes: tuple[MigrationOutcome, ...] = ()
    reroutes: tuple[ReRouteRecord, ...] = ()
    reroute_outcomes: tuple[MigrationOutcome, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    rejections: tuple[RejectionRecord, ...] = ()
    loads: tuple[LoadSample, ...] = ()
    arrivals: tuple[ArrivalSample, ...] = ()
    slo_samples: tuple[SloSample, ...] = ()
    key_use: tuple[KeyUse, ...] = ()
    traffic: tuple[RecordedRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(ReportBatch):
    """A batch as it is sent, with the fields of RouterState added.

    When one post carries several neighbouring batches, the first has the whole state and the others only `sent_at`.
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
    """The API's answer.

    `lost` are the ids of this report's changes that did not bind, `conflicts` the present bindings of their sessions.
    `live_routers` are all that reported in the last 10 s, the sender among them; None from an API that does not report
    it. `routers` are those of them that can be asked, by name, the sender among them; only in the first receipt of a
    post, and only for a router that can be asked itself, else None.
    """

    id: str
    duplicate: bool
    conflicts: tuple[Binding, ...] = ()
    lost: tuple[str, ...] = ()
    live_routers: int | None = None
    routers: dict[str, AskAddress] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterGone:
    """A router's last message: forget its in-flight counts and do not wait for its acknowledgements."""

    router: str
    at: float
