"""Units of the figures that policies compare and records contain."""

from enum import StrEnum


class Unit(StrEnum):
    """What a term or limit is measured in."""

    SECONDS = "seconds"
    TOKENS = "tokens"
    REQUESTS = "requests"
    SESSIONS = "sessions"
    SHARE = "share"
    SCORE = "score"
