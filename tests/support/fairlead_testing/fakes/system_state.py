"""The control API's side of the internal protocol, kept in memory: the state behind `FakeSystemApi`.

It decides by the rules of the real API: which router wins a session, what a table contains, when a state is outdated.
It keeps the rows that Postgres would keep, but no audit, history, metrics or other data that neither routers nor
operators see. `tests/contract/seams` runs the same cases against it and the real API.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.binding_races import Held, Verdict, judge, next_version
from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.instances import InstanceState
from fairlead.pool_states import HeldPools, InstanceTrouble, PoolEvent, PoolObservations, PoolState, UnheardPools
from fairlead.pools import parse_spec
from fairlead.reports.batches import Report, ReportReceipt, RouterGone
from fairlead.reports.bindings import Binding, BindingChange
from fairlead.reports.engines import EngineMemory
from fairlead.reports.predictors import SharedModel, TrainedModel
from fairlead.reports.shares import PoolShare, share_of_others
from fairlead.scaling.decisions import ScalingDecisionRecord
from fairlead.table_content import MirroredFacts, changed_entries, table_of
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api.pools.fixed_engines import engines_file
from fairlead_api.pools.mirroring import InstanceFacts, PoolUseView, RouterView, Traffic, check_state, is_outdated, observations
from fairlead_api.reports.ingestion import check_envelopes
from fairlead_client.lines import (
    BindingsLine,
    GatewayKeysLine,
    KeptSession,
    KeptSessionsLine,
    OthersLine,
    PoolDeletedLine,
    StreamLine,
    SyncedLine,
    TableLine,
)

BINDINGS_PER_LINE = 500


class SaidNo(Exception):
    """A refusal of a call, with its HTTP status. `kind` is the type of the problem document."""

    def __init__(self, status: int, kind: str, detail: str) -> None:
        self.status = status
        self.kind = kind
        super().__init__(detail)


@dataclass(slots=True, kw_only=True)
class Pretence:
    """Values that a test sends to operators instead of the values from routers' reports. Where a value is None or
    absent, operators get the value from the reports.
    """

    acknowledges: bool | None = None
    live_routers: int | None = None
    """The number of live routers, which routers are sent too; None to count those that report."""
    in_flight: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)


class SystemState:
    """The state that the operator and routers have sent, and the answers that follow from it.

    `tell` gets each stream line with a change, as routers do.
    """

    def __init__(self, tell: Callable[[StreamLine], None] = lambda line: None) -> None:
        self.tell = tell
        self.pretence = Pretence()
        self.states: dict[PoolKey, PoolState] = {}
        self.transitions: dict[str, list[str]] = {}
        """For each instance of any pool, the states in which it was reported, without repetitions."""
        self.events: list[PoolEvent] = []
        self.scaling_decisions: dict[str, ScalingDecisionRecord] = {}
        """Every scaling decision once, by its id."""
        self.models: dict[PoolKey, list[TrainedModel]] = {}
        """The models of each pool, oldest first."""
        self.deleted: list[PoolKey] = []
        self.tables: dict[PoolKey, RoutingTable] = {}
        self.known_engines: dict[PoolKey, EngineMemory] = {}
        """The known facts of each pool's engines that are sent with its table, if a test sets them."""
        self.bindings: dict[tuple[PoolKey, str], Binding] = {}
        self.gateway_keys: tuple[GatewayKeyFacts, ...] = ()
        self.kept_sessions: tuple[KeptSession, ...] = ()
        self.reports: dict[str, Report] = {}
        """Every report once, by its id."""
        self.received = 0
        """The number of received reports, including repeated ones."""
        self.gone: list[RouterGone] = []
        self._facts: dict[PoolKey, MirroredFacts] = {}
        self._versions: dict[PoolKey, int] = {}
        self._entry_versions: dict[PoolKey, dict[str, int]] = {}
        self._ended: dict[PoolKey, set[str]] = {}
        self._live: dict[str, Report] = {}
        self._heard_at: dict[PoolKey, float] = {}

    # ── what operators tell ──

    def take_state(self, pool: PoolKey, state: PoolState) -> PoolObservations:
        """Store the operator's state of a pool and return the observations for the operator. Raises SaidNo and
        InvalidInput.
        """
        check_state(state)
        facts = MirroredFacts.of(parse_spec(state.spec)) if state.problem is None else None
        known = self.states.get(pool)
        if state.uid in self._ended.get(pool, ()):
            kind = "pool-deleted" if known is None else "pool-replaced"
            raise SaidNo(409, kind, "this object was deleted")
        if known is not None and known.uid != state.uid:
            self._end(pool)
        elif known is not None and (why := is_outdated((known.uid, known.generation, known.resource_version), state)) is not None:
            raise SaidNo(409, "conflict", why)
        if known is not None:
            self._unbind_gone(pool, known, state)
        self.states[pool] = state
        self._heard_at[pool] = time.monotonic()
        for decision in state.scaling_decisions:
            self.scaling_decisions.setdefault(decision.id, decision)
        for instance in state.instances:
            seen = self.transitions.setdefault(instance.id, [])
            if not seen or seen[-1] != instance.state:
                seen.append(instance.state.value)
        if facts is not None:
            self._facts[pool] = facts
        if pool in self._facts:
            self._renew_table(pool, state, self._facts[pool])
        return self.observe(pool)

    def take_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> None:
        """Store events of a pool, each once. Raises SaidNo if the pool is unknown."""
        if pool not in self.states:
            raise SaidNo(404, "not-found", f"pool {pool} is not known")
        self.events += [event for event in events if event not in self.events]

    def take_model(self, model: TrainedModel) -> None:
        """Store a model once. Raises SaidNo if its pool is unknown."""
        models = self._models_of(model.pool)
        if all(known.id != model.id for known in models):
            models.append(model)

    def newest_model(self, pool: PoolKey) -> SharedModel:
        """Return the pool's newest model, or an empty one. Raises SaidNo if the pool is unknown."""
        models = self._models_of(pool)
        return SharedModel(version=len(models), content=models[-1].content) if models else SharedModel()

    def _models_of(self, pool: PoolKey) -> list[TrainedModel]:
        if pool not in self.states:
            raise SaidNo(404, "not-found", f"pool {pool} is not known")
        return self.models.setdefault(pool, [])

    def delete_pool(self, pool: PoolKey) -> None:
        """Remove the pool, its table and its bindings. If the pool is created again, its table versions continue."""
        if pool in self.states:
            self._end(pool)
            del self.states[pool]
        self.deleted.append(pool)
        self.tables.pop(pool, None)
        self.tell(PoolDeletedLine(pool=pool))

    def _end(self, pool: PoolKey) -> None:
        """Remove the table, facts and bindings of the pool's present object, and remember that this object was
        deleted.
        """
        self._ended.setdefault(pool, set()).add(self.states[pool].uid)
        self._facts.pop(pool, None)
        self._entry_versions.pop(pool, None)
        self.tables.pop(pool, None)
        for key in [key for key in self.bindings if key[0] == pool]:
            del self.bindings[key]

    def _renew_table(self, pool: PoolKey, state: PoolState, facts: MirroredFacts) -> None:
        content = table_of(
            pool, state.uid, state.generation, facts.table, state.instances, state.outlook, state.opens_at, objectives=state.objectives
        )
        before = self.tables.get(pool)
        if before is None or replace(before, version=0, generation=0) != replace(content, generation=0):
            version = self._versions.get(pool, 0) + 1
            for name in changed_entries(before, content):
                self._entry_versions.setdefault(pool, {})[name] = version
            self.set_table(replace(content, version=version))

    def _unbind_gone(self, pool: PoolKey, before: PoolState, after: PoolState) -> None:
        """Clear the bindings to instances that are gone. Routers are not informed."""
        there = {item.id for item in after.instances if item.state is not InstanceState.GONE}
        gone = {item.id for item in before.instances} - there
        for key, binding in self.bindings.items():
            if key[0] == pool and binding.instance in gone:
                self.bindings[key] = replace(binding, instance=None)

    def observe(self, pool: PoolKey) -> PoolObservations:
        """Return the observations of the pool that the operator gets."""
        state, pretence = self.states[pool], self.pretence
        table = self.tables.get(pool)
        found = observations(
            table.version if table is not None else 0,
            [_view(report, pool) for report in self._live.values()],
            [
                InstanceFacts(
                    id=instance.id,
                    table_version=self._entry_versions.get(pool, {}).get(instance.id, 0),
                    bound_sessions=pretence.sessions.get(instance.id, self._bound(pool, instance.id)),
                    cache_tokens=0,
                )
                for instance in state.instances
            ],
            Traffic(),
        )
        return self._pretended(found)

    def held_pools(self) -> HeldPools:
        """Return the pools for which routers hold requests."""
        held = {use.pool for report in self._live.values() for use in report.use if use.held_requests}
        return HeldPools(pools=tuple(pool for pool in self.states if pool in held))

    def unheard_pools(self, seconds: float) -> UnheardPools:
        """Return the pools whose state was last received `seconds` ago or earlier; pools of `fairlead serve` are left
        out.
        """
        before = time.monotonic() - seconds
        of_clusters = (pool for pool, state in self.states.items() if engines_file(state.annotations) is None)
        return UnheardPools(pools=tuple(pool for pool in of_clusters if self._heard_at[pool] <= before))

    def _bound(self, pool: PoolKey, instance: str) -> int:
        return sum(binding.instance == instance for (of, _), binding in self.bindings.items() if of == pool)

    def _pretended(self, found: PoolObservations) -> PoolObservations:
        pretence = self.pretence
        instances = tuple(replace(item, in_flight=pretence.in_flight.get(item.id, item.in_flight)) for item in found.instances)
        if pretence.acknowledges is not None:
            instances = tuple(replace(item, acknowledged=pretence.acknowledges) for item in instances)
            found = replace(found, table_acknowledged=pretence.acknowledges)
        if pretence.live_routers is not None:
            found = replace(found, live_routers=pretence.live_routers)
        return replace(found, instances=instances)

    # ── what routers tell ──

    def take_reports(self, reports: Sequence[Report]) -> tuple[ReportReceipt, ...]:
        """Store a router's reports and return a receipt for each. Raises InvalidInput."""
        check_envelopes(reports)
        self.received += len(reports)
        state = reports[0]
        known = self._live.get(state.router)
        if known is None or known.sent_at <= state.sent_at:
            self._live[state.router] = state
        routers = None
        if state.asked_at is not None:
            routers = {name: live.asked_at for name, live in sorted(self._live.items()) if live.asked_at is not None}
        live = len(self._live) if self.pretence.live_routers is None else self.pretence.live_routers
        return tuple(
            replace(self._take(report), live_routers=live, routers=None if number else routers) for number, report in enumerate(reports)
        )

    def _take(self, report: Report) -> ReportReceipt:
        if report.id in self.reports:
            return ReportReceipt(id=report.id, duplicate=True)
        self.reports[report.id] = report
        lost = {change.id: current for change in report.bindings if (current := self._write(change, report.router)) is not None}
        return ReportReceipt(id=report.id, duplicate=False, conflicts=tuple(lost.values()), lost=tuple(lost))

    def _write(self, change: BindingChange, router: str) -> Binding | None:
        """Store a session's binding if the change wins; the first writer wins. Return the present binding for a change
        that lost.
        """
        current = self.bindings.get((change.pool, change.session))
        held = Held(instance=None, version=0, router="")
        if current is not None:
            held = Held(instance=current.instance, version=current.version, router=router, change=current.change, rank=current.rank)
        verdict = judge(change, held)
        if verdict is Verdict.BIND:
            self.set_binding(
                Binding(
                    pool=change.pool,
                    session=change.session,
                    instance=change.instance,
                    rank=change.rank,
                    version=next_version(change, held),
                    reason=change.reason,
                    bound_at=change.at,
                    migrated_at=None if current is None else change.at,
                    context_tokens=change.context_tokens,
                    change=change.id,
                )
            )
        return current if verdict is Verdict.CONFLICT else None

    def forget_router(self, gone: RouterGone) -> None:
        """Forget a router until it reports again."""
        self.gone.append(gone)
        self._live.pop(gone.router, None)

    def stored(self, name: str) -> list[Any]:
        """Return all records of a field of Report, in the order in which their reports arrived."""
        return [record for report in self.reports.values() for record in getattr(report, name)]

    # ── what routers hear ──

    def others_of(self, router: str) -> Iterator[OthersLine]:
        """Yield the lines that report to the router the other routers' shares, one for each pool whose work it shares
        with others.
        """
        by_pool: dict[PoolKey, dict[str, tuple[PoolShare, float]]] = {}
        for name, report in self._live.items():
            for share in report.shares:
                by_pool.setdefault(share.pool, {})[name] = (share, 0.0)
        for pool, shares in by_pool.items():
            if router in shares and len(shares) > 1:
                yield OthersLine(share=share_of_others(router, pool, shares))

    def set_table(self, table: RoutingTable) -> None:
        """Set the pool's table from now on, regardless of the operator's states, and send it to routers."""
        self.tables[table.pool] = table
        self._versions[table.pool] = max(table.version, self._versions.get(table.pool, 0))
        self.tell(TableLine(table=table, known=self.known_engines.get(table.pool)))

    def set_binding(self, binding: Binding) -> None:
        """Bind the session from now on, regardless of routers' reports, and send the binding to routers."""
        self.bindings[binding.pool, binding.session] = binding
        self.tell(BindingsLine(bindings=(binding,)))

    def set_gateway_keys(self, *keys: GatewayKeyFacts) -> None:
        """Set the gateway's keys from now on."""
        self.gateway_keys = keys
        self.tell(GatewayKeysLine(keys=keys))

    def set_kept_sessions(self, *sessions: KeptSession) -> None:
        """Keep all decisions of these sessions from now on."""
        self.kept_sessions = sessions
        self.tell(KeptSessionsLine(sessions=sessions))

    def snapshot(self) -> Iterator[StreamLine]:
        """Yield the lines that a router gets first."""
        yield GatewayKeysLine(keys=self.gateway_keys, begins=True)
        yield KeptSessionsLine(sessions=self.kept_sessions)
        for pool in self._ended.keys() - self.tables.keys():
            yield PoolDeletedLine(pool=pool)
        for table in self.tables.values():
            yield TableLine(table=table, known=self.known_engines.get(table.pool))
        known = tuple(binding for binding in self.bindings.values() if binding.instance is not None)
        for start in range(0, len(known), BINDINGS_PER_LINE):
            yield BindingsLine(bindings=known[start : start + BINDINGS_PER_LINE])
        yield SyncedLine()


def _view(report: Report, pool: PoolKey) -> RouterView:
    acknowledged = next((item.version for item in report.acknowledged if item.pool == pool), None)
    work = {row.instance: row.in_flight for row in report.in_flight if row.pool == pool}
    used = next((row for row in report.use if row.pool == pool), None)
    use = None
    if used is not None:
        held, tokens = used.held_requests, used.held_prompt_tokens
        use = PoolUseView(held_requests=held, held_prompt_tokens=tokens, idle_seconds=used.idle_seconds)
    troubled = tuple(
        InstanceTrouble(instance=row.instance, trouble=row.trouble, words=row.words, seconds=row.seconds)
        for row in report.troubled_engines
        if row.pool == pool
    )
    return RouterView(acknowledged=acknowledged, in_flight=work, use=use, troubled_engines=troubled)
