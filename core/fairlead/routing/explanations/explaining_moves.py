"""Session migrations and re-routes in sentences: what moved, the predicted gain, and the actual one."""

from typing import Protocol

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import CacheFate
from fairlead.routing.contracts.weighing import Unit
from fairlead.routing.explanations.explaining import in_words, pair_in_words
from fairlead.routing.explanations.move_checking import CausedMove

TRIGGERS = {
    BindingReason.COLD: "it had no home yet",
    BindingReason.HOT_MIGRATION: "its host was hot",
    BindingReason.SLO: "another instance promised an earlier first token",
    BindingReason.PREFIX_EQUAL: "both held as much of its prompt, and the other had less to do",
    BindingReason.PREFIX_AFFINITY: "the other held more of its prompt",
    BindingReason.PREFIX_OUTWEIGHED: "more of its prompt was cached where it was, but what waited there outweighed that",
    BindingReason.BEST_SCORE: "the other had the better score",
    BindingReason.DRAWN: "the other was drawn by chance",
    BindingReason.FILTERED_OUT: "the policy's filters did not pass its instance",
    BindingReason.HOTSPOT: "the queue it waited in was overloaded",
    BindingReason.DRAIN: "its instance drained",
    BindingReason.INSTANCE_LOST: "its instance was gone or failing",
    BindingReason.ENGINE_STALLED: "its instance's engine made no progress",
    BindingReason.QUEUE_FULL: "the queue of its instance was full",
    BindingReason.OUTSIDE_SUBSET: "the gateway in front does not allow its instance for the request",
    BindingReason.IDLE_INSTANCE: "by estimates it would have been refused, and an idle instance took it",
    BindingReason.RING_CHANGE: "instances joined or left, and its place on the ring changed",
    BindingReason.PREFIX_KEY: "its prefix's key grew or shrank with the prefix's heat, and its place on the ring is another",
    BindingReason.OFF_RING: "it had been placed away from the instances that its prefix belongs to, and went back to one",
    BindingReason.NO_ROOM: "where its session was to move there was no room for its context any more, so both stay where the session is",
    BindingReason.SESSION_MOVED: "its session had moved with another request meanwhile, and it followed",
    BindingReason.OPERATOR: "a person asked for it",
}
"""Why something moved, by trigger."""

_PLACES = frozenset({BindingReason.RING_CHANGE, BindingReason.PREFIX_KEY, BindingReason.OFF_RING})
"""Triggers that follow a prefix's place."""

_LATE = "staying was predicted to miss the TTFT target"
"""What `slo` means of a move that tells the number: those of earlier releases had that word for other causes too."""

_NUMBERS = {
    BindingReason.SLO: "{0} to the first token, and the target is {1}",
    BindingReason.PREFIX_AFFINITY: "{0} against {1}",
    BindingReason.BEST_SCORE: "{0} against {1}",
    BindingReason.HOTSPOT: "{0}, and the limit is {1}",
    BindingReason.QUEUE_FULL: "{0} waited, and the limit is {1}",
}
_NUMBERS_BY_UNIT = {
    (BindingReason.HOT_MIGRATION, Unit.TOKENS): "{0} were to be computed there, and the limit is {1}",
    (BindingReason.HOT_MIGRATION, Unit.SECONDS): "{0} to the first token were predicted there, and {1} still count as in time",
    (BindingReason.PREFIX_EQUAL, Unit.TOKENS): "{0} waited there, {1} where it went",
    (BindingReason.PREFIX_EQUAL, Unit.SECONDS): "the policy's cost of staying was {0}, of going {1}",
    (BindingReason.PREFIX_OUTWEIGHED, Unit.TOKENS): "{0} were to be computed there, {1} where it went",
    (BindingReason.PREFIX_OUTWEIGHED, Unit.SECONDS): "the policy's cost of staying was {0}, of going {1}",
}
"""The wording of the deciding number, by trigger; see `fairlead.reports.moves.MoveCause`."""


class TimedMove(CausedMove, Protocol):
    """The facts for a sentence about a move: its cause, its ends, and its result."""

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def predicted_target_ttft_seconds(self) -> float | None: ...

    @property
    def actual_ttft_seconds(self) -> float | None: ...

    @property
    def tokens_moved(self) -> int: ...

    @property
    def tokens_recomputed(self) -> int: ...

    @property
    def cache(self) -> str | None: ...

    @property
    def transfer_seconds(self) -> float | None: ...

    @property
    def predicted_transfer_seconds(self) -> float | None: ...

    @property
    def transfer_bytes(self) -> int | None: ...

    @property
    def handed_over(self) -> bool: ...

    @property
    def paid_off(self) -> bool | None: ...


HANDED_OVER = "A router handed it over before its next turn: it asked the target for the session's last prompt."
"""What `Move.handed_over` says in words."""


