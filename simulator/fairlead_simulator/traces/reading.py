"""The options for reading a file in another tool's form, and the notes about what was left out or assumed."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from fairlead_simulator.traces.fields import Record, shown

MOST_NAMED = 12
"""Maximum number of field names in a note."""
NOTHING_OF_CONTENT = "the file does not contain the prompts' content, so no prompt shares text with another"


class Notes:
    """Notes for the user about what was left out or assumed when a file was read."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._fields: dict[str, None] = {}
        self._facts: dict[str, None] = {}

    def leave_out(self, what: str, count: int = 1) -> None:
        """Count requests that are left out. `what` completes the note "3 requests left out …"; for example, it is `that
        failed`.
        """
        self._left_out[what] += count

    def drop(self, fields: Iterable[str]) -> None:
        """Note fields of a row that are lost, because Mooncake's form has no place for them."""
        self._fields.update(dict.fromkeys(fields))

    def say(self, fact: str) -> None:
        """Note an assumption or a change. A note that is said again appears only once."""
        self._facts[fact] = None

    def lines(self) -> list[str]:
        """Return all notes, one line each."""
        found = [*self._facts]
        found += [f"{count:,} {'request' if count == 1 else 'requests'} left out {what}" for what, count in self._left_out.items()]
        if self._fields:
            names = [shown(name)[1:-1] for name in islice(self._fields, MOST_NAMED)]
            more = f" and {len(self._fields) - MOST_NAMED:,} more" if len(self._fields) > MOST_NAMED else ""
            found.append(f"fields without a place in Mooncake's form, left out: {', '.join(names)}{more}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The options for reading a file, and the notes about it."""

    block_tokens: int
    """Number of tokens per block id in the file."""
    has_rate: bool = False
    """Whether the user gave a rate, at which rows without a time are sent."""
    notes: Notes = field(default_factory=Notes)

    def untimed(self, record: Record) -> float:
        """Return the time in milliseconds of a row that has no time: 0, because the rate is applied later. Raises
        TraceInvalid if the user gave no rate.
        """
        if not self.has_rate:
            raise record.refusal("timestamp", "is missing; give --rate to send such rows at equal distances")
        self.notes.say("rows without a time are sent at equal distances at --rate, in the order of the file")
        return 0.0
