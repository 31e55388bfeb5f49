"""Session bindings as one router knows them: a session's KV home, its version, and when it was last used.

The API's word is final. A change made here is optimistic: it takes the next version at once, so that following changes are based on it, and is
confirmed when the API tells the same version with the same instance. Another instance under a newer version than the last confirmed one
means another writer won, and its binding replaces ours.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.reports import Binding, BindingChange, BindingReason
from fairlead.routing.protocols import InstanceLoad
from fairlead.tables import PoolKey

REFRESHES_PER_TTL = 4
"""How often an active session that stays where it is is reported within its TTL."""


@dataclass(slots=True)
class _Known:
    binding: Binding
    used_at: float
    reported_at: float
    """When the API last heard of the session from this router or told this router of it."""
    confirmed_version: int = 0
    proposed: list[tuple[int, str]] = field(default_factory=list)


class SessionBindings:
    """Bindings of one pool, forgotten `ttl_seconds` after their last use, least recently used first beyond `limit`.

    Keeps `InstanceLoad.sessions` of the loads it is given equal to the sessions bound there.
    """

    def __init__(self, pool: PoolKey, ttl_seconds: float, loads: Mapping[str, InstanceLoad], limit: int = 200_000) -> None:
        self._pool = pool
        self._loads = loads
        self._limit = limit
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._counts: dict[str, int] = {}
        self.ttl_seconds = ttl_seconds

    def __len__(self) -> int:
        return len(self._known)

    def get(self, session: str) -> Binding | None:
        """The session's binding, None when it has none."""
        known = self._known.get(session)
        return None if known is None else known.binding

    def count(self, instance: str) -> int:
        """Sessions bound to the instance."""
        return self._counts.get(instance, 0)

    def touch(self, session: str, now: float) -> BindingChange | None:
        """The session was used. Now and then this is worth telling the API, or it would forget a session that only ever stays."""
        known = self._known.get(session)
        if known is None:
            return None
        known.used_at = now
        self._known.move_to_end(session)
        binding = known.binding
        if binding.instance is None or now - known.reported_at < self.ttl_seconds / REFRESHES_PER_TTL:
            return None
        known.reported_at = now
        return BindingChange(
            pool=self._pool,
            session=session,
            instance=binding.instance,
            previous=binding.instance,
            reason=binding.reason,
            at=now,
            based_on=binding.version,
            context_tokens=binding.context_tokens,
        )

    def bind(self, session: str, instance: str, reason: BindingReason, now: float, context_tokens: int) -> BindingChange:
        """Make `instance` the session's home and return the change to report."""
        known = self._known.get(session)
        previous = None if known is None else known.binding
        based_on = 0 if previous is None else previous.version
        binding = Binding(
            pool=self._pool,
            session=session,
            instance=instance,
            version=based_on + 1,
            reason=reason,
            bound_at=now,
            migrated_at=None if previous is None else now,
            context_tokens=context_tokens,
        )
        if known is None:
            known = self._known[session] = _Known(binding, now, now)
            self._trim()
        else:
            self._count(known.binding.instance, -1)
            known.binding = binding
            known.used_at = known.reported_at = now
            self._known.move_to_end(session)
        self._count(instance, 1)
        known.proposed.append((binding.version, instance))
        return BindingChange(
            pool=self._pool,
            session=session,
            instance=instance,
            previous=None if previous is None else previous.instance,
            reason=reason,
            at=now,
            based_on=based_on,
            context_tokens=context_tokens,
        )

    def apply(self, binding: Binding, now: float) -> None:
        """Take the API's word for a session; a version not newer than the last confirmed one is ignored."""
        known = self._known.get(binding.session)
        if binding.instance is None:
            if known is not None and binding.version > known.confirmed_version and binding.version >= known.binding.version:
                self._forget(binding.session)
            return
        if known is None:
            self._known[binding.session] = _Known(binding, now, now, confirmed_version=binding.version)
            self._count(binding.instance, 1)
            self._trim()
            return
        if binding.version <= known.confirmed_version:
            return
        known.confirmed_version = binding.version
        if (binding.version, binding.instance) in known.proposed:
            known.proposed = [proposal for proposal in known.proposed if proposal[0] > binding.version]
            if known.proposed:
                return
        known.proposed.clear()
        self._count(known.binding.instance, -1)
        known.binding = binding
        self._count(binding.instance, 1)

    def set_context(self, session: str, context_tokens: int) -> None:
        """How many tokens the session's last turn held (prompt and output)."""
        known = self._known.get(session)
        if known is not None and known.binding.context_tokens != context_tokens:
            known.binding = _with_context(known.binding, context_tokens)

    def expire(self, now: float) -> None:
        """Forget sessions not used for longer than the TTL."""
        while self._known:
            session, known = next(iter(self._known.items()))
            if now - known.used_at <= self.ttl_seconds:
                return
            self._forget(session)

    def clear(self) -> None:
        """Forget every session."""
        for session in tuple(self._known):
            self._forget(session)

    def _trim(self) -> None:
        while len(self._known) > self._limit:
            self._forget(next(iter(self._known)))

    def _forget(self, session: str) -> None:
        self._count(self._known.pop(session).binding.instance, -1)

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


def _with_context(binding: Binding, context_tokens: int) -> Binding:
    """As `replace` would make it, which takes three times as long; every request that ends comes through here."""
    return Binding(
        pool=binding.pool,
        session=binding.session,
        instance=binding.instance,
        version=binding.version,
        reason=binding.reason,
        bound_at=binding.bound_at,
        migrated_at=binding.migrated_at,
        context_tokens=context_tokens,
    )
