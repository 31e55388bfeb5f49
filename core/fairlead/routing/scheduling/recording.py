"""Recording: the records of a scheduler's actions, kept in bounded memory until they are taken for a report.

Bindings and migrations are the audit trail. `kept_decisions` selects the decisions to keep. Refusals are counted per
second. If too many records wait to be taken, further records are dropped and counted.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from xxhash import xxh3_128_hexdigest

from fairlead.reports.bindings import BindingChange
from fairlead.reports.moves import CacheTransfer, MigrationOutcome, MigrationRecord, MoveOutcome, ReRouteRecord, with_transfer
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.schedulers import Refusal, SchedulerRecords
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.canaries import CanarySamples
from fairlead.routing.scheduling.kept_decisions import KeptDecisions
from fairlead.routing.scheduling.load_samples import LoadSeconds
from fairlead.routing.scheduling.slo_samples import SloSeconds
from fairlead.tables import PoolKey

M = TypeVar("M", MigrationRecord, ReRouteRecord)


class _Moves(Generic[M]):
    """Moves of one kind (migrations or re-routes) that were not taken yet. Also the outcomes of moves that were taken
    before their outcome was known.
    """

    def __init__(self) -> None:
        self._records: dict[str, M] = {}
        self._outcomes: list[MigrationOutcome] = []

    def add(self, record: M, carried: list[str], limit: int) -> bool:
        """Add a move. If there are already `limit` moves, do not add it and return False."""
        if len(self._records) >= limit:
            return False
        self._records[record.id] = record
        carried.append(record.id)
        return True

    def settle(
        self,
        carried: list[str],
        pool: PoolKey,
        outcome: MoveOutcome,
        ttft_seconds: float | None,
        transfer: CacheTransfer | None,
        limit: int,
    ) -> int:
        """Add the outcome to the moves whose ids are in `carried`, and empty `carried`. If a move was already taken,
        its outcome is kept separately. Return the number of outcomes that could not be kept.
        """
        lost = 0
        for move in carried:
            record = self._records.get(move)
            if record is not None:
                became = replace(record, actual_ttft_seconds=ttft_seconds, outcome=outcome)
                self._records[move] = became if transfer is None else with_transfer(became, transfer)
            elif len(self._outcomes) >= limit:
                lost += 1
            else:
                self._outcomes.append(
                    MigrationOutcome(id=move, pool=pool, actual_ttft_seconds=ttft_seconds, outcome=outcome, transfer=transfer)
                )
        carried.clear()
        return lost

    def take(self) -> tuple[tuple[M, ...], tuple[MigrationOutcome, ...]]:
        taken = tuple(self._records.values()), tuple(self._outcomes)
        self._records, self._outcomes = {}, []
        return taken


class Recorder:
    """The records of one pool in one router.

    `limit` is the maximum number of records of each kind that wait for a call of `take`. Ids are unique as long as no
    two schedulers have the same router and seed.
    """

    def __init__(
        self,
        pool: PoolKey,
        router_id: str,
        seed: int,
        sample_rate: float,
        limit: int = 50_000,
        *,
        load_samples: bool = True,
        decisions: bool = True,
    ) -> None:
        self._pool = pool
        self._id_prefix = f"{pool}/{router_id}/{seed}/"
        self._issued = 0
        self._changes_issued = 0
        self._limit = limit
        self._bindings: list[BindingChange] = []
        self._migrations = _Moves[MigrationRecord]()
        self._reroutes = _Moves[ReRouteRecord]()
        self._rejections: dict[tuple[int, RejectionReason, int, str], RejectionRecord] = {}
        self._dropped = 0
        self.decisions = KeptDecisions(pool, sample_rate, limit, wanted=decisions)
        self.loads = LoadSeconds(pool, limit, kept=load_samples)
        self.slo = SloSeconds(pool, limit, kept=load_samples)
        self.canary = CanarySamples(pool, limit)

    def pause(self) -> None:
        """Record only arrivals and this router's own refusals from now on, because another router records served
        requests.
        """
        self.loads.pause()
        self.slo.pause()

    def resume(self) -> None:
        """Record everything again."""
        self.loads.resume()
        self.slo.resume()

    def new_id(self) -> str:
        """Return a new id: 32 hexadecimal digits."""
        self._issued += 1
        return xxh3_128_hexdigest(f"{self._id_prefix}{self._issued}".encode())

    def new_change_id(self) -> str:
        """Return a new id for a binding change. If the change moves a session, the id is also the id of the migration.

        These ids have a separate counter, because ids of decisions determine which decisions are sampled. So the number
        of binding changes does not affect the sample.
        """
        self._changes_issued += 1
        return xxh3_128_hexdigest(f"{self._id_prefix}change/{self._changes_issued}".encode())

    def bound(self, change: BindingChange) -> None:
        """Record a new binding of a session, or a change of its binding."""
        if len(self._bindings) >= self._limit:
            self._dropped += 1
            return
        self._bindings.append(change)

    def migrated(self, record: MigrationRecord, tracked: TrackedRequest) -> None:
        """Record that a session moved together with the request `tracked`; the request's outcome becomes the outcome of
        the move.
        """
        tracked.moved = True
        self._dropped += not self._migrations.add(record, tracked.migrations, self._limit)

    def rerouted(self, record: ReRouteRecord, tracked: TrackedRequest) -> None:
        """Record that `tracked` was moved to another instance while its session stayed bound to its instance."""
        tracked.moved = True
        self._dropped += not self._reroutes.add(record, tracked.reroutes, self._limit)

    def copied(self, record: ReRouteRecord) -> None:
        """Record that a prefix was copied, or that the copy failed. The record must already have its outcome."""
        self._dropped += not self._reroutes.add(record, [], self._limit)

    def settle_moves(self, tracked: TrackedRequest, outcome: MoveOutcome, ttft_seconds: float | None = None) -> None:
        """Record the outcome of the moves that were made for the request."""
        if not (tracked.migrations or tracked.reroutes):
            return
        for moves, carried in ((self._migrations, tracked.migrations), (self._reroutes, tracked.reroutes)):
            if carried:
                self._dropped += moves.settle(carried, self._pool, outcome, ttft_seconds, tracked.transfer, self._limit)

    def refused(self, refusal: Refusal, now: float) -> None:
        """Record a refusal. Refusals are counted by second, reason, status and priority class."""
        key = (int(now), refusal.reason, refusal.status, refusal.request.priority_class)
        known = self._rejections.get(key)
        if known is not None:
            self._rejections[key] = replace(known, count=known.count + 1)
        elif len(self._rejections) >= self._limit:
            self._dropped += 1
        else:
            self._rejections[key] = RejectionRecord(
                pool=self._pool,
                second=int(now),
                reason=refusal.reason,
                count=1,
                status=refusal.status,
                sample_request=refusal.request.id,
                sample_prompt_tokens=refusal.request.prompt_tokens,
                retry_after_seconds=refusal.retry_after_seconds,
                predicted_ttft_seconds=refusal.predicted_ttft_seconds,
                priority_class=refusal.request.priority_class,
            )

    def take(self, loads: Mapping[str, InstanceLoad], now: float, *, samples: bool, final: bool) -> SchedulerRecords:
        """Return all records made since the last call. Without `samples`, return only bindings, moves, refusals and
        counts of dropped records. Counts of the current second are included only if `final` is True.
        """
        migrations, migration_outcomes = self.take_migrations()
        reroutes, reroute_outcomes = self.take_reroutes()
        return SchedulerRecords(
            bindings=self.take_bindings(),
            migrations=migrations,
            migration_outcomes=migration_outcomes,
            reroutes=reroutes,
            reroute_outcomes=reroute_outcomes,
            decisions=self.decisions.take() if samples else (),
            rejections=self.take_rejections(now, final=final),
            loads=self.loads.take(loads, now, final=final) if samples else (),
            arrivals=self.loads.take_arrivals(now, final=final) if samples else (),
            slo_samples=self.slo.take(now, final=final) if samples else (),
            canary_samples=self.canary.take() if samples else (),
            dropped=self.take_dropped(),
            traced=self.decisions.take_traced() if samples else (),
            unkept_decisions=self.decisions.take_unkept(),
        )

    def take_bindings(self) -> tuple[BindingChange, ...]:
        """Return the binding changes made since the last call, in order."""
        taken, self._bindings = tuple(self._bindings), []
        return taken

    def take_migrations(self) -> tuple[tuple[MigrationRecord, ...], tuple[MigrationOutcome, ...]]:
        """Return the session migrations made since the last call, and the outcomes of migrations that were returned
        earlier.
        """
        return self._migrations.take()

    def take_reroutes(self) -> tuple[tuple[ReRouteRecord, ...], tuple[MigrationOutcome, ...]]:
        """Return the re-routes made since the last call, and the outcomes of re-routes that were returned earlier."""
        return self._reroutes.take()

    def take_rejections(self, now: float, *, final: bool) -> tuple[RejectionRecord, ...]:
        """Return the refusals of finished seconds; with `final`, also the refusals of the current second."""
        second = int(now)
        ready = [key for key in self._rejections if key[0] < second or final]
        return tuple(self._rejections.pop(key) for key in ready)

    def take_dropped(self) -> int:
        """Return the number of records that were dropped since the last call."""
        dropped = self._dropped + self.loads.dropped + self.slo.dropped + self.canary.dropped
        self._dropped = self.loads.dropped = self.slo.dropped = self.canary.dropped = 0
        return dropped