def explain_move(move: TimedMove, what: str) -> str:
    """What moved and why, the prediction, and the result. `what` is the session or the request."""
    along = " ".join(filter(None, (HANDED_OVER if move.handed_over else "", transfer_in_words(move))))
    return f"{what} went from {move.source} to {move.target}: {cause(move)}. {promise(move)} {along + ' ' if along else ''}{verdict(move)}"


NOT_MOVED = {
    CacheFate.UNNAMED: "{source} computed it and did not say where its blocks are; start the engine with a connector that hands them on",
    CacheFate.REFUSED: "an engine refused",
    CacheFate.LOST: "an engine did not answer",
    CacheFate.LATE: "it took too long",
}
"""Why a KV cache did not come along."""


def transfer_in_words(move: TimedMove) -> str:
    """Whether the KV cache came along, how long that took and what was predicted; "" where nobody tried."""
    if move.cache is None or move.transfer_seconds is None:
        return ""
    took = f"after {_words(move.transfer_seconds)}"
    if move.predicted_transfer_seconds is not None:
        took += f" ({_words(move.predicted_transfer_seconds)} predicted)"
    if move.cache == CacheFate.MOVED:
        size = "" if move.transfer_bytes is None else f", {move.transfer_bytes / 1e6:,.1f} MB,"
        return f"Its KV cache, {in_words(move.tokens_moved, Unit.TOKENS)}{size} came along {took}."
    why = NOT_MOVED[CacheFate(move.cache)].format(source=move.source)
    return f"Its KV cache did not come along: {why}. That was known {took}, and {move.target} computed it."


def cause(move: TimedMove) -> str:
    """Why it moved: the number that decided and the threshold that it crossed, if they are recorded."""
    known = {reason.value: reason for reason in BindingReason}
    trigger = known.get(move.trigger)
    if trigger is None:
        return move.trigger
    if move.crossed is None or move.threshold is None or move.crossed_unit is None:
        return TRIGGERS[trigger]
    unit = Unit(move.crossed_unit)
    words = _LATE if trigger is BindingReason.SLO else TRIGGERS[trigger]
    told = _NUMBERS.get(trigger) or _NUMBERS_BY_UNIT.get((trigger, unit))
    return words if told is None else f"{words} ({told.format(*pair_in_words(move.crossed, move.threshold, unit))})"


def cause_facts(move: TimedMove) -> list[tuple[str, str]]:
    """The recorded numbers of the cause, each with its name; empty for moves without numbers."""
    found: list[tuple[str, str]] = []
    if move.crossed is not None and move.threshold is not None and move.crossed_unit is not None:
        crossed, threshold = pair_in_words(move.crossed, move.threshold, Unit(move.crossed_unit))
        found.append(("decided by", f"{crossed} against {threshold}"))
    if move.source_hit_tokens is not None and move.target_hit_tokens is not None:
        here, there = in_words(move.source_hit_tokens, Unit.TOKENS), in_words(move.target_hit_tokens, Unit.TOKENS)
        found.append(("cached prompt", f"{here} where it was, {there} where it went"))
    if move.least_gain_seconds is not None:
        found.append(("least gain", _words(move.least_gain_seconds) if move.least_gain_seconds > -3600 else "any"))
    return found


def promise(move: TimedMove) -> str:
    """The predicted seconds of staying and of moving; a predicted loss is named as a loss."""
    stay, go, benefit = move.predicted_source_ttft_seconds, move.predicted_target_ttft_seconds, move.benefit_seconds
    if stay is None or go is None or benefit is None:
        return "What staying would have taken was not predicted."
    gained = f"{_words(benefit)} faster" if benefit > 0 else "no difference" if benefit == 0 else f"{_words(-benefit)} slower"
    told = f"Staying was predicted to take {_words(stay)} to the first token, going {_words(go)}: {gained}."
    follows = benefit < 0 and move.trigger in _PLACES
    return f"{told} It moved anyway, as its requests follow the prefix's place whatever that costs." if follows else told


def verdict(move: TimedMove) -> str:
    """Whether going was faster than staying was predicted to be, and whether that had been foreseen."""
    stay, actual = move.predicted_source_ttft_seconds, move.actual_ttft_seconds
    if actual is None:
        return "Whether it was faster is not known: no first token was reported for the request that went."
    if stay is None:
        return f"Whether it was faster is not known; the first token came after {_words(actual)}."
    if actual >= stay:
        slower = "as long as" if actual == stay else f"{_words(actual - stay)} longer than"
        return f"It was not faster: the first token took {_words(actual)}, {slower} predicted for staying."
    faster = f"the first token took {_words(actual)}, {_words(stay - actual)} less than predicted for staying"
    return f"It was faster: {faster}." if move.paid_off else f"It was faster, which had not been predicted: {faster}."


def _words(seconds: float) -> str:
    return in_words(seconds, Unit.SECONDS)
