"""The kinds that are served now: the built-in kinds, and the kinds of the stored definitions."""

from __future__ import annotations

from collections.abc import Iterator

from processkube.kubernetes_api.kinds.custom_resources import kinds_of
from processkube.kubernetes_api.kinds.kinds import ResourceKind, builtin_kinds
from processkube.kubernetes_api.objects.objects import Object


class Registry:
    """The served kinds by group, version and plural.

    `generation` changes with every change of the kinds, so that data derived from them can be computed again.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], ResourceKind] = {}
        self.generation = 0
        for kind in builtin_kinds():
            self._add(kind)

    def find(self, group: str, version: str, plural: str) -> ResourceKind | None:
        return self._kinds.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> ResourceKind | None:
        return next((one for one in self if one.api_version == api_version and one.kind == kind), None)

    def by_storage(self, storage: str) -> ResourceKind | None:
        """Return the kind whose objects have this storage key, in its storage version; None if there is none."""
        return next((one for one in self if one.resource == storage and one.version == one.storage_version), None) or next(
            (one for one in self if one.storage == storage), None
        )

    def __iter__(self) -> Iterator[ResourceKind]:
        return iter(tuple(self._kinds.values()))

    def versions(self) -> list[tuple[str, str]]:
        """Return the served (group, version) pairs in the order in which they were added. The core group comes
        first.
        """
        return list(dict.fromkeys((kind.group, kind.version) for kind in self))

    def define(self, crd: Object) -> None:
        """Serve the kinds of a definition. They replace the kinds of the definition's earlier content."""
        self.forget(crd)
        for kind in kinds_of(crd):
            self._add(kind)

    def forget(self, crd: Object) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        for key in [key for key, kind in self._kinds.items() if kind.custom and (key[0], key[2]) == (group, plural)]:
            del self._kinds[key]
        self.generation += 1

    def _add(self, kind: ResourceKind) -> None:
        self._kinds[kind.group, kind.version, kind.plural] = kind
        self.generation += 1
