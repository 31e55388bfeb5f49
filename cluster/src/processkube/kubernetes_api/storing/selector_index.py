"""Finds the objects whose label selectors match given labels, without testing the selector of every object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from processkube.kubernetes_api.objects.selectors import LabelSelector
from processkube.kubernetes_api.storing.store import Key, Label


class SelectorIndex:
    """An index of objects of one kind by a label that their selector requires."""

    def __init__(self) -> None:
        self._selectors: dict[Key, LabelSelector] = {}
        self._asking: dict[Label | None, set[Key]] = {}

    def note(self, key: Key, selector: LabelSelector | None) -> None:
        """Record an object's selector; None if the object is gone."""
        if (known := self._selectors.pop(key, None)) is not None:
            self._asking[known.label()].discard(key)
        if selector is not None:
            self._selectors[key] = selector
            self._asking.setdefault(selector.label(), set()).add(key)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> Iterator[Key]:
        """Yield the keys of the objects of a namespace whose selectors match the labels."""
        for label in (None, *labels.items()):
            for key in self._asking.get(label, ()):
                if key[0] == namespace and self._selectors[key].matches(dict(labels)):
                    yield key
