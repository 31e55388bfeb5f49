"""Does a recorded move contradict its own cause? Each trigger is compared with the numbers beside

it. Moves recorded by earlier releases have no numbers; only their other fields are checked.
"""

from typing import Protocol

from fairlead.reports.bindings import GAINING, BindingReason
from fairlead.reports.units import Unit

EXACT = 1e-6
"""Sums in another order agree within this."""

_EQUAL_MAY_DECIDE = frozenset({BindingReason.SLO, BindingReason.HOTSPOT, BindingReason.QUEUE_FULL, BindingReason.PREFIX_EQUAL})
_EQUAL_MAY_DECIDE_BY_TIES = frozenset({BindingReason.PREFIX_OUTWEIGHED, BindingReason.BEST_SCORE})
NUMBERED = _EQUAL_MAY_DECIDE | _EQUAL_MAY_DECIDE_BY_TIES | {BindingReason.HOT_MIGRATION, BindingReason.PREFIX_AFFINITY}
"""Triggers that a number decides, which is recorded with them."""


class CausedMove(Protocol):
    """The fields that a move's cause is checked against; see `fairlead.reports.moves.Move`."""

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
    """Contradictions between the cause and the numbers, in words; empty if there are none."""
    if move.source_hit_tokens is None or move.target_hit_tokens is None:
        return []  # of a router that does not tell
    return [*_number(move), *_hits(move, move.source_hit_tokens, move.target_hit_tokens), *_gain(move)]


def _number(move: CausedMove) -> list[str]:
    crossed, threshold = move.crossed, move.threshold
    if move.trigger not in NUMBERED:
        return []
    if crossed is None or threshold is None or move.crossed_unit is None:
        return [f"it moved as {move.trigger}, and the number that decided is not recorded"]
    equal = move.trigger in _EQUAL_MAY_DECIDE | _EQUAL_MAY_DECIDE_BY_TIES
    found = [] if crossed > threshold or (equal and crossed == threshold) else [f"{crossed} is said to have crossed {threshold}"]
    stay = move.predicted_source_ttft_seconds
    late = move.trigger == BindingReason.SLO and move.crossed_unit == Unit.SECONDS
    if late and (stay is None or stay < threshold - EXACT):
        found.append(f"it moved as slo, but staying was predicted in time: {stay} against {threshold}")
    return found


def _hits(move: CausedMove, here: int, there: int) -> list[str]:
    wrong = {
        BindingReason.PREFIX_EQUAL: here != there,
        BindingReason.PREFIX_AFFINITY: there <= here,
        BindingReason.PREFIX_OUTWEIGHED: here <= there,
    }
    if not any(held and trigger == move.trigger for trigger, held in wrong.items()):
        return []
    return [f"it moved as {move.trigger}, but {here} tokens of its prompt were held where it was and {there} where it went"]


def _gain(move: CausedMove) -> list[str]:
    least, benefit = move.least_gain_seconds, move.benefit_seconds
    if least is None or move.trigger not in GAINING:
        return []
    if benefit is None or benefit < least - EXACT:
        return [f"it was predicted to gain {benefit} s, and {least} s is the least gain that moves a session"]
    return []
