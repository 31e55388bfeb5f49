"""Makes a notice in the form in which it is sent: body and signed headers, according to the Standard Webhooks
specification. Pure.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from fairlead_client.resources.webhooks import NoticeForm, NoticeKind

SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix, no secret
SECRET_BYTES = 32
_SLACKS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""Characters that must be escaped in a text for Slack, each with its escaped form:
https://docs.slack.dev/messaging/formatting-message-text#escaping
"""
_LONGEST_WORDS = 3000
"""Maximum number of characters of a Slack message's text; Slack's own limit is far higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A notice that is to be sent. `facts` are for programs, `words` for people."""

    id: str
    kind: NoticeKind
    pool: str
    subject: str
    words: str
    facts: Mapping[str, Any]
    at: datetime
    form: NoticeForm
    secret: str = field(repr=False)


def new_secret(random: bytes) -> str:
    """Return a new secret as text, made from random bytes. A receiver verifies signatures with it."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def body(message: Message) -> bytes:
    """Return the body of a notice, which is the same in each attempt."""
    if message.form is NoticeForm.SLACK:
        return msgspec.json.encode({"text": message.words[:_LONGEST_WORDS].translate(_SLACKS)})
    at = message.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    data = {"pool": message.pool, "subject": message.subject, "words": message.words, **message.facts}
    return msgspec.json.encode({"type": message.kind.value, "timestamp": at, "data": data})


def headers(message: Message, content: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of an attempt that is made at `now`, with the signature."""
    seconds = str(int(now.timestamp()))
    return {
        "content-type": "application/json",
        "user-agent": "Fairlead",
        "webhook-id": message.id,
        "webhook-timestamp": seconds,
        "webhook-signature": signature(message.secret, message.id, seconds, content),
    }


def signature(secret: str, message_id: str, seconds: str, content: bytes) -> str:
    """Return the HMAC-SHA256 of the message's id, time and body, in the form of the signature header."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = b".".join((message_id.encode(), seconds.encode(), content))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
