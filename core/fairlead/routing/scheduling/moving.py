"""Moving: sessions get a home and change it, queued requests change their queue, and each move is recorded with the
predictions it was made by.
"""

from typing import TypedDict

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MigrationRecord, ReRouteRecord
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.building import QueuesInOrder
from fairlead.routing.queues.pending_moves import PendingMove
from fairlead.routing.scheduling.prefill_decode import hit_or_fetched_tokens
from fairlead.routing.scheduling.state import SchedulerState
from fairlead.tables import MIGRATIONS_PAUSED, PoolKey
from fairlead.targets import instance_of, is_part, rank_of

Ttfts = tuple[float | None, float]
"""Predicted for staying (None where nothing could be) and for moving."""


class MoveFacts(TypedDict):
    """What both sorts of move are recorded with; see `fairlead.reports.moves.Move`."""

    id: str
    pool: PoolKey
    request: str
    source: str
    source_rank: int | None
    target: str
    target_rank: int | None
    trigger: BindingReason
    at: float
    predicted_source_ttft_seconds: float | None
    predicted_target_ttft_seconds: float
    benefit_seconds: float | None
    tokens_moved: int
    tokens_recomputed: int


class Moving:
    """A move that takes a session's home along is a session migration; any other is a re-route."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def bind(
        self,
        tracked: TrackedRequest,
        session: str | None,
        instance: str,
        reason: BindingReason,
        now: float,
        ttfts: Ttfts | None = None,
    ) -> bool:
        """Make `instance` the home of the request's session if the policy keeps homes, and the one it has need not be
        kept; True when an earlier home was left for it.
        """
        state = self._state
        if session is None or not state.policy.keeps_homes or state.names.is_shared(session, now):
            return False
        tracked.session = session
        previous = state.bindings.get(session)
        if previous is not None and previous.instance == instance:
            self.touch_session(session, now)
            asked = state.bindings.arrive(session)
            if asked is not None:
                tracked.migrations.append(asked)
            return False
        if previous is not None and self.is_held(previous.instance, now):
            self.touch_session(session, now)
            return False
        reason = BindingReason.COLD if previous is None else reason
        change = state.recorder.new_change_id()
        state.recorder.bound(state.bindings.bind(session, instance, reason, now, tracked.request.prompt_tokens, change))
        if previous is None or previous.instance is None:
            return False
        left = previous.instance not in state.loads or previous.instance in state.departed
        # what a cache held that is gone is not in view any more; of a request's other attempts nothing was held
        left_tokens = previous.context_tokens if left and not tracked.tried else None
        self._record_migration(change, tracked, session, previous.instance, instance, reason, now, ttfts, left_tokens)
        return True

    def bind_when_sent(self, tracked: TrackedRequest, session: str, instance: str, decision: Decision, now: float) -> None:
        """The session of a request that is to wait for `instance` leaves its home for it when the request is sent; see
        `move_or_go_back`.
        """
        state, request = self._state, tracked.request
        home = state.bindings.get(session)
        assert home is not None
        assert home.instance is not None
        assert decision.room_tokens is not None
        tracked.session = session
        self.touch_session(session, now)
        own = decision.ttft_seconds if instance == decision.instance else None
        tracked.move = PendingMove(
            source=home.instance,
            reason=decision.bind or BindingReason.SLO,
            room_tokens=decision.room_tokens,
            decided_at=now,
            source_ttft_seconds=self._ttft_seconds(tracked, home.instance),
            target_ttft_seconds=state.view.predicted_ttft_seconds(request, instance) if own is None else own,
        )

    def move_or_go_back(self, tracked: TrackedRequest, move: PendingMove, now: float) -> bool:
        """The request, already taken from its queue, is about to be sent: its session moves now. False if it did not,
        and the request waits at the session's home again.

        It goes back when there is no room any more, the session moved or migrations were paused meanwhile, unless that
        home does not serve.
        """
        state, session, target = self._state, tracked.session, tracked.instance
        tracked.move = None
        home = None if session is None else state.bindings.get(session)
        host = None if home is None or home.instance is None else state.loads.get(home.instance)
        if session is None or home is None or home.instance is None or host is None or not host.is_candidate(now):
            reason = move.reason if home is None or home.instance is None else state.reason_to_leave(home.instance)
            self.bind(tracked, session, target, reason, now)
            return True
        moved_on = home.instance != move.source or (home.migrated_at is not None and home.migrated_at > move.decided_at)
        has_room = state.loads[target].free_kv_tokens(state.table.engine.kv_cache_tokens) >= move.room_tokens
        paused = self.is_held(home.instance, now)
        if home.instance == target or (has_room and not moved_on and not paused):
            hit_or_fetched_tokens(tracked, target, state.loads, state.view)
            ttfts = None if moved_on else (move.source_ttft_seconds, move.target_ttft_seconds)
            self.bind(tracked, session, target, move.reason, now, ttfts)
            return True
        state.accounting.unplace(tracked)
        tracked.transfer_from = None
        tracked.learn = None
        tracked.reason = DecisionReason.SESSION_BOUND
        reason = BindingReason.SESSION_MOVED if moved_on else BindingReason.OPERATOR if paused else BindingReason.NO_ROOM
        self.record_reroute(tracked, target, home.instance, reason, now)
        self.touch_session(session, now)
        state.enqueue(tracked, home.instance, now)
        return False

    def is_held(self, home: str | None, now: float) -> bool:
        """Whether a session with this home stays there whatever the policy says: migrations are paused, and it takes
        requests.
        """
        load = None if home is None or self._state.table.routing.migrations != MIGRATIONS_PAUSED else self._state.loads.get(home)
        return load is not None and load.is_candidate(now)

    def leaves_home(self, session: str | None, instance: str) -> bool:
        """Whether binding the session to `instance` would move its home."""
        if session is None or not self._state.policy.keeps_homes:
            return False
        home = self._state.bindings.get(session)
        if home is None or home.instance is None or self.is_held(home.instance, self._state.view.now):
            return False
        return home.instance != instance

    def touch_session(self, session: str, now: float) -> None:
        """The session was used where it is; reported now and then."""
        refresh = self._state.bindings.touch(session, now)
        if refresh is not None:
            self._state.recorder.bound(refresh)

    def rebalance(self, overloaded: tuple[str, ...], now: float) -> None:
        """Ask the policy which queued requests of these instances to move, and move them; none while migrations are
        paused, or when the policy fails at it.
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
            self._move(tracked, move.target, BindingReason.HOTSPOT, now, (move.source_ttft_seconds, move.target_ttft_seconds))

    def record_reroute(
        self,
        tracked: TrackedRequest,
        source: str,
        target: str,
        reason: BindingReason,
        now: float,
        ttfts: Ttfts | None = None,
    ) -> None:
        """Write down that a request left `source` for `target` and no session's home went with it. Nothing was left
        where it only became known which ranks the instance has.
        """
        if is_part(target, source):
            return
        facts = self._move_facts(self._state.recorder.new_id(), tracked, source, target, reason, now, ttfts)
        self._state.recorder.rerouted(ReRouteRecord(session=tracked.session or tracked.request.session, **facts), tracked)

    def _move(self, tracked: TrackedRequest, target: str, reason: BindingReason, now: float, ttfts: tuple[float, float]) -> None:
        """Move a queued request to `target`'s queue, with its session's home when that was the source."""
        state = self._state
        source = tracked.instance
        session = tracked.session
        home = None if session is None else state.bindings.get(session)
        if session is not None and home is not None and home.instance == source:
            change = state.recorder.new_change_id()
            self._record_migration(change, tracked, session, source, target, reason, now, ttfts)
            state.recorder.bound(state.bindings.bind(session, target, reason, now, tracked.request.prompt_tokens, change))
        else:
            self.record_reroute(tracked, source, target, reason, now, ttfts)
        state.leave_queue(tracked)
        tracked.transfer_from = tracked.move = None
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
        reason: BindingReason,
        now: float,
        ttfts: Ttfts | None = None,
        left_tokens: int | None = None,
    ) -> None:
        facts = self._move_facts(change, tracked, source, target, reason, now, ttfts, left_tokens)
        self._state.recorder.migrated(MigrationRecord(session=session, **facts), tracked)

    def _move_facts(
        self,
        move_id: str,
        tracked: TrackedRequest,
        source: str,
        target: str,
        reason: BindingReason,
        now: float,
        ttfts: Ttfts | None,
        left_tokens: int | None = None,
    ) -> MoveFacts:
        request, view = tracked.request, self._state.view
        if ttfts is None:
            ttfts = self._ttft_seconds(tracked, source), view.predicted_ttft_seconds(request, target)
        source_ttft, target_ttft = ttfts
        held = view.hit_tokens(request, source) if left_tokens is None else min(left_tokens, request.prompt_tokens - 1)
        lacking = max(0, held - view.hit_tokens(request, target))
        fetched = tracked.transfer_from == source
        return MoveFacts(
            id=move_id,
            pool=self._state.table.pool,
            request=request.id,
            source=instance_of(source),
            source_rank=rank_of(source),
            target=instance_of(target),
            target_rank=rank_of(target),
            trigger=reason,
            at=now,
            predicted_source_ttft_seconds=source_ttft,
            predicted_target_ttft_seconds=target_ttft,
            benefit_seconds=None if source_ttft is None else source_ttft - target_ttft,
            tokens_moved=lacking if fetched else 0,
            tokens_recomputed=0 if fetched else lacking,
        )

    def _ttft_seconds(self, tracked: TrackedRequest, source: str) -> float | None:
        """Predicted for staying; None where nobody can say, since the instance is gone."""
        state = self._state
        return state.view.predicted_ttft_seconds(tracked.request, source) if source in state.loads else None
