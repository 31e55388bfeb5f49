"""The messages that one tab receives: events of the API, and parts of its page.

The API's stream is split into events, and fields that no script of the page reads are removed. This matters because a
pool of 500 instances sends 200 kB every two seconds, of which a page reads only the event's name, or one figure per
instance. A tab receives only the rendered parts that have changed.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

Reads = Mapping[str, frozenset[str]]
"""For each topic, the fields of the topic's items that the page's scripts read."""
MOST_READS = 1000
_FIELD = re.compile(r"[a-z_0-9]{1,40}")
_END = b"\n\n"


class EventCutter:
    """Joins the chunks of a stream and splits them into whole events, each including the empty line at its end."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk, and return the events that are now complete."""
        *whole, self._rest = (self._rest + chunk).split(_END)
        return [one + _END for one in whole]


def value_of(event: bytes, name: bytes) -> str:
    """Return the value of the line `name` of an event, such as `event: pools`; empty if the event has no such line."""
    found = next((line for line in event.split(b"\n", 2)[:2] if line.startswith(name + b": ")), b"")
    return found.partition(b": ")[2].decode(errors="replace")


def reads_of(header: str | None) -> Reads | None:
    """Return the fields that a page reads, from a request header such as `instances=id,pool,running migrations=id`;
    None without the header.
    """
    if header is None:
        return None
    found: dict[str, frozenset[str]] = {}
    for topic, _, fields in (one.partition("=") for one in header[:MOST_READS].split()):
        found[topic] = found.get(topic, frozenset()) | {one for one in fields.split(",") if _FIELD.fullmatch(one)}
    return found


def slimmed(event: bytes, reads: Reads | None) -> bytes:
    """Return the event with all its items, but only with the fields that the page reads; unchanged if these fields are
    not known.
    """
    if reads is None:
        return event
    return _with(event, reads.get(value_of(event, b"event"), frozenset()))


@lru_cache(maxsize=16)
def _with(event: bytes, fields: frozenset[str]) -> bytes:
    """Return the event with only these fields. The result is computed once for all streams that need the same event
    with the same fields.
    """
    head, found, data = event.partition(b"\ndata: ")
    if not found or not data.startswith(b"["):
        return event
    items = [{name: one[name] for name in one if name in fields} for one in msgspec.json.decode(data, type=list[dict[str, object]])]
    return head + found + msgspec.json.encode(items) + _END


_AGES = re.compile(rb"<time.*?</time>", re.DOTALL)
_BEGIN = b'<hx-partial hx-target="#'


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One rendered part as it is sent in an event, with two digests: one of the whole part, and one of the part without
    ages.
    """

    told: bytes
    digest: bytes
    ageless: bytes


class PartsSent:
    """Remembers the parts that were last sent to one tab."""

    def __init__(self) -> None:
        self._known: dict[bytes, Part] = {}

    def message(self, html: bytes, *, whole: bool) -> bytes:
        """Return an event with the parts of `html` that differ from those last sent; empty if only ages differ. With
        `whole`, every part is sent again.

        If other content has changed, parts with only changed ages are sent too, so that all ages on the page are of the
        same time.
        """
        parts = _cut(html)
        known = self._known
        if not whole and all(name in known and known[name].ageless == part.ageless for name, part in parts.items()):
            return b""
        chosen = [part.told for name, part in parts.items() if whole or name not in known or known[name].digest != part.digest]
        known.update(parts)
        return b"data: " + b"".join(chosen) + b"\n\n" if chosen else b""


@lru_cache(maxsize=32)
def _cut(html: bytes) -> dict[bytes, Part]:
    """Cut a rendering into its named parts, once for all tabs that get it."""
    found = {}
    for rest in html.split(_BEGIN)[1:]:
        part = _BEGIN + rest
        found[rest.partition(b'"')[0]] = Part(
            told=b"\ndata: ".join(part.splitlines()),
            digest=_digest(part),
            ageless=_digest(_AGES.sub(b"", part)),
        )
    return found


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
