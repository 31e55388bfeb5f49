"""Settings of the sandbox itself, and which variables of a person's environment reach which of its processes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairlead_process.environment import NOT_SETTINGS, PREFIX, names, unread, variable
from fairlead_process.kinds import Text
from fairlead_sandbox.processes import ProcessSpec

OF_COMMANDS = frozenset({"FAIRLEAD_DEBUG", "FAIRLEAD_GATEWAY_KEY", "FAIRLEAD_STATE_DIR", "FAIRLEAD_TOKEN"})
"""Variables that `fairlead`'s own subcommands read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """`database_url` empty = a Postgres of its own."""

    database_url: str = field(
        default="",
        repr=False,
        metadata=variable(
            "FAIRLEAD_DATABASE_URL",
            Text("postgresql+psycopg://user:password@host:5432/database", "URL"),
            "a Postgres of yours to use",
            "its contents outlive the sandbox",
            default_shown="one of its own",
        ),
    )


def handed_on(environment: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    """The environment without those settings of Fairlead that a process does not want: they are meant for others."""
    return {
        name: value for name, value in environment.items() if not name.startswith(PREFIX) or name.startswith(NOT_SETTINGS) or name in wanted
    }


def strange(environment: Mapping[str, str], specs: Iterable[ProcessSpec]) -> list[str]:
    """A line for each variable of Fairlead that is set and that nothing in the sandbox reads."""
    known = names(SandboxSettings) | OF_COMMANDS | frozenset(name for spec in specs for name in spec.reads)
    found = unread(environment, known)
    return [f"{name} is set, and nothing reads it" + (f": is {similar} meant?" if similar else "") for name, similar in found.items()]
