"""Session bindings as one router knows them: a session's home, the binding's version, and when it was last used.

The API decides about bindings. A change made in this module takes effect at once and stays pending until the API
decides. The API either reports the id of this change as the binding in force, or reports a newer binding by another
writer, which then replaces this router's binding. Each change names the newest version from the API and the pending
change before it. From these the API can see which binding this router knew (`fairlead.binding_races`).

The API stores an instance and a rank; in this module a home is a target (`fairlead.targets`). The API's rank is stored
too, because the target can be determined only once the ranks of the instance are known.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairlead.reports.bindings import Binding, BindingChange, BindingReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.session_identities import name_of, tenant_of
from fairlead.tables import PoolKey
from fairlead.targets import chosen_rank, instance_of, rank_of, target_of

REFRESHES_PER_TTL = 4
"""Number of reports per TTL to the API about an active session that does not move. Without these reports the API would
forget the session.
"""

MOST_TOLD = 5_000
"""Maximum number of a pool's sessions that are reported at once when the API has lost their bindings."""
MOST_PENDING = 32
"""Maximum number of a session's pending changes that are kept until the API confirms or refuses them. While the API is
unreachable, older changes are only counted.
"""


@dataclass(slots=True)
class _Known:
    binding: Binding
    """The session's binding. Its `instance` is the target; its `rank` is the reported or chosen rank, even if the
    target is not known yet.
    """
    used_at: float
    group: tuple[str | None, bool]
    """The group in which the session is counted: the owner of the session's requests at this router (None = no owner),
    and whether the session has had several requests.
    """
    reported_at: float
    """Time of this router's last report of the session to the API."""
    confirmed_version: int = 0
    """The newest version received from the API."""
    pending: list[BindingChange] = field(default_factory=list)
    """This router's newest changes that the API has neither confirmed nor refused, oldest first; each change is based
    on the change before it.
    """
    forgotten: int = 0
    """Number of older pending changes that are only counted, because `pending` has a maximum length."""
    ended: bool = False
    """Whether the API has reported that the session is bound to no instance. Pending changes may still give the session
    a home.
    """
    held_back: bool = False
    """Whether the session is not reported to the API yet, because its owner has too many sessions with a single
    request.
    """
    is_served: bool = False
    """Whether this router has served a turn of the session."""
    asked: str | None = None
    """The id of the change by which a person bound the session to this instance, until this router sends a request of
    the session there. None if no person chose the instance.
    """


ELSEWHERE = None, False
"""The group of sessions whose requests all came through other routers."""
LOOK_AGAIN = 256
"""Number of sessions that are forgotten, while there are too many, between two searches for the largest group."""


