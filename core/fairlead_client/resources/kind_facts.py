"""Describes each kind of plan as data. The API checks requests with this data, and forms, commands and documentation
are made from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairlead_client.resources.access import AccessRole


class InputKind(StrEnum):
    """The way in which a form shows an input and reads its text. `names` is a text field with suggestions, `switch`
    gives true or false, `rows` is a list of objects with one line each.
    """

    NUMBER = "number"
    TEXT = "text"
    CHOICE = "choice"
    NAMES = "names"
    SWITCH = "switch"
    YAML = "yaml"
    ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An entry of a request's `fields`, as forms and commands ask for it.

    `name` is the field's path, joined by dots: `zero.idleAfter`. `remedy` is shown for text that cannot be read. `told`
    is the template for the present value that a form shows while it is closed; empty = the value is not shown.
    """

    name: str
    words: str
    kind: InputKind = InputKind.TEXT
    remedy: str = ""
    hint: str = ""
    options: tuple[str, ...] = ()
    told: str = "{}"
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFacts:
    """A kind of plan as data.

    `role` is the role that a person needs to plan, apply or undo such a change; for schedules, see `role_for_schedule`.
    `title` is the heading of its form on the pool's page, empty if there is no form. `command` is the help of its own
    command of `fairlead change`, empty if there is no such command.
    """

    role: AccessRole
    takes: tuple[str, ...] = ("fields",)
    """The fields that a request of this kind may have, the required ones first."""
    needs: int = 1
    """Number of the fields in `takes`, counted from the first, that are required."""
    remedies: Mapping[str, str] = field(default_factory=dict)
    """By field, the remedy shown if the field is missing and its name does not say what to write."""
    section: str = ""
    """The section of the pool's spec that `fields` changes; empty = no section."""
    inputs: tuple[Input, ...] = ()
    more_fields: tuple[str, ...] = ()
    """Fields of `section` that a request may change, but that forms do not show."""
    says: Mapping[str, Any] = field(default_factory=dict)
    """Values that the form adds to `fields`, in addition to its inputs."""
    title: str = ""
    has_button: bool = False
    """Whether the pool's page has a button for this kind instead of a form."""
    command: str = ""
    for_pairs: bool = False
    """Whether the form is shown only for pools with several roles."""
    advised: bool = False
    """Whether advice recommends such changes on the basis of a simulation; a request may name that simulation."""
    deletes: bool = False
    """Whether the change deletes the object; undoing it creates the object again."""
    creates: bool = False
    """Whether the change creates the object; undoing it deletes the object."""
    file_refusal: str = ""
    """The reason why this kind of plan is impossible for a pool whose engines are listed in a file; empty if it is
    possible.
    """
    pods_refusal: str = ""
    """The reason why this kind of plan is impossible for a pool whose instances are pods; empty if it is possible."""
    workload_refusal: str = ""
    """The reason why this kind of plan is impossible for a pool that adopts a workload's pods; empty if it is possible.
    """
    for_scale_targets: bool = False
    """Whether this kind of plan, in spite of `workload_refusal`, is possible for a pool that scales that workload."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """For the API's documentation: an example of a request, without its kind, and the example's name."""
    example_title: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of `section` that a request may change."""
        return (*dict.fromkeys(one.name.partition(".")[0] for one in self.inputs), *self.more_fields)

    @property
    def for_running_engines(self) -> bool:
        """Whether this kind is possible for a pool whose instances are not started and stopped by Fairlead."""
        return not self.file_refusal and not self.workload_refusal


def number_input(
    name: str, words: str, example: str, *, hint: str = "", told: str = "{}", least: float | None = None, most: float | None = None
) -> Input:
    """Return an input for a number such as `example`."""
    remedy = f"write a number such as {example}"
    return Input(name=name, words=words, kind=InputKind.NUMBER, remedy=remedy, hint=hint, told=told, least=least, most=most)


def duration_input(name: str, words: str, examples: str, *, told: str = "") -> Input:
    """Return an input for a duration such as one of `examples`."""
    return Input(name=name, words=words, hint=f"such as {examples}", told=told)


def choice_input(name: str, words: str, options: Iterable[str], *, told: str = "{}") -> Input:
    """Return an input for one of `options`."""
    return Input(name=name, words=words, kind=InputKind.CHOICE, options=tuple(options), told=told)
