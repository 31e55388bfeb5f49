"""Writes docs/settings.md: every environment variable of every process, from the fields of the settings."""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from fairlead_process.environment import Variable, variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The settings of one process, and how to start it."""

    title: str
    started_by: str
    settings: tuple[type[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    """A command's option that can also be given by a variable."""

    variable: str
    commands: tuple[str, ...]
    option: str
    help: str


def page(introduction: str, common: Section, sections: Sequence[Section], options: Sequence[CommandOption]) -> str:
    """Return the page as Markdown. Variables in `common` are listed only once; variables that must be set are listed
    first.
    """
    everywhere = {found.name for settings in common.settings for found, _ in variables(settings)}
    parts = [introduction.strip(), _section(common, set()), *(_section(one, everywhere) for one in sections), _options(options)]
    return "\n".join(parts)


def _options(options: Sequence[CommandOption]) -> str:
    rows = [
        f"| `{one.variable}` | `{one.option}` of {', '.join(f'`fairlead {name}`' for name in one.commands)} | {one.help} |"
        for one in options
    ]
    head = ["| Variable | Instead of | Meaning |", "|---|---|---|"]
    return "\n".join(["", "## Options of commands", "", *head, *rows, ""])


def _section(section: Section, without: set[str]) -> str:
    found_here = [(found, default) for settings in section.settings for found, default in variables(settings)]
    found_here.sort(key=lambda each: each[1] is not MISSING)
    rows = [_row(found, default) for found, default in found_here if found.name not in without]
    head = ["| Variable | Values | Default | Meaning | Consequence |", "|---|---|---|---|---|"]
    return "\n".join(["", f"## {section.title}", "", section.started_by, "", *head, *rows, ""])


def _row(found: Variable, default: object) -> str:
    cells = (f"`{found.name}`", found.kind.unit, _default(found, default), found.meaning, found.consequence)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(found: Variable, default: object) -> str:
    if found.default_shown:
        return found.default_shown
    if default is MISSING:
        return "required"
    match default:
        case bool():
            return f"`{int(default)}`"
        case int() if default >= 10_000:
            return f"`{default}`" + (
                f" ({default // 2**20} MiB)" if default % 2**20 == 0 else f" ({default // 1024} KiB)" if default % 1024 == 0 else ""
            )
        case float():
            return f"`{default:g}`"
        case str() | int() | Path():
            return f"`{default}`"
    raise TypeError(f"{found.name}: say what its default is with default_shown")
