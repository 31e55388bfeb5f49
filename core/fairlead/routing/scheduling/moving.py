"""Moving: binds sessions to instances, moves queued requests to other queues, and records each move with the
predictions on which it was based.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypedDict

from fairlead.reports.bindings import GAINING, BindingReason
from fairlead.reports.moves import MigrationRecord, MoveCause, ReRouteRecord
from fairlead.reports.units import Unit
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.policies import QueuedMove
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.building import QueuesInOrder
from fairlead.routing.queues.pending_moves import Departure, PendingMove, Ttfts
from fairlead.routing.scheduling.fetching import bring_along
from fairlead.routing.scheduling.prefill_decode import hit_or_fetched_tokens
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.tables import MIGRATIONS_PAUSED, PoolKey
from fairlead.targets import instance_of, is_part, rank_of


class MoveFacts(TypedDict):
    """Fields that the records of both kinds of moves (session migrations and re-routes) share; see
    `fairlead.reports.moves.Move`.
    """

    id: str
    pool: PoolKey
    request: str
    source: str
    source_rank: int | None
    target: str
    target_rank: int | None
    trigger: BindingReason
    crossed: float | None
    threshold: float | None
    crossed_unit: Unit | None
    at: float
    predicted_source_ttft_seconds: float | None
    predicted_target_ttft_seconds: float
    benefit_seconds: float | None
    tokens_moved: int
    tokens_recomputed: int
    source_hit_tokens: int
    target_hit_tokens: int
    least_gain_seconds: float | None
    handed_over: bool


class Moving:
    """Makes and records moves of sessions and requests. A move that changes a session's binding is a session migration;
    any other move is a re-route.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def settle(self, tracked: TrackedRequest, session: str | None, instance: str, now: float) -> None:
        """Bind the request's session to `instance` if the policy binds sessions and this session is not bound yet."""
        state = self._state
        if session is None or state.policy.keeps_homes is None or state.names.is_shared(session, now):
            return
        tracked.session = session
        home = state.bindings.get(session)
        if home is None or home.instance is None:
            self._bind(tracked, session, instance, BindingReason.COLD, now)
            return
        self.touch_session(session, now, tracked.request.owner)
        asked = state.bindings.arrive(session) if home.instance == instance else None
        if asked is not None:
            tracked.migrations.append(asked)

    def bind(self, tracked: TrackedRequest, session: str | None, instance: str, leave: Callable[[str], Departure], now: float) -> bool:
        """Bind the request's session to `instance`, if the policy binds sessions. A name that several conversations
        share is not bound. Return True if the session left another instance. `leave` is then called with the id of that
        instance and returns the reason.
        """
        state = self._state
        if session is None or not self.leaves_home(session, instance) or state.names.is_shared(session, now):
            self.settle(tracked, session, instance, now)
            return False
        tracked.session = session
        previous = state.bindings.get(session)
        assert previous is not None
        assert previous.instance is not None
        departure = leave(previous.instance)
        left = previous.instance not in state.loads or previous.instance in state.departed
        # what a cache held that is gone is not in view any more; of a request's other attempts nothing was held
        left_tokens = previous.context_tokens if left and not tracked.tried else None
        change = self._bind(tracked, session, instance, departure.cause.trigger, now)
        bring_along(state, tracked, previous.instance, instance, now)
        self._record_migration(change, tracked, session, previous.instance, instance, departure, now, left_tokens)
        return True

    def _bind(self, tracked: TrackedRequest, session: str, instance: str, reason: BindingReason, now: float) -> str:
        state = self._state
        change, request = state.recorder.new_change_id(), tracked.request
        self._report_first(session)
        made = state.bindings.bind(session, instance, reason, now, request.prompt_tokens, change, request.owner)
        if not state.bindings.is_held_back(session):
            state.recorder.bound(made)
        return change

    def _report_first(self, session: str) -> None:
        """Report the first binding of the session, if its report was delayed. This happens before a further change of
        the session is reported.
        """
        first = self._state.bindings.release(session)
        if first is not None:
            self._state.recorder.bound(first)

    def bind_when_sent(self, tracked: TrackedRequest, session: str, room_tokens: int, departure: Departure, now: float) -> None:
        """Record that the request's session will move to the instance at which the request waits. The session moves
        only when the request is sent; see `move_or_go_back`.
        """
        home = self._state.bindings.get(session)
        assert home is not None
        assert home.instance is not None
        tracked.session = session
        self.touch_session(session, now)
        tracked.move = PendingMove(source=home.instance, departure=departure, room_tokens=room_tokens, decided_at=now)

    def move_or_go_back(self, tracked: TrackedRequest, move: PendingMove, now: float) -> bool:
        """Move the session of a request that is about to be sent. The request has already left its queue.

        The move is impossible if the instance no longer has room, or if in the meantime the session has moved or
        migrations were paused. In this case the request is queued at the session's home and the result is False. But if
        the home does not serve, the session moves anyway.
        """
        state, session, target = self._state, tracked.session, tracked.instance
        tracked.move = None
        home = None if session is None else state.bindings.get(session)
        host = None if home is None or home.instance is None else state.loads.get(home.instance)
        if session is None or home is None or home.instance is None or host is None or not host.is_candidate(now):
            self.bind(tracked, session, target, self.forced, now)
            return True
        moved_on = home.instance != move.source or (home.migrated_at is not None and home.migrated_at > move.decided_at)
        has_room = state.loads[target].free_kv_tokens(state.table.engine.kv_cache_tokens) >= move.room_tokens
        paused = self.is_held(home.instance, now)
        if home.instance == target or (has_room and not moved_on and not paused):
            hit_or_fetched_tokens(tracked, target, state.loads, state.view)
            departure = replace(move.departure, hits=None)  # of this moment, as the request computes now
            self.bind(tracked, session, target, lambda _: departure, now)
            return True
        state.accounting.unplace(tracked)
        tracked.transfer_from = None
        tracked.learn = None
        tracked.reason = DecisionReason.SESSION_BOUND
        reason = BindingReason.SESSION_MOVED if moved_on else BindingReason.OPERATOR if paused else BindingReason.NO_ROOM
        self.record_reroute(tracked, target, home.instance, MoveCause(trigger=reason), now)
        self.touch_session(session, now)
        state.enqueue(tracked, home.instance, now)
        return False

    def forced(self, home: str) -> Departure:
        """Return the reason why a session cannot stay on this instance."""
        return Departure(cause=MoveCause(trigger=self._state.reason_to_leave(home)))

    def is_held(self, home: str | None, now: float) -> bool:
        """Return whether a session with this home must stay there, regardless of the policy's choice. It must if
        migrations are paused and the home takes requests.
        """
        load = None if home is None or self._state.table.routing.migrations != MIGRATIONS_PAUSED else self._state.loads.get(home)
        return load is not None and load.is_candidate(now)

    def leaves_home(self, session: str | None, instance: str) -> bool:
        """Return whether binding the session to `instance` would move the session from another instance."""
        if session is None or self._state.policy.keeps_homes is None:
            return False
        home = self._state.bindings.get(session)
        if home is None or home.instance is None or self.is_held(home.instance, self._state.view.now):
            return False
        return home.instance != instance

    def touch_session(self, session: str, now: float, owner: str | None = None) -> None:
        """Record that the session was used on its instance. `owner` is given if a further request of this owner uses
        the session. A report to the API is added if the last report is too old.
        """
        refresh = self._state.bindings.touch(session, now, owner)
        if refresh is not None:
            self._state.recorder.bound(refresh)

    def rebalance(self, overloaded: tuple[str, ...], now: float) -> None:
        """Let the policy choose queued requests of the `overloaded` instances, and move them. Nothing moves while
        migrations are paused, or if the policy raises an error.
        """
        state = self._state
        rebalances = state.policy.rebalances
        if rebalances is None or state.table.routing.migrations == MIGRATIONS_PAUSED:
            return
        queues = QueuesInOrder({instance: state.queues[instance] for instance in overloaded if instance in state.queues}, now)
        if not queues:
            return
        try:
            moves = tuple(rebalances.rebalance(tuple(queues), queues, state.view, now))
        except Exception as error:  # noqa: BLE001  # kept for the next tick, which raises it
            state.failures.keep(error)
            return
        for move in moves:
            tracked = state.waiting.get(move.request)
            target = state.loads.get(move.target)
            if tracked is None or tracked.instance != move.source or target is None or not target.is_candidate(now):
                continue
            if not tracked.request.may_go_to(move.target):
                continue
            if state.canary is not None and state.canary.has(move.source) is not state.canary.has(move.target):
                continue
            if move.source_ttft_seconds - move.target_ttft_seconds < state.parameters.least_gain:
                continue
            self._move(tracked, move, now)

    def record_reroute(
        self,
        tracked: TrackedRequest,
        source: str,
        target: str,
        cause: MoveCause,
        now: float,
        ttfts: Ttfts | None = None,
    ) -> None:
        """Record that a request was moved from `source` to `target` while its session stayed bound to its instance.
        Nothing is recorded if the request was only assigned a rank of the same instance.
        """
        if is_part(target, source):
            return
        departure = Departure(cause=cause, ttfts=ttfts)
        asks = cause.trigger is BindingReason.HOTSPOT
        facts = self._move_facts(self._state.recorder.new_id(), tracked, source, target, departure, now, asks_for_gain=asks)
        self._state.recorder.rerouted(ReRouteRecord(session=tracked.session or tracked.request.session, **facts), tracked)

    def _move(self, tracked: TrackedRequest, move: QueuedMove, now: float) -> None:
        """Move a queued request to another queue. If its session was bound to the source of the move, the session moves
        too.
        """
        state, target = self._state, move.target
        source, session = tracked.instance, tracked.session
        departure = Departure(cause=move.cause, ttfts=(move.source_ttft_seconds, move.target_ttft_seconds))
        home = None if session is None else state.bindings.get(session)
        if session is not None and home is not None and home.instance == source:
            change = state.recorder.new_change_id()
            tracked.transfer_from = None
            bring_along(state, tracked, source, target, now)
            self._record_migration(change, tracked, session, source, target, departure, now)
            reason = departure.cause.trigger
            request = tracked.request
            self._report_first(session)
            state.recorder.bound(state.bindings.bind(session, target, reason, now, request.prompt_tokens, change, request.owner))
        else:
            tracked.transfer_from = None
            self.record_reroute(tracked, source, target, departure.cause, now, departure.ttfts)
        state.leave_queue(tracked)
        tracked.move = None
        tracked.alternate = source
        tracked.reason = DecisionReason.HOTSPOT_MIGRATED
        state.enqueue(tracked, target, now)

    def _record_migration(
        self,
        change: str,
        tracked: TrackedRequest,
        session: str,
        source: str,
        target: str,
        departure: Departure,
        now: float,
        left_tokens: int | None = None,
    ) -> None:
        asks = departure.cause.trigger in GAINING
        facts = self._move_facts(change, tracked, source, target, departure, now, left_tokens, asks_for_gain=asks)
        self._state.recorder.migrated(MigrationRecord(session=session, **facts), tracked)

    def _move_facts(
        self,
        move_id: str,
        tracked: TrackedRequest,
        source: str,
        target: str,
        departure: Departure,
        now: float,
        left_tokens: int | None = None,
        *,
        asks_for_gain: bool,
    ) -> MoveFacts:
        state, request, cause = self._state, tracked.request, departure.cause
        view = state.view
        ttfts = departure.ttfts
        if ttfts is None:
            ttfts = self._ttft_seconds(tracked, source), view.predicted_ttft_seconds(request, target)
        source_ttft, target_ttft = ttfts
        if cause.trigger is BindingReason.INSTANCE_LOST:
            source_ttft = None  # staying was not possible, so there is nothing to compare with
        if departure.hits is not None:
            held, there = departure.hits
        else:
            held = view.hit_tokens(request, source) if left_tokens is None else min(left_tokens, request.prompt_tokens - 1)
            there = view.hit_tokens(request, target)
        lacking = max(0, held - there)
        fetched = tracked.transfer_from == source
        return MoveFacts(
            id=move_id,
            pool=state.table.pool,
            request=request.id,
            source=instance_of(source),
            source_rank=rank_of(source),
            target=instance_of(target),
            target_rank=rank_of(target),
            trigger=cause.trigger,
            crossed=cause.crossed,
            threshold=cause.threshold,
            crossed_unit=cause.unit,
            at=now,
            predicted_source_ttft_seconds=source_ttft,
            predicted_target_ttft_seconds=target_ttft,
            benefit_seconds=None if source_ttft is None else source_ttft - target_ttft,
            tokens_moved=lacking if fetched else 0,
            tokens_recomputed=0 if fetched else lacking,
            source_hit_tokens=held,
            target_hit_tokens=there,
            least_gain_seconds=state.parameters.least_gain if asks_for_gain else None,
            handed_over=request.warms,
        )

    def _ttft_seconds(self, tracked: TrackedRequest, source: str) -> float | None:
        """Return the TTFT in seconds that is predicted if the request stays on `source`; None if the instance is gone,
        so that nothing can be predicted.
        """
        state = self._state
        return state.view.predicted_ttft_seconds(tracked.request, source) if source in state.loads else None
