"""Session migrations and re-routes in sentences: what moved, what was promised, and whether it came true."""

from typing import Protocol

from fairlead.reports.bindings import BindingReason
from fairlead.routing.contracts.weighing import Unit
from fairlead.routing.explanations.explaining import in_words

TRIGGERS = {
    BindingReason.COLD: "it had no home yet",
    BindingReason.HOT_MIGRATION: "its host was hot",
    BindingReason.SLO: "another instance promised an earlier first token",
    BindingReason.HOTSPOT: "the queue it waited in was overloaded",
    BindingReason.DRAIN: "its instance drained",
    BindingReason.INSTANCE_LOST: "its instance was gone or failing",
    BindingReason.ENGINE_STALLED: "its instance's engine made no progress",
    BindingReason.RING_CHANGE: "instances came or went, and its place on the ring is another",
    BindingReason.PREFIX_KEY: "its prefix's key grew or shrank with the prefix's heat, and its place on the ring is another",
    BindingReason.NO_ROOM: "where its session was to move there was no room for its context any more, so both stay where the session is",
    BindingReason.SESSION_MOVED: "its session had moved with another request meanwhile, and it followed",
    BindingReason.OPERATOR: "a person asked for it",
}
"""Why something moved, by trigger."""


class TimedMove(Protocol):
    """What a sentence about a move is made from."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def trigger(self) -> str: ...

    @property
    def predicted_source_ttft_seconds(self) -> float | None: ...

    @property
    def predicted_target_ttft_seconds(self) -> float | None: ...

    @property
    def benefit_seconds(self) -> float | None: ...

    @property
    def actual_ttft_seconds(self) -> float | None: ...

    @property
    def paid_off(self) -> bool | None: ...


def explain_move(move: TimedMove, what: str) -> str:
    """What moved and why, what was predicted, and whether it paid off. `what` is the session or the request."""
    known = {reason.value: words for reason, words in TRIGGERS.items()}
    why = known.get(move.trigger, move.trigger)
    return f"{what} went from {move.source} to {move.target}: {why}. {promise(move)} {verdict(move)}"


def promise(move: TimedMove) -> str:
    """What staying and moving were predicted to take. A loss is called one."""
    stay, go, benefit = move.predicted_source_ttft_seconds, move.predicted_target_ttft_seconds, move.benefit_seconds
    if stay is None or go is None or benefit is None:
        return "What staying would have taken was not predicted."
    gained = f"{_words(benefit)} sooner" if benefit > 0 else "no difference" if benefit == 0 else f"{_words(-benefit)} later"
    return f"Staying was predicted to take {_words(stay)} to the first token, going {_words(go)}: {gained}."


def verdict(move: TimedMove) -> str:
    """Whether the move was worth it."""
    stay, actual = move.predicted_source_ttft_seconds, move.actual_ttft_seconds
    if actual is None:
        return "Whether it paid off is not known: no first token was reported for the request that went."
    if stay is None:
        return f"Whether it paid off is not known; the first token came after {_words(actual)}."
    if actual >= stay:
        return f"It did not pay off: the first token came after {_words(actual)}, {_words(actual - stay)} later than predicted for staying."
    if move.paid_off:
        return f"It paid off: the first token came after {_words(actual)}, {_words(stay - actual)} sooner than predicted for staying."
    return (
        f"Whether it paid off cannot be said: the first token came after {_words(actual)}, {_words(stay - actual)} sooner than predicted for "
        "staying, but no gain had been predicted."
    )


def _words(seconds: float) -> str:
    return in_words(seconds, Unit.SECONDS)
