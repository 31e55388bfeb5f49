"""Sentences about session migrations and re-routes: the session or request that moved, and the predicted and the actual
gain.
"""

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
    BindingReason.PREFIX_EQUAL: "both instances held as much of its prompt, and the new one had less to do",
    BindingReason.PREFIX_AFFINITY: "the new instance held more of its prompt",
    BindingReason.PREFIX_OUTWEIGHED: (
        "the old instance had more of its prompt cached, but also so much waiting work that moving was cheaper"
    ),
    BindingReason.BEST_SCORE: "the new instance had the better score",
    BindingReason.DRAWN: "the new instance was drawn at random",
    BindingReason.FILTERED_OUT: "the policy's filters excluded its instance",
    BindingReason.HOTSPOT: "the queue it waited in was overloaded",
    BindingReason.DRAIN: "its instance drained",
    BindingReason.INSTANCE_LOST: "its instance was gone or failing",
    BindingReason.ENGINE_STALLED: "its instance's engine made no progress",
    BindingReason.QUEUE_FULL: "the queue of its instance was full",
    BindingReason.OUTSIDE_SUBSET: "the gateway in front does not allow its instance for the request",
    BindingReason.IDLE_INSTANCE: "estimates alone would have refused it, so an idle instance took it",
    BindingReason.RING_CHANGE: "instances joined or left, and its place on the ring changed",
    BindingReason.PREFIX_KEY: "its prefix became hotter or colder, so its key and its place on the ring changed",
    BindingReason.OFF_RING: "it had been placed away from the instances that its prefix belongs to, and went back to one of them",
    BindingReason.NO_ROOM: (
        "the instance to which its session was to move no longer had room for its context, so it went back to the session's instance"
    ),
    BindingReason.SESSION_MOVED: "its session had moved with another request in the meantime, and it followed the session",
    BindingReason.OPERATOR: "a person asked for it",
    BindingReason.PREFIX_COPIED: "many sessions begin with this prefix, and the target did not hold it",
}
"""The reason for a move in words, by the move's trigger."""

_PLACES = frozenset({BindingReason.RING_CHANGE, BindingReason.PREFIX_KEY, BindingReason.OFF_RING})
"""Triggers of moves that follow a prefix to its new position on the hash ring."""

_LATE = "staying was predicted to miss the TTFT target"
"""The words for the trigger `slo` of a move with a recorded figure. A move without a figure was recorded by an earlier
release. `TRIGGERS` has the words for such moves, because earlier releases used this trigger for other causes too.
"""

_NUMBERS = {
    BindingReason.SLO: "{0} to the first token; the target is {1}",
    BindingReason.PREFIX_AFFINITY: "{0} against {1}",
    BindingReason.BEST_SCORE: "{0} against {1}",
    BindingReason.HOTSPOT: "{0} were predicted until the first token of its last request; the limit is {1}",
    BindingReason.QUEUE_FULL: "{0} waited, and the limit is {1}",
    BindingReason.PREFIX_COPIED: "the copy was predicted to save {0} of computing; the transfer and the least gain were {1}",
}
_NUMBERS_BY_UNIT = {
    (BindingReason.HOT_MIGRATION, Unit.TOKENS): "{0} were to be computed there, and the limit is {1}",
    (BindingReason.HOT_MIGRATION, Unit.SECONDS): "the first token was predicted there after {0}; up to {1} counts as in time",
    (BindingReason.PREFIX_EQUAL, Unit.TOKENS): "{0} waited at the old instance, {1} at the new one",
    (BindingReason.PREFIX_EQUAL, Unit.SECONDS): "the policy's cost of staying was {0}, of going {1}",
    (BindingReason.PREFIX_OUTWEIGHED, Unit.TOKENS): "{0} were to be computed at the old instance, {1} at the new one",
    (BindingReason.PREFIX_OUTWEIGHED, Unit.SECONDS): "the policy's cost of staying was {0}, of going {1}",
}
"""Sentence templates for the two numbers of a move's cause, by trigger and unit; see
`fairlead.reports.moves.MoveCause`.
"""


class TimedMove(CausedMove, Protocol):
    """The recorded facts from which a sentence about a move is made: cause, source, target and result."""

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


HANDED_OVER = "A router moved it before its next turn: the router sent the session's last prompt to the target."
"""The sentence for moves with `Move.handed_over`."""


def explain_move(move: TimedMove, what: str) -> str:
    """Return sentences about a move: the moved session or request, the reason, the prediction and the result. `what`
    names the session or the request.
    """
    if move.trigger == BindingReason.PREFIX_COPIED:
        return f"A prefix was copied from {move.source} to {move.target}: {cause(move)}. {transfer_in_words(move)}"
    along = " ".join(filter(None, (HANDED_OVER if move.handed_over else "", transfer_in_words(move))))
    return f"{what} went from {move.source} to {move.target}: {cause(move)}. {promise(move)} {along + ' ' if along else ''}{verdict(move)}"


