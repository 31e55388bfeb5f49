"""EAR: a session stays on its host, the instance with its KV cache. The session migrates only if its host is hot, and
only to a cooler instance with room. It does not migrate again during a cooldown.

If engines can fetch KV blocks from each other, the new host fetches the context of a session that migrates. The session
migrates when its next request is sent, if the new host still has room for it then. Otherwise the request is sent to the
old host.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.decisions import Weighing
from fairlead.reports.moves import MoveCause
from fairlead.routing.choosing.candidates import least_pending, weighed
from fairlead.routing.choosing.move_causes import stay_and_go
from fairlead.routing.choosing.terms import HOST_GONE, HOST_STAYS, NAME_SHARED
from fairlead.routing.choosing.transfers import sending_seconds
from fairlead.routing.contracts.catalogues import PolicyEntry
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import HomeParameters
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.weighing import PASSED_OVER, TOTAL, Better, Comparison, DecisionRule, Holds, Limit, PolicyTerms, Term, Unit
from fairlead.schemas.shapes import number, truth, whole
from fairlead.session_identities import session_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class EarParameters(HomeParameters):
    """Parameters of `ear`."""

    hot_slo_fraction: float = number(
        "A host is hot when its pending prompt tokens take longer than this part of the TTFT SLO.", 1.0, minimum=0.01, maximum=100.0
    )
    hot_tokens: int | None = whole("A host is hot above this many pending tokens; overrides hot_slo_fraction.", None)
    cooldown_seconds: float = number("A session that moved stays at least this long before load may move it again.", 30.0, minimum=0.0)
    cool_target: bool = truth(
        (
            "Migrate only to a host that is not hot itself and would give the first token sooner, including the "
            "time to fetch or recompute the context there; false = to any host with less pending work, as the EAR "
            "draft says."
        ),
        True,
    )
    migrate: bool = truth("Migrate sessions off hot hosts; false = pure affinity.", True)
    fetch: bool = truth(
        "Where engines can fetch KV blocks from each other, a session that migrates takes its context along if that is predicted to be "
        "faster than computing it again.",
        True,
    )


class Ear:
    """The policy `ear`. Requests without a session are bound by the hash of their first two blocks, as long as only one
    conversation begins with those blocks.
    """

    name = "ear"
    binds = True

    def __init__(self, parameters: EarParameters) -> None:
        self._parameters = parameters
        self._seen: Sequence[InstanceLoad] = ()
        self._placed: Counter[str] = Counter()
        """Number of new sessions placed on each instance since the last time that an instance joined or left."""

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        session = session_of(request)
        home = None if session is None else view.binding(session)
        host = None if home is None or home.instance is None else view.load(home.instance)
        if home is None or host is None or not host.is_candidate(now):
            return self._cold(request, session, home, view, now)
        target = self._target(request, home, host, view, now) if self._parameters.migrate else None
        chosen = host if target is None else target
        instance = chosen.entry.id
        only = len(view.candidates()) == 1
        moved = target is not None
        ttft = None if target is None else self._fetched_ttft_seconds(request, host, target, view, now)
        fallbacks = least_pending(view.candidates(), (instance,))

        def weigh() -> Weighing:
            rule = "host-hot-left" if moved else self._why_it_stays(home, host, view, now)
            hot = self._hot_tokens(view)
            limits = {"hot_tokens": hot} if hot < inf else {}
            if rule == "host-hot-cooldown" and home.migrated_at is not None:
                limits |= {"cooldown_seconds": self._parameters.cooldown_seconds, "since_migration_seconds": now - home.migrated_at}
            compared = (instance, host.entry.id) if moved else (instance, *fallbacks)
            found = self._weigh(request, rule, compared, view, limits, host.entry.id if moved else None)
            if ttft is None:
                return found
            first, *rest = found.candidates
            return replace(found, candidates=(replace(first, predicted_ttft_seconds=ttft), *rest))

        return Decision(
            instance=instance,
            reason=DecisionReason.SESSION_HOT_MIGRATED if moved else DecisionReason.ONLY_INSTANCE if only else DecisionReason.SESSION_BOUND,
            fallbacks=fallbacks,
            weigh=weigh,
            session=session,
            room_tokens=room_tokens(request, home) if moved else None,
            transfer_from=None if ttft is None else host.entry.id,
            ttft_seconds=ttft,
        )

    def prefix_session(self, request: RoutingRequest) -> str:
        """See `BindsBeginnings.prefix_session`."""
        return prefix_session(request)

    def cause_to_leave(self, request: RoutingRequest, home: Binding, weighed: Weighing, view: PoolView, now: float) -> MoveCause:
        """See `KeepsHomes.cause_to_leave`."""
        here, _ = stay_and_go(weighed, home.instance)
        pending, limit = float(here.pending_tokens), weighed.limits["hot_tokens"]
        return MoveCause(trigger=BindingReason.HOT_MIGRATION, crossed=pending, threshold=limit, unit=Unit.TOKENS)

    def _cold(self, request: RoutingRequest, session: str | None, home: Binding | None, view: PoolView, now: float) -> Decision:
        candidates = view.candidates()
        placed = self._placed_since_instances_changed(candidates)
        least = min([load.pending_prefill_tokens for load in candidates])
        tied = [load for load in candidates if load.pending_prefill_tokens == least]
        instance = min(tied, key=lambda load: (placed[load.entry.id], load.sessions, load.entry.id)).entry.id
        placed[instance] += 1
        fallbacks = least_pending(candidates, (instance,))
        if home is not None:
            reason, rule = DecisionReason.SESSION_HOST_GONE, "host-gone"
        elif request.named is not None:
            reason, rule = DecisionReason.SESSION_NAME_SHARED, "name-shared"
        else:
            reason, rule = DecisionReason.SESSION_COLD, "first-placement"
        return Decision(
            instance=instance,
            reason=reason if len(candidates) > 1 else DecisionReason.ONLY_INSTANCE,
            fallbacks=fallbacks,
            weigh=lambda: self._weigh(request, rule, (instance, *fallbacks), view),
            session=session,
        )

    def _placed_since_instances_changed(self, candidates: Sequence[InstanceLoad]) -> Counter[str]:
        """Return the number of new sessions per instance since the last time that an instance joined or left. If
        earlier sessions counted too, an instance that joins with no sessions would get every new session.
        """
        if candidates is not self._seen:
            if {load.entry.id for load in candidates} != {load.entry.id for load in self._seen}:
                self._placed.clear()
            self._seen = candidates
        return self._placed

    def _weigh(
        self,
        request: RoutingRequest,
        rule: str,
        instances: Sequence[str],
        view: PoolView,
        limits: dict[str, float] | None = None,
        passed_over: str | None = None,
    ) -> Weighing:
        capacity = view.table.engine.kv_cache_tokens
        return weighed(
            request,
            view,
            rule,
            instances,
            lambda load: load.pending_prefill_tokens,
            lambda load: {"sessions": float(load.sessions), "free_kv_tokens": float(load.free_kv_tokens(capacity))},
            limits=limits,
            passed_over=passed_over,
        )()

    def _why_it_stays(self, home: Binding, host: InstanceLoad, view: PoolView, now: float) -> str:
        """Return the name of the rule by which the session stays on its host."""
        if not self._parameters.migrate:
            return "host-stays"
        hot = self._hot_tokens(view)
        if host.pending_prefill_tokens <= hot:
            return "host-not-hot" if hot < inf else "host-speed-unknown"
        recent = home.migrated_at is not None and now - home.migrated_at < self._parameters.cooldown_seconds
        return "host-hot-cooldown" if recent else "host-hot-no-cooler"

    def _hot_tokens(self, view: PoolView) -> float:
        """Pending tokens above which a host counts as hot; infinite until the speed of hosts has been observed."""
        hot = self._parameters.hot_tokens
        return view.tokens_within(self._parameters.hot_slo_fraction * view.table.slo.ttft_seconds) if hot is None else hot

    def _target(self, request: RoutingRequest, home: Binding, host: InstanceLoad, view: PoolView, now: float) -> InstanceLoad | None:
        """Return the instance to which the session should move now; None if it stays."""
        table = view.table
        threshold = self._hot_tokens(view)
        if host.pending_prefill_tokens <= threshold:
            return None
        if home.migrated_at is not None and now - home.migrated_at < self._parameters.cooldown_seconds:
            return None
        needed = room_tokens(request, home)
        best: InstanceLoad | None = None
        best_rank: tuple[int, int, str] | None = None
        cool_only = self._parameters.cool_target
        saved_here = view.hit_tokens(request, host.entry.id) if cool_only else 0
        for load in view.candidates():
            pending = load.pending_prefill_tokens
            if load is host or pending >= host.pending_prefill_tokens or (cool_only and pending > threshold):
                continue
            if best_rank is not None and pending > best_rank[0]:
                continue
            free = load.free_kv_tokens(table.engine.kv_cache_tokens)
            rank = (pending, -free, load.entry.id)
            if free < needed or (best_rank is not None and rank >= best_rank):
                continue
            if cool_only:  # last, as it costs most
                carried = self._carried_tokens(request, saved_here - view.hit_tokens(request, load.entry.id), host, view)[0]
                if pending + carried >= host.pending_prefill_tokens:
                    continue
            best, best_rank = load, rank
        return best

    def _carried_tokens(self, request: RoutingRequest, lacking: int, host: InstanceLoad, view: PoolView) -> tuple[float, bool]:
        """Return the cost of giving the new host the context tokens that it lacks (`lacking`), in tokens of prefill.
        The cost is the smaller of two: computing the tokens on the new host, or fetching them from `host`, the old
        host. Also return whether the new host fetches them.
        """
        speed = view.fetching(request) if lacking > 0 and self._parameters.fetch else None
        if speed is None:
            return lacking, False
        sending = sending_seconds(lacking, host.transfers_out, speed)
        fetched = (sending + speed.latency_seconds) * view.prefill_speed
        return min(lacking, fetched), fetched < lacking

    def _fetched_ttft_seconds(
        self, request: RoutingRequest, host: InstanceLoad, target: InstanceLoad, view: PoolView, now: float
    ) -> float | None:
        """Return the predicted TTFT in seconds on the new host if it fetches the context from the old host; None if the
        new host would compute the context again.
        """
        saved = view.hit_tokens(request, host.entry.id)
        carried, fetches = self._carried_tokens(request, saved - view.hit_tokens(request, target.entry.id), host, view)
        if not fetches:
            return None
        ahead = target.pending_prefill_tokens + carried + request.prompt_tokens - saved
        return ahead / view.prefill_speed - target.done_seconds(now)


def room_tokens(request: RoutingRequest, home: Binding) -> int:
    """Return the KV tokens for which a session needs room on a new host: the larger of its last context and its next
    prompt.
    """
    return max(home.context_tokens, request.prompt_tokens)


def session_of(request: RoutingRequest) -> str | None:
    """Return the name under which a request is bound: its session, or a name made from its prefix. None if several
    conversations share all possible names of the request.
    """
    return request.session or (None if request.named is not None else prefix_session(request))


def prefix_session(request: RoutingRequest) -> str:
    """Return the binding name for a request without a session. The name is a hash of the prompt's first two blocks, or
    of the whole prompt if it is shorter than a block, combined with the request's owner.
    """
    known = request.blocks[:2]
    return session_identity(f"prefix:{known[-1] if known else request.first_bytes_hash:016x}", request.owner)


NEW_TIES = "to the instance with the fewest new sessions since instances joined or left, then the fewest in total, then by id"

ENTRY = PolicyEntry(
    name=Ear.name,
    intent="Sessions stay on their host and migrate off it only when it is hot.",
    build=lambda parameters, seed: Ear(parameters),
    parameters=EarParameters,
    terms=PolicyTerms(
        total=Term(name=TOTAL, words="waiting ahead", unit=Unit.TOKENS),
        terms=(
            Term(name="sessions", words="sessions bound there", unit=Unit.SESSIONS),
            Term(name="free_kv_tokens", words="free in the KV cache", unit=Unit.TOKENS, better=Better.HIGHER),
        ),
        limits=(
            Limit(name="hot_tokens", words="load at which a host counts as hot", unit=Unit.TOKENS),
            Limit(name="cooldown_seconds", words="least time between two migrations of a session", unit=Unit.SECONDS),
            Limit(name="since_migration_seconds", words="time since the session last migrated", unit=Unit.SECONDS),
        ),
        rules=(
            DecisionRule(
                code="host-not-hot",
                because=f"{HOST_STAYS} and it is not hot",
                given=(Comparison(term=TOTAL, holds=Holds.AT_MOST, against="hot_tokens"),),
            ),
            DecisionRule(
                code="host-speed-unknown",
                because=f"{HOST_STAYS}; its speed is not measured yet, so whether it is hot is unknown",
            ),
            DecisionRule(
                code="host-hot-cooldown",
                because=f"{HOST_STAYS}; it is hot, but the session migrated too recently",
                given=(
                    Comparison(term=TOTAL, holds=Holds.ABOVE, against="hot_tokens"),
                    Comparison(term="since_migration_seconds", holds=Holds.AT_MOST, against="cooldown_seconds"),
                ),
            ),
            DecisionRule(
                code="host-hot-no-cooler",
                because=f"{HOST_STAYS}; it is hot, but no cooler instance with room would have been worth the move",
                given=(Comparison(term=TOTAL, holds=Holds.ABOVE, against="hot_tokens"),),
            ),
            DecisionRule(code="host-stays", because=f"{HOST_STAYS}, and migration is switched off"),
            DecisionRule(
                code="host-hot-left",
                because="the session's host was hot, and it was the least loaded instance with room for the session",
                given=(
                    Comparison(of=PASSED_OVER, term=TOTAL, holds=Holds.ABOVE, against="hot_tokens"),
                    Comparison(of=PASSED_OVER, term=TOTAL, holds=Holds.ABOVE, against="chosen"),
                ),
            ),
            DecisionRule(
                code="first-placement",
                because="the session is new, and it had the fewest tokens waiting",
                order=(TOTAL,),
                ties=NEW_TIES,
            ),
            DecisionRule(
                code="name-shared",
                because=f"{NAME_SHARED}, the conversation itself is new, and it had the fewest tokens waiting",
                order=(TOTAL,),
                ties=NEW_TIES,
            ),
            DecisionRule(code="host-gone", because=HOST_GONE, order=(TOTAL,), ties=NEW_TIES),
        ),
    ),
)