class SessionBindings:
    """The bindings of one pool's sessions. A session is forgotten `ttl_seconds` after its last use.

    Beyond `limit` sessions, the largest group forgets its least recently used session. The sessions of each owner form
    two groups: sessions with one request, and sessions with several. Sessions whose requests came through other routers
    form one more group. So a client that invents session names only displaces its own sessions. If an owner has more
    than half of `limit` sessions with a single request, a further session of this owner is reported to the API only at
    its second request.

    The class keeps `InstanceLoad.sessions` equal to the number of sessions bound to each instance, and adds instances
    whose number changes to `changed`. Instances in this class are targets.
    """

    def __init__(
        self,
        pool: PoolKey,
        ttl_seconds: float,
        loads: Mapping[str, InstanceLoad],
        limit: int = 200_000,
        changed: set[str] | None = None,
    ) -> None:
        self._pool = pool
        self._loads = loads
        self._limit = limit
        self._changed: set[str] = set() if changed is None else changed
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._groups: dict[tuple[str | None, bool], OrderedDict[str, None]] = {}
        self._largest: tuple[str | None, bool] = ELSEWHERE
        self._forgotten = 0
        self._counts: dict[str, int] = {}
        self._ranked: Mapping[str, Sequence[str]] = {}
        self.ttl_seconds = ttl_seconds

    def __len__(self) -> int:
        return len(self._known)

    def get(self, session: str) -> Binding | None:
        """Return the session's binding; None if the session is not bound."""
        known = self._known.get(session)
        return None if known is None else known.binding

    def before_tenants(self, session: str) -> Binding | None:
        """Return the binding that an earlier version of the router stored for a tenant's session, with only the
        session's name as the key. None if the session already has a binding, or if a client without a tenant used the
        name at this router.
        """
        name = name_of(session)  # which may look like another tenant's session
        old = None if session in self._known or tenant_of(name) else self._known.get(name)
        return old.binding if old is not None and old.group == ELSEWHERE and old.binding.instance in self._loads else None

    def follow_ranks(self, ranked: Mapping[str, Sequence[str]]) -> None:
        """Set the data-parallel ranks of the instances that have several ranks. Each rank is a target; every other
        instance is one target. Sessions stay at their instances and, if a session's rank is known, at this rank.
        Otherwise the rank is computed from the session's name, with the same result at every router.
        """
        if ranked == self._ranked:
            return
        self._ranked = ranked
        for known in self._known.values():
            home = known.binding.instance
            if home is not None and (target := self._target(known.binding.session, instance_of(home), known.binding.rank)) != home:
                self._count(home, -1)
                known.binding = replace(known.binding, instance=target)
                self._count(target, 1)

    def _at_target(self, binding: Binding, known: _Known | None) -> Binding:
        """Return the API's binding with a target as its home. If the binding names no rank, the session keeps its
        former rank.
        """
        assert binding.instance is not None
        home = None if known is None else known.binding
        if binding.rank is None and home is not None and home.instance is not None and instance_of(home.instance) == binding.instance:
            return replace(binding, instance=home.instance, rank=home.rank)
        return replace(binding, instance=self._target(binding.session, binding.instance, binding.rank))

    def _target(self, session: str, instance: str, rank: int | None) -> str:
        targets = self._ranked.get(instance)
        if targets is None:
            return instance
        return chosen_rank(session, targets) if rank is None else target_of(instance, rank)

    def count(self, instance: str) -> int:
        """Return the number of sessions bound to the instance."""
        return self._counts.get(instance, 0)

    def touch(self, session: str, now: float, owner: str | None = None) -> BindingChange | None:
        """Record a use of the session. `owner` is given if a further request of this owner uses the session.

        Return a change to report to the API if the session's last report is too old, because the API would otherwise
        forget a session that never moves; None if no report is due.
        """
        known = self._known.get(session)
        if known is None:
            return None
        known.used_at = now
        self._known.move_to_end(session)
        self._use(session, known, owner)
        if known.held_back:
            return None if owner is None else self.release(session)
        binding = known.binding
        if binding.instance is None or now - known.reported_at < self.ttl_seconds / REFRESHES_PER_TTL:
            return None
        known.reported_at = now
        return self._sign_of_life(known, binding.instance, now)

    def missing(self, present: Collection[str], now: float) -> tuple[list[BindingChange], int]:
        """Return a change for each session that the API has confirmed but no longer knows; `present` has the sessions
        that the API knows now. Each change reports the session with the time of its last use. At most `MOST_TOLD`
        changes are returned; the remaining sessions are reported when they are next used. Also return the number of
        missing sessions.
        """
        lacking = [
            known
            for session, known in self._known.items()
            if known.confirmed_version and not known.pending and known.binding.instance in self._loads and session not in present
        ]
        for known in lacking[:-MOST_TOLD]:
            known.reported_at = -math.inf
        changes = []
        for known in lacking[-MOST_TOLD:]:
            known.reported_at = now
            changes.append(self._sign_of_life(known, str(known.binding.instance), known.used_at))
        return changes, len(lacking)

    def _sign_of_life(self, known: _Known, home: str, now: float) -> BindingChange:
        binding = known.binding
        return BindingChange(
            pool=self._pool,
            session=binding.session,
            instance=instance_of(home),
            rank=_rank(binding),
            previous=instance_of(home),
            previous_rank=_rank(binding),
            reason=binding.reason,
            at=now,
            based_on=known.confirmed_version,
            after=known.pending[-1].id if known.pending else None,
            context_tokens=binding.context_tokens,
        )

    def bind(
        self, session: str, instance: str, reason: BindingReason, now: float, context_tokens: int, change_id: str, owner: str = ""
    ) -> BindingChange:
        """Bind the session to `instance` for a request of `owner`, and return the change to report. `change_id` must
        never have been used before.
        """
        known = self._known.get(session)
        previous = None if known is None else known.binding
        left = None if previous is None else previous.instance
        change = BindingChange(
            id=change_id,
            pool=self._pool,
            session=session,
            instance=instance_of(instance),
            rank=rank_of(instance),
            previous=None if left is None else instance_of(left),
            previous_rank=None if previous is None else _rank(previous),
            reason=reason,
            at=now,
            based_on=0 if known is None else known.confirmed_version,
            after=known.pending[-1].id if known is not None and known.pending else None,
            context_tokens=context_tokens,
        )
        self._propose(known, change, now, owner)
        return change

    def give_up(self, session: str, now: float) -> BindingChange | None:
        """Forget the home of a session name, because several conversations share the name. Return the change that
        reports this to the API; None if the name has no home.
        """
        self.release(session)
        known = self._known.get(session)
        if known is None or known.binding.instance is None:
            return None
        change = self._sign_of_life(known, known.binding.instance, now)
        self._forget(session)
        return replace(change, shared=True)

    def is_held_back(self, session: str) -> bool:
        """Return whether the session's first change must not be reported yet (`_Known.held_back`)."""
        known = self._known.get(session)
        return known is not None and known.held_back

    def release(self, session: str) -> BindingChange | None:
        """Return the session's first change if its report was delayed; None otherwise. The change must be reported now,
        before any other change of the session.
        """
        known = self._known.get(session)
        if known is None or not known.held_back:
            return None
        known.held_back = False
        return known.pending[0]

    def recall(self, change: BindingChange, now: float) -> None:
        """Repeat a change that this router made before a restart and that the API may not have confirmed or refused.
        Call this with all such changes in their order, after the API's last state has arrived.
        """
        if change.stays:
            return
        known = self._known.get(change.session)
        if known is None or known.pending or change.based_on >= known.confirmed_version or known.binding.change == change.after:
            self._propose(known, change, now)
            self._known[change.session].confirmed_version = max(self._known[change.session].confirmed_version, change.based_on)

    def _propose(self, known: _Known | None, change: BindingChange, now: float, owner: str | None = None) -> None:
        target = self._target(change.session, change.instance, change.rank)
        binding = Binding(
            pool=self._pool,
            session=change.session,
            instance=target,
            rank=change.rank,
            version=1 if known is None else known.binding.version + 1,
            reason=change.reason,
            bound_at=change.at,
            migrated_at=None if known is None else change.at,
            context_tokens=change.context_tokens,
            change=change.id,
        )
        if known is None:
            known = self._known[change.session] = _Known(binding, now, (owner, False), now)
            self._enter(change.session, known.group)
            known.held_back = owner is not None and len(self._groups[known.group]) > self._limit // 2
        else:
            self._count(known.binding.instance, -1)
            known.binding = binding
            known.asked = None
            known.used_at = known.reported_at = now
            self._known.move_to_end(change.session)
            self._use(change.session, known, None)
        self._count(target, 1)
        known.pending.append(change)
        if len(known.pending) > MOST_PENDING:
            del known.pending[0]
            known.forgotten += 1

    def apply(self, binding: Binding, now: float, lost: Collection[str] = ()) -> int:
        """Apply the API's binding for a session. Return the number of this router's moves that are dropped.

        A version that is not newer than the newest known version is ignored. There are two exceptions. The end of a
        binding is applied, although it has the version of the binding. And `lost` has the ids of changes that the API
        refused: if a pending change of the session is among them, this change and all later changes are dropped, and
        the API's binding is used. Its version may be older if the API's database was restored.
        """
        known = self._known.get(binding.session)
        if self._ranked and binding.instance is not None:
            binding = self._at_target(binding, known)
        if known is None:
            if binding.instance is not None:
                fresh = _Known(binding, now, ELSEWHERE, now, confirmed_version=binding.version, asked=_asked(binding))
                self._known[binding.session] = fresh
                self._count(binding.instance, 1)
                self._enter(binding.session, ELSEWHERE)
            return 0
        if known.held_back and binding.instance is not None:
            known.held_back = False
            known.pending.clear()
        for place, change in enumerate(known.pending):
            if change.id in lost:
                return self._give_way(known, place, binding)
        if lost and known.forgotten:
            return self._give_way(known, 0, binding)
        ends = binding.instance is None
        if binding.version < known.confirmed_version or (binding.version == known.confirmed_version and not ends):
            return 0
        answered = next((place + 1 for place, change in enumerate(known.pending) if change.id == binding.change), 0)
        if not ends and not answered and binding.version <= known.confirmed_version + known.forgotten:
            return 0  # most likely a change made here; if it is another's, a change that is kept loses
        known.confirmed_version = binding.version
        known.ended = ends
        if answered or not ends:
            known.forgotten = 0
            known.pending = known.pending[answered:] if answered else []
        if not known.pending:
            self._take(known, binding)
        return 0

    def _give_way(self, known: _Known, place: int, binding: Binding) -> int:
        """Drop the pending changes from index `place` on, because the API refused the first of them in favour of
        `binding`. With `place` 0, the API may have refused an earlier change that is only counted. Return the number of
        dropped moves.
        """
        lost = sum(change.previous is not None for change in known.pending[place:])
        if place == 0:  # of those forgotten, as many are bound as there are versions before the winner's
            lost += min(known.forgotten, max(0, known.confirmed_version + known.forgotten + 1 - binding.version))
        restored = known.pending[place].based_on > binding.version
        ended = known.ended and binding.version == known.confirmed_version
        known.pending.clear()
        known.forgotten = 0
        if restored or (binding.version >= known.confirmed_version and not ended):
            known.confirmed_version = binding.version
            known.ended = False
            self._take(known, binding)
        else:
            self._forget(binding.session)  # told since then that nobody holds it
        return lost

    def _take(self, known: _Known, binding: Binding) -> None:
        if binding.instance is None:
            self._forget(binding.session)
            return
        self._count(known.binding.instance, -1)
        if binding.version != known.binding.version or binding.change != known.binding.change:
            known.asked = _asked(binding)
        known.binding = binding
        self._count(binding.instance, 1)

    def is_asked(self, session: str) -> bool:
        """Return whether a person chose the session's instance and this router has not yet sent a request of the
        session there.
        """
        known = self._known.get(session)
        return known is not None and known.asked is not None

    def arrive(self, session: str) -> str | None:
        """Record that a request of the session is sent to its instance. If this is the first request after a person
        chose the instance, return the id of the person's change; None otherwise.
        """
        known = self._known.get(session)
        if known is None:
            return None
        change, known.asked = known.asked, None
        return change

    def is_under_way(self, session: str) -> bool:
        """Return whether a turn of the session has been served, by this router or, according to the bindings, by
        another router.
        """
        known = self._known.get(session)
        return known is not None and (known.is_served or known.group == ELSEWHERE)

    def set_context(self, session: str, context_tokens: int) -> None:
        """Record the number of tokens in the session's context (prompt and output) after its last turn."""
        known = self._known.get(session)
        if known is None:
            return
        known.is_served = True
        if known.binding.context_tokens != context_tokens:
            known.binding = _with_context(known.binding, context_tokens)

    def expire(self, now: float) -> None:
        """Forget sessions that were not used for longer than the TTL."""
        while self._known:
            session, known = next(iter(self._known.items()))
            if now - known.used_at <= self.ttl_seconds:
                return
            self._forget(session)

    def clear(self) -> None:
        """Forget every session."""
        for session in tuple(self._known):
            self._forget(session)

    def _use(self, session: str, known: _Known, owner: str | None) -> None:
        group = known.group
        if owner is None or (group[1] and group[0] == owner):
            self._groups[group].move_to_end(session)
            return
        self._leave(session, group)
        known.group = (owner, group[0] is not None)
        self._enter(session, known.group)

    def _enter(self, session: str, group: tuple[str | None, bool]) -> None:
        """Add the session to the group. If there are too many sessions, forget another session."""
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = OrderedDict()
        members[session] = None
        if len(members) > len(self._groups.get(self._largest, ())):
            self._largest = group
        while len(self._known) > self._limit:
            self._forget_one(session)

    def _leave(self, session: str, group: tuple[str | None, bool]) -> None:
        members = self._groups[group]
        del members[session]
        if not members:
            del self._groups[group]

    def _forget_one(self, newest: str) -> None:
        """Forget the least recently used session of the largest group. If that session is `newest`, forget the least
        recently used session of all instead.
        """
        self._forgotten += 1
        if self._forgotten % LOOK_AGAIN == 0 or self._largest not in self._groups:
            self._largest = max(self._groups, key=lambda group: len(self._groups[group]))
        oldest = next(iter(self._groups[self._largest]))
        self._forget(next(iter(self._known)) if oldest == newest else oldest)

    def _forget(self, session: str) -> None:
        known = self._known.pop(session)
        self._leave(session, known.group)
        self._count(known.binding.instance, -1)

    def _count(self, instance: str | None, step: int) -> None:
        if instance is None:
            return
        count = self._counts.get(instance, 0) + step
        if count:
            self._counts[instance] = count
        else:
            self._counts.pop(instance, None)
        load = self._loads.get(instance)
        if load is not None:
            load.sessions = count
            self._changed.add(instance)


def _asked(binding: Binding) -> str | None:
    return binding.change if binding.reason is BindingReason.OPERATOR else None


def _with_context(binding: Binding, context_tokens: int) -> Binding:
    """Return the binding with this number of context tokens. This function is three times as fast as
    `dataclasses.replace`, and is called for every request that ends.
    """
    return Binding(
        pool=binding.pool,
        session=binding.session,
        instance=binding.instance,
        rank=binding.rank,
        version=binding.version,
        reason=binding.reason,
        bound_at=binding.bound_at,
        migrated_at=binding.migrated_at,
        context_tokens=context_tokens,
        change=binding.change,
        shared_at=binding.shared_at,
    )


def _rank(binding: Binding) -> int | None:
    """Return the rank of the binding's home: the target's rank, or the reported rank while the instance's ranks are
    unknown.
    """
    found = None if binding.instance is None else rank_of(binding.instance)
    return binding.rank if found is None else found
