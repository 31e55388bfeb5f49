"""What a tab already has of its page's parts, so that it is sent the others only."""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

_AGES = re.compile(rb"<time.*?</time>", re.DOTALL)
_BEGIN = b'<hx-partial hx-target="#'


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One rendered part as an event has it, and digests of it and of it without its ages."""

    told: bytes
    digest: bytes
    ageless: bytes


class PartsSent:
    """The parts that one tab was sent last."""

    def __init__(self) -> None:
        self._known: dict[bytes, Part] = {}

    def message(self, html: bytes, *, whole: bool) -> bytes:
        """An event with the parts that differ, empty if nothing but ages does; `whole` sends every part once more.

        Ages come along with the rest, so that all that a message says is of one time.
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
    """The parts by their names; done once for all tabs that are sent the same rendering."""
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
