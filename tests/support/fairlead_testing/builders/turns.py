"""Recorded requests as turns of sessions."""

from typing import Any

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.traffic import RecordedRequest, salt_of, session_number
from fairlead_testing.builders.routing_tables import CHAT

AT = 1_800_000_000.0
"""The Unix time of the first turns, by default."""


def a_turn(session: str, *blocks: int, at: float = AT, **changes: Any) -> RecordedRequest:
    """Return a served turn of a session. Its prompt has these blocks and ten more tokens."""
    values: dict[str, Any] = {
        "prompt_tokens": 512 * len(blocks) + 10,
        "output_tokens": 20,
        "instance": "a",
        "sent_seconds": 0.5,
        "ttft_seconds": 0.25,
        "answer_seconds": 1.5,
        "ended_seconds": 2.0,
        "outcome": RequestOutcome.SERVED,
        "cached_tokens": 512 * max(0, len(blocks) - 1),
        "tenant": "",
        "name": session,
    }
    number = session_number(salt_of("uid-1"), session)
    return RecordedRequest(pool=CHAT, at=at, session=number, blocks=blocks, **{**values, **changes})
