"""Priority classes of a pool: their order, and which clients may use which class. Pure.

A pool declares up to eight classes (`spec.priorityClasses`). A request that names no declared class belongs to the
class `default`. Unless the pool declares the class `default` differently, that class has priority 0 and may use all of
every limit; so a pool without declared classes has one class. The priorities follow llm-d's InferenceObjectives: higher
first, 0 if no priority is given.
"""

from collections.abc import Iterable

from fairlead.tables import DEFAULT_CLASS, PriorityClass


class PriorityClasses:
    """The priority classes of one routing table. Objects that are equal are interchangeable."""

    __slots__ = ("_by_name", "_ranks", "are_declared")

    def __init__(self, declared: Iterable[PriorityClass] = ()) -> None:
        named = {one.name: one for one in declared}
        self.are_declared = bool(named)
        self._by_name = {DEFAULT_CLASS: PriorityClass(name=DEFAULT_CLASS)} | named
        priorities = sorted({one.priority for one in self._by_name.values()}, reverse=True)
        self._ranks = {name: priorities.index(one.priority) for name, one in self._by_name.items()}

    def __getitem__(self, name: str) -> PriorityClass:
        """Return the class of this name; the default class for an unknown name."""
        return self._by_name.get(name) or self._by_name[DEFAULT_CLASS]

    def rank(self, name: str) -> int:
        """Return the rank of a class: 0 for the classes of the highest priority, 1 for the classes of the next lower
        priority, and so on.
        """
        return self._ranks[self[name].name]

    def granted(self, asked: str | None, ceiling: str | None) -> str:
        """Return the class that a request gets: `asked`, unless it is higher than the client's `ceiling`.

        Without a ceiling the client is trusted. A client that asks for no class, or for a class above its ceiling, gets
        the ceiling.
        """
        if ceiling is None:
            return self[asked or DEFAULT_CLASS].name
        most = self[ceiling]
        known = None if asked is None else self._by_name.get(asked)
        return known.name if known is not None and known.priority <= most.priority else most.name
