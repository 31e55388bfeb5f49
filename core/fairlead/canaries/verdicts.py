"""The words of a judge of canaries, which the operator reads too."""

from enum import StrEnum


class Verdict(StrEnum):
    """What to do with a step, or what one metric says of it."""

    GO = "go"
    WAIT = "wait"
    BACK = "back"
