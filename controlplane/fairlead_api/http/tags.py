"""Entity tags: which version of an answer somebody has seen, and whether a change may build on it."""

import re
from typing import Annotated

import msgspec
import xxhash
from fastapi import Header

from fairlead.errors import InvalidInput
from fairlead_api.infra.errors import Changed

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"\s*(?:\*|{_TAG}(?:\s*,\s*{_TAG})*)\s*")

IfMatch = Annotated[
    str | None,
    Header(max_length=1000, description="The ETag that was read; a change of what is another by now is refused with 412."),
]


def tag_of(content: bytes) -> str:
    """The strong tag of a representation: equal bytes, equal tag."""
    return f'"{xxhash.xxh3_128_hexdigest(content)}"'


def matches(header: str, tag: str) -> bool:
    """Whether If-None-Match names the tag, compared weakly as RFC 9110 wants."""
    return header.strip() == "*" or tag in re.findall(_TAG, header.replace("W/", ""))


def require_unchanged(if_match: str | None, what: str, present: object) -> None:
    """Raises Changed unless If-Match is left out or names the present state, as a GET answers it; InvalidInput for what
    is no list of tags. A weak tag names nothing here.
    """
    if if_match is None:
        return
    if not _TAGS.fullmatch(if_match):
        raise InvalidInput("if-match", if_match, 'write the ETag as it came, in its quotes ("…"), or *')
    tag = tag_of(msgspec.json.encode(present))
    if if_match.strip() != "*" and tag not in [one for one in re.findall(_TAG, if_match) if not one.startswith("W/")]:
        raise Changed(what, tag)
