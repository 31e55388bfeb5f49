"""Finds the objects whose label selectors match given labels, without trying all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from processkube.kubernetes_api.objects.selectors import LabelSelector
from processkube.kubernetes_api.storing.store import Key, Label


class SelectorIndex:
    """An index of the selectors of objects of one kind, by a label that each selector requires."""

    def __init__(self) -> None:
        self._selectors: dict[Key, LabelSelector] = {}
        self._asking: dict[Label | None, set[Key]] = {}

    def note(self, key: Key, selector: LabelSelector | None) -> None:
        """Record an object's selector; None for an object that is gone."""
        if (known := self._selectors.pop(key, None)) is not None:
            self._asking[known.label()].discard(key)
        if selector is not None:
            self._selectors[key] = selector
            self._asking.setdefault(selector.label(), set()).add(key)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> Iterator[Key]:
        """Yield the objects of the namespace whose selectors match."""
        for label in (None, *labels.items()):
            for key in self._asking.get(label, ()):
                if key[0] == namespace and self._selectors[key].matches(dict(labels)):
                    yield key
