"""Units of the figures that policies compare and records contain."""

from enum import StrEnum


class Unit(StrEnum):
    """The unit of a term or limit."""

    SECONDS = "seconds"
    TOKENS = "tokens"
    REQUESTS = "requests"
    SESSIONS = "sessions"
    SHARE = "share"
    SCORE = "score"