NOT_MOVED = {
    CacheFate.UNNAMED: "{source} computed the prompt but did not name its KV blocks; start the engine with a KV connector",
    CacheFate.REFUSED: "an engine refused",
    CacheFate.LOST: "an engine did not answer",
    CacheFate.LATE: "it took too long",
}
"""Reasons why a KV cache was not transferred, in words, by the recorded outcome."""


def transfer_in_words(move: TimedMove) -> str:
    """Return a sentence about the transfer of the KV cache: whether it succeeded, how long it took and how long it was
    predicted to take. Empty ("") if no transfer was tried or its time is unknown.
    """
    if move.cache is None or move.transfer_seconds is None:
        return ""
    took = f"after {_words(move.transfer_seconds)}"
    if move.predicted_transfer_seconds is not None:
        took += f" ({_words(move.predicted_transfer_seconds)} predicted)"
    if move.cache == CacheFate.MOVED:
        size = "," if move.transfer_bytes is None else f", {move.transfer_bytes / 1e6:,.1f} MB,"
        return f"Its KV cache, {in_words(move.tokens_moved, Unit.TOKENS)}{size} was transferred {took}."
    why = NOT_MOVED[CacheFate(move.cache)].format(source=move.source)
    instead = "nobody waited for it" if move.trigger == BindingReason.PREFIX_COPIED else f"{move.target} computed it"
    return f"Its KV cache was not transferred: {why}. This was known {took}, and {instead}."


def cause(move: TimedMove) -> str:
    """Return the cause of the move in words, with the deciding figure and the threshold that it crossed, if they are
    recorded.
    """
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
    """Return the recorded numbers of the move's cause, each with its name; empty for moves without recorded numbers."""
    found: list[tuple[str, str]] = []
    if move.crossed is not None and move.threshold is not None and move.crossed_unit is not None:
        crossed, threshold = pair_in_words(move.crossed, move.threshold, Unit(move.crossed_unit))
        found.append(("decided by", f"{crossed} against {threshold}"))
    if move.source_hit_tokens is not None and move.target_hit_tokens is not None:
        here, there = in_words(move.source_hit_tokens, Unit.TOKENS), in_words(move.target_hit_tokens, Unit.TOKENS)
        found.append(("cached prompt", f"{here} at the old instance, {there} at the new one"))
    if move.least_gain_seconds is not None:
        found.append(("least gain", _words(move.least_gain_seconds) if move.least_gain_seconds > -3600 else "any"))
    return found


def promise(move: TimedMove) -> str:
    """Return a sentence with the TTFTs in seconds that were predicted for staying and for moving, and with the
    predicted gain or loss.
    """
    stay, go, benefit = move.predicted_source_ttft_seconds, move.predicted_target_ttft_seconds, move.benefit_seconds
    if stay is None and move.trigger is BindingReason.INSTANCE_LOST:
        return "It could not stay, so no time was predicted for staying."
    if stay is None or go is None or benefit is None:
        return "No time was predicted for staying."
    gained = f"{_words(benefit)} faster" if benefit > 0 else "no difference" if benefit == 0 else f"{_words(-benefit)} slower"
    told = f"Staying was predicted to take {_words(stay)} to the first token, moving {_words(go)}: {gained}."
    follows = benefit < 0 and move.trigger in _PLACES
    return f"{told} It moved anyway, because its requests always follow the prefix's place on the ring." if follows else told


def verdict(move: TimedMove) -> str:
    """Return a sentence that compares the actual TTFT after the move with the TTFT predicted for staying. If the move
    was faster although a loss had been predicted, the sentence says so.
    """
    stay, actual = move.predicted_source_ttft_seconds, move.actual_ttft_seconds
    if actual is None:
        return "Whether it was faster is not known: no first token was reported for the moved request."
    if stay is None:
        return f"Whether it was faster is not known; the first token came after {_words(actual)}."
    if actual >= stay:
        slower = "as long as" if actual == stay else f"{_words(actual - stay)} longer than"
        return f"It was not faster: the first token took {_words(actual)}, {slower} predicted for staying."
    faster = f"the first token took {_words(actual)}, {_words(stay - actual)} less than predicted for staying"
    return f"It was faster: {faster}." if move.paid_off else f"It was faster, which had not been predicted: {faster}."


def _words(seconds: float) -> str:
    return in_words(seconds, Unit.SECONDS)
