"""Rules of comments: the permitted text and range. Pure."""

from datetime import datetime, timedelta
from unicodedata import category

from fairlead.errors import InvalidInput
from fairlead_api.infra.times import parse_time
from fairlead_client.resources.comments import CommentRequest

LONGEST_TEXT = 1000
LONGEST_PLAN = 100
LONGEST_RANGE = timedelta(days=92)
LATE = timedelta(minutes=1)
"""Maximum time from now to the end of a comment's range. It is not 0, because the clocks of people and of the API
differ.
"""
MOST_OWN = 500
"""Maximum number of comments of one person on one pool."""


def text_of(request: CommentRequest) -> str:
    """Return the comment's text without surrounding spaces. Raises InvalidInput."""
    text = request.text.replace("\r\n", "\n").strip()
    if not 1 <= len(text) <= LONGEST_TEXT:
        raise InvalidInput("text", f"{len(text)} characters", f"write 1 to {LONGEST_TEXT:,} characters")
    if (odd := next((one for one in text if not _is_shown(one)), None)) is not None:
        raise InvalidInput("text", f"U+{ord(odd):04X}", "remove this character: it is invisible, or changes how other characters are shown")
    return text


def _is_shown(one: str) -> bool:
    """Return whether a character may be in a comment: a printable character, a kind of space, or a character that joins
    its neighbours.
    """
    return one.isprintable() or one in "\n\t\u200c\u200d" or category(one) == "Zs"


def range_of(request: CommentRequest, now: datetime) -> tuple[datetime, datetime] | None:
    """Return the time range of the comment; None for a comment on a plan. Raises InvalidInput."""
    if request.plan is not None:
        if request.start is not None or request.end is not None:
            raise InvalidInput("plan", request.plan[: LONGEST_PLAN + 1], "name a plan, or start and end, not both")
        if len(request.plan) > LONGEST_PLAN:
            raise InvalidInput("plan", request.plan[: LONGEST_PLAN + 1], "write the plan's id")
        return None
    if request.start is None:
        raise InvalidInput("start", None, "write when the range begins, or name a plan")
    start, end = parse_time("start", request.start, now), parse_time("end", request.end or "now", now)
    if start >= end:
        raise InvalidInput("start", request.start, "write a time before the end")
    if end > now + LATE:
        raise InvalidInput("end", request.end, "write a time that is not in the future")
    if end - start > LONGEST_RANGE:
        raise InvalidInput("start", request.start, f"write a range of at most {LONGEST_RANGE.days} days")
    return start, end
