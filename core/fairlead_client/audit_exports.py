"""Exports of the audit log, which anybody can verify without the API: the hash chain of their entries, and a signature
of the chain's end. Pure.

An export is a file of JSON lines: a head with the hash before the first entry, the entries in the form that is hashed,
and an end with the number of entries and a signature. Each hash covers its entry and the hash before it, so the
signature of head and last hash covers every entry.
"""

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

FORMAT = "fairlead-audit/1"
SEED_BYTES = 32
DEEPEST = 64
"""Maximum number of nested lists and objects in an entry; the API's entries have fewer."""
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportVerdict:
    """The result of verifying an export: its number of entries, their first and last id and time, and the signer.

    `fault` is the first error found, in words; None if there is none. `key` is the signer's public key in hexadecimal,
    None for an export without a signature.
    """

    entries: int = 0
    first: int | None = None
    last: int | None = None
    start: str = ""
    end: str = ""
    key: str | None = None
    fault: str | None = None


Checks = Callable[[str, str, bytes], bool]
"""A function that checks whether a public key (hexadecimal) made a signature (hexadecimal) of a message."""


def chained(previous: str, content: dict[str, Any]) -> str:
    """Return the hash of an entry, given the hash of the previous entry."""
    return hashlib.sha256(f"{previous}\n{canonical(content)}".encode()).hexdigest()


def canonical(content: dict[str, Any]) -> str:
    """Return a document in the canonical form that is hashed."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def signed_message(head: dict[str, Any], last: str) -> bytes:
    """Return the message that is signed for an export: its head, and the hash of its last entry."""
    return f"{canonical(head)}\n{last}".encode()


def genesis_of(day: str) -> str:
    """Return the hash that stands before the log's first entry; `day` is the day of that entry (YYYY-MM-DD)."""
    return hashlib.sha256(f"fairlead audit {day}".encode()).hexdigest()


def verified(lines: Iterable[bytes], checks: Checks, key: str | None = None) -> ExportVerdict:
    """Return the verdict on an export, which is checked line by line. `key` is the public key that must have signed it;
    None accepts any signer.
    """
    documents = _documents(lines)
    head = next(documents, None)
    if head is None or head.get("format") != FORMAT:
        return ExportVerdict(fault=f"the file does not begin with a line of format {FORMAT}")
    told = {"start": str(head.get("start", "")), "end": str(head.get("end", "")), "key": head.get("key")}
    previous: str | None = head.get("previous")
    first = last = None
    count = 0
    for document in documents:
        if document is None:
            return ExportVerdict(**told, entries=count, first=first, last=last, fault=f"a line after entry {last} is not JSON")
        if "signature" in document:
            fault = _fault_of_end(head, document, previous, count, checks, key) or _fault_after(documents)
            return ExportVerdict(**told, entries=count, first=first, last=last, fault=fault)
        number, chain = document.get("id"), document.pop("chain", None)
        before = previous if previous is not None else genesis_of(str(document.get("at"))[:10])
        follows = type(number) is int and number == (number if last is None else last + 1)
        if chained(before, document) != chain or not follows:
            return ExportVerdict(**told, entries=count, first=first, last=last, fault=f"entry {number} was changed, added or moved")
        previous, last, first, count = chain, number, number if first is None else first, count + 1
    return ExportVerdict(**told, entries=count, first=first, last=last, fault="the file ends before its signature: it was cut off")


def _fault_of_end(head: dict[str, Any], end: dict[str, Any], last: str | None, count: int, checks: Checks, key: str | None) -> str | None:
    if end.get("entries") != count:
        return f"the file has {count} entries, and was made with {end.get('entries')}"
    if end.get("last") != last:
        return "its end does not have the hash of its last entry"
    signer, signature = head.get("key"), end["signature"]
    if key is not None and signer != key:
        return f"it was signed by {signer or 'nobody'}, not by {key}"
    if signature is None and signer is None:
        return None
    if signature is None:
        return f"it names the key {signer}, and has no signature"
    genuine = isinstance(signer, str) and checks(signer, signature, signed_message(head, last or ""))
    return None if genuine else "its signature is not that of its key"


def _fault_after(documents: Iterator[object]) -> str | None:
    return "there is more after its signature" if next(documents, None) is not None else None


def _documents(lines: Iterable[bytes]) -> Iterator[Any]:
    for line in lines:
        if line.strip():
            try:
                found = None if _nests_deeper(line) else json.loads(line)
            except ValueError:
                found = None
            yield found if isinstance(found, dict) else None


def _nests_deeper(line: bytes) -> bool:
    """Return whether a line nests deeper than any entry may; the depth that a JSON parser accepts differs between
    interpreters.
    """
    level = 0
    for byte in _STRING.sub(b"", line):
        level += (byte in b"[{") - (byte in b"]}")
        if level > DEEPEST:
            return True
    return False


def seed_of(text: str) -> bytes | None:
    """Return the 32 bytes of a signing key written in base64; None for any other text."""
    try:
        seed = b64decode(text.strip(), validate=True)
    except ValueError:
        return None
    return seed if len(seed) == SEED_BYTES else None
