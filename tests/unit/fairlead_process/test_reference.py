"""The page of settings is generated from the settings' own fields."""

from dataclasses import dataclass, field

import pytest

from fairlead_process.environment import variable
from fairlead_process.kinds import Switch, Text, Whole
from fairlead_process.logs import OnlyLogs
from fairlead_process.reference import CommandOption, Section, page


@dataclass(frozen=True, slots=True, kw_only=True)
class Some:
    token: str = field(metadata=variable("FAIRLEAD_API_TOKEN", Text("a token", "token", secret=True), "who"))
    size: int = field(default=2**20, metadata=variable("FAIRLEAD_SIZE", Whole("bytes", 1), "a|b", "larger = slower"))
    web: bool = field(default=False, metadata=variable("FAIRLEAD_WEB", Switch(), "whether"))
    logs: OnlyLogs = field(default_factory=OnlyLogs, metadata={"group": OnlyLogs})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaid:
    names: tuple[str, ...] = field(default=(), metadata=variable("FAIRLEAD_NAMES", Text("names"), "which"))


COMMON = Section(title="Every process", started_by="", settings=(OnlyLogs,))


def test_a_row_has_values_default_meaning_and_consequence_and_what_is_common_stands_once() -> None:
    option = CommandOption(variable="FAIRLEAD_X", commands=("up", "down"), option="--x", help="Which.")
    text = page("# Settings", COMMON, [Section(title="Some", started_by="`some`", settings=(Some,))], [option])
    rows = [line for line in text.splitlines() if line.startswith("| `FAIRLEAD_")]
    assert rows[2:] == [
        "| `FAIRLEAD_API_TOKEN` | token | required | who |  |",
        "| `FAIRLEAD_SIZE` | bytes, at least 1 | `1048576` (1 MiB) | a\\|b | larger = slower |",
        "| `FAIRLEAD_WEB` | `1`, `0` | `0` | whether |  |",
        "| `FAIRLEAD_X` | `--x` of `fairlead up`, `fairlead down` | Which. |",
    ]
    assert [row.split("`")[1] for row in rows[:2]] == ["FAIRLEAD_LOG_FORMAT", "FAIRLEAD_LOG_LEVEL"]


def test_a_default_that_cannot_be_shown_must_be_said() -> None:
    with pytest.raises(TypeError, match="FAIRLEAD_NAMES: say what its default is"):
        page("", COMMON, [Section(title="x", started_by="", settings=(Unsaid,))], [])
