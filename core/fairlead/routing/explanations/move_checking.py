"""Checks recorded moves for contradictions: each move's trigger is compared with the recorded numbers.

Moves recorded by earlier releases have no numbers; only their other fields are checked.
"""

from typing import Protocol

from fairlead.amounts import amount
from fairlead.reports.bindings import GAINING, BindingReason
from fairlead.reports.units import Unit

EXACT = 1e-6
"""Tolerance when sums of the same terms are compared, because the terms may have been added in another order."""

_EQUAL_MAY_DECIDE = frozenset(
    {BindingReason.PREFIX_COPIED, BindingReason.SLO, BindingReason.HOTSPOT, BindingReason.QUEUE_FULL, BindingReason.PREFIX_EQUAL}
)
_EQUAL_MAY_DECIDE_BY_TIES = frozenset({BindingReason.PREFIX_OUTWEIGHED, BindingReason.BEST_SCORE})
NUMBERED = _EQUAL_MAY_DECIDE | _EQUAL_MAY_DECIDE_BY_TIES | {BindingReason.HOT_MIGRATION, BindingReason.PREFIX_AFFINITY}
"""Triggers of moves that were decided by a figure. The record of such a move must have the figure."""


class CausedMove(Protocol):
    """The fields of a move that are checked against its cause; see `fairlead.reports.moves.Move`."""

    @property
    def trigger(self) -> str: ...

    @property
    def crossed(self) -> float | None: ...

    @property
    def threshold(self) -> float | None: ...

    @property
    def crossed_unit(self) -> str | None: ...

    @property
    def predicted_source_ttft_seconds(self) -> float | None: ...

    @property
    def benefit_seconds(self) -> float | None: ...

    @property
    def source_hit_tokens(self) -> int | None: ...

    @property
    def target_hit_tokens(self) -> int | None: ...

    @property
    def least_gain_seconds(self) -> float | None: ...


def cause_contradictions(move: CausedMove) -> list[str]:
    """Return the contradictions between a move's trigger and its numbers, in words; empty if there are none."""
    if move.source_hit_tokens is None or move.target_hit_tokens is None:
        return []  # of a router that does not tell
    return [*_number(move), *_hits(move, move.source_hit_tokens, move.target_hit_tokens), *_gain(move)]


def _number(move: CausedMove) -> list[str]:
    crossed, threshold = move.crossed, move.threshold
    if move.trigger not in NUMBERED:
        return []
    if crossed is None or threshold is None or move.crossed_unit is None:
        return [f"the trigger is {move.trigger}, but the figure that decided is not recorded"]
    equal = move.trigger in _EQUAL_MAY_DECIDE | _EQUAL_MAY_DECIDE_BY_TIES
    found = (
        []
        if crossed > threshold or (equal and crossed == threshold)
        else [f"the record says that {crossed} crossed {threshold}, which it does not"]
    )
    stay = move.predicted_source_ttft_seconds
    late = move.trigger == BindingReason.SLO and move.crossed_unit == Unit.SECONDS
    if late and (stay is None or stay < threshold - EXACT):
        found.append(f"the trigger is slo, but staying was predicted to be in time: {stay} against {threshold}")
    return found


def _hits(move: CausedMove, here: int, there: int) -> list[str]:
    wrong = {
        BindingReason.PREFIX_EQUAL: here != there,
        BindingReason.PREFIX_AFFINITY: there <= here,
        BindingReason.PREFIX_COPIED: here <= there,
        BindingReason.PREFIX_OUTWEIGHED: here <= there,
    }
    if not any(held and trigger == move.trigger for trigger, held in wrong.items()):
        return []
    return [f"the trigger is {move.trigger}, but the old instance held {amount(here, 'token')} of its prompt and the new one {there}"]


def _gain(move: CausedMove) -> list[str]:
    least, benefit = move.least_gain_seconds, move.benefit_seconds
    if least is None or move.trigger not in GAINING:
        return []
    if benefit is None or benefit < least - EXACT:
        return [f"it was predicted to gain {benefit} s, but {least} s is the least gain that moves a session"]
    return []
