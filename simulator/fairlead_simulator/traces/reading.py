"""The options for reading a file in another tool's form, and notes about omissions and assumptions."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from fairlead_simulator.traces.fields import Record, shown

MOST_NAMED = 12
"""Maximum number of fields that a note names."""
NOTHING_OF_CONTENT = "the file does not say what prompts hold: each is new, and nothing can be reused"


class Notes:
    """Notes in words about how a file was read, and the numbers of rows that were left out."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._fields: dict[str, None] = {}
        self._facts: dict[str, None] = {}

    def leave_out(self, what: str, count: int = 1) -> None:
        """Count rows that are left out of the result. `what` completes the note "3 requests left out …", as in `that
        failed`.
        """
        self._left_out[what] += count

    def drop(self, fields: Iterable[str]) -> None:
        """Count fields of a row that are lost because Mooncake's form does not have them."""
        self._fields.update(dict.fromkeys(fields))

    def say(self, fact: str) -> None:
        """Note an assumption or a change; equal notes appear only once."""
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
    """The options for reading a file, and the notes about the file."""

    block_tokens: int
    """Number of tokens per block id in the file."""
    has_rate: bool = False
    """Whether the user gave a rate, from which rows without a time can get one."""
    notes: Notes = field(default_factory=Notes)

    def untimed(self, record: Record) -> float:
        """Return the arrival time of a row that has no time. Raises TraceInvalid if no rate was given."""
        if not self.has_rate:
            raise record.refusal("timestamp", "is missing; give --rate to place such rows evenly")
        self.notes.say("rows without a time come evenly at --rate, in the order of the file")
        return 0.0
