"""The API's events on their way to a page: cut where they end, and their items without what no script of it reads.

A pool of 500 instances tells 200 kB every two seconds, of which a page reads the event's name, or one figure of each.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

Reads = Mapping[str, frozenset[str]]
"""By topic the fields of its items that scripts of a page read."""
MOST_READS = 1000
_FIELD = re.compile(r"[a-z_0-9]{1,40}")
_END = b"\n\n"


class EventCutter:
    """Puts a stream's chunks together and cuts them into whole events, each with the empty line that ends it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are whole now."""
        *whole, self._rest = (self._rest + chunk).split(_END)
        return [one + _END for one in whole]


def value_of(event: bytes, name: bytes) -> str:
    """A line's value such as that of `event: pools`; empty where the event has no such line."""
    found = next((line for line in event.split(b"\n", 2)[:2] if line.startswith(name + b": ")), b"")
    return found.partition(b": ")[2].decode(errors="replace")


def reads_of(header: str | None) -> Reads | None:
    """What a browser says its page reads: `instances=id,pool,running migrations=id`; None if it does not say."""
    if header is None:
        return None
    found: dict[str, frozenset[str]] = {}
    for topic, _, fields in (one.partition("=") for one in header[:MOST_READS].split()):
        found[topic] = found.get(topic, frozenset()) | {one for one in fields.split(",") if _FIELD.fullmatch(one)}
    return found


def slimmed(event: bytes, reads: Reads | None) -> bytes:
    """The event with as many items, which have only the fields that are read; whole where it is not known what is."""
    if reads is None:
        return event
    return _with(event, reads.get(value_of(event, b"event"), frozenset()))


@lru_cache(maxsize=16)
def _with(event: bytes, fields: frozenset[str]) -> bytes:
    """Made once for all streams that carry the event to such a page."""
    head, found, data = event.partition(b"\ndata: ")
    if not found or not data.startswith(b"["):
        return event
    items = [{name: one[name] for name in one if name in fields} for one in msgspec.json.decode(data, type=list[dict[str, object]])]
    return head + found + msgspec.json.encode(items) + _END
