"""Facets: the values by which a list can be filtered, each with its number of rows and a link that toggles it. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead_web.text.addresses import Here


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """One value of a facet. `url` chooses the value, or clears the choice if the value is `chosen`."""

    words: str
    count: int
    chosen: bool
    url: str


def facet(here: Here, name: str, values: Iterable[str]) -> list[Facet]:
    """Return the distinct values in order, as facets for the query parameter `name` of this address."""
    now = here.params.get(name)
    return [
        Facet(words=words, count=count, chosen=words == now, url=here.url(**{name: None if words == now else words}))
        for words, count in sorted(Counter(values).items())
    ]
