"""Parameter schemas of policies: dataclass fields that know their type, bounds and meaning, and the check of a person's input against them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from fairlead.errors import InvalidInput

P = TypeVar("P")
Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterFacts:
    """One parameter of a policy. `kind` is boolean, integer, number or text; bounds are inclusive; a None default means the description's rule."""

    name: str
    kind: str
    default: Scalar
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    description: str

    @property
    def wanted(self) -> str:
        """What may be written, in words: `a number from 0 to 1`."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        article = "an" if self.kind == "integer" else "a"
        noun = {"boolean": "boolean (true or false)", "integer": "integer", "number": "number", "text": "text"}[self.kind]
        bounds = ""
        if self.minimum is not None and self.maximum is not None:
            bounds = f" from {self.minimum:g} to {self.maximum:g}"
        elif self.minimum is not None:
            bounds = f" of at least {self.minimum:g}"
        elif self.maximum is not None:
            bounds = f" of at most {self.maximum:g}"
        return f"{article} {noun}{bounds}"


def parameter(
    kind: str,
    default: Scalar,
    description: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field carrying its schema; typed Any as `dataclasses.field` is, so that it may stand for any field type."""
    metadata = {"kind": kind, "default": default, "minimum": minimum, "maximum": maximum, "choices": choices, "description": description}
    return field(default=default, metadata=metadata)


def parameter_facts(schema: type[Any]) -> tuple[ParameterFacts, ...]:
    """The schema of a parameter dataclass, in order of declaration."""
    return tuple(ParameterFacts(name=one.name, **one.metadata) for one in fields(schema))


def read_parameters(schema: type[P], given: Mapping[str, Any], policy: str, path: str = "spec.routing.parameters") -> P:
    """Build `schema` from a person's mapping. Raises InvalidInput naming `path.<name>` for unknown names, wrong types and values out of bounds."""
    known = {facts.name: facts for facts in parameter_facts(schema)}
    values: dict[str, Scalar] = {}
    for name, value in given.items():
        facts = known.get(name)
        if facts is None:
            listed = ", ".join(sorted(known)) or "none"
            raise InvalidInput(f"{path}.{name}", value, f"policy {policy} has no such parameter; it has: {listed}")
        values[name] = _read_value(facts, value, f"{path}.{name}")
    return schema(**values)


def _read_value(facts: ParameterFacts, value: object, path: str) -> Scalar:
    if value is None and facts.default is None:
        return None
    refused = InvalidInput(path, value, f"write {facts.wanted}")
    if facts.kind == "boolean":
        if not isinstance(value, bool):
            raise refused
        return value
    if facts.kind == "text":
        if not isinstance(value, str) or (facts.choices and value not in facts.choices):
            raise refused
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused
    number: int | float = value
    if facts.kind == "integer":
        if number != number or number in (float("inf"), float("-inf")) or number != int(number):
            raise refused
        number = int(number)
    else:
        number = float(number)
    too_small = facts.minimum is not None and not number >= facts.minimum
    too_large = facts.maximum is not None and not number <= facts.maximum
    if number != number or too_small or too_large:
        raise refused
    return number


DISCIPLINES = ("fifo", "longest_hit", "slack", "deadline")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueParameters:
    """What every policy accepts: how requests wait in the router, and how their prefill times are predicted."""

    queue_discipline: str = parameter(
        "text",
        "fifo",
        "Order in which an instance's queued requests are sent: `fifo` by arrival, `longest_hit` most cached tokens first, "
        "`slack` first what must start soonest to meet the TTFT target, last what no longer can, `deadline` so that most meet it.",
        choices=DISCIPLINES,
    )
    queue_age_bound_seconds: float = parameter(
        "number", 2.0, "With `longest_hit`, a request waiting longer than this goes first, oldest first, so that none starves.", minimum=0.0
    )
    late_load: float = parameter(
        "number",
        0.06,
        "With `deadline`, late requests are sent while the pool's mean wait is at most this part of the TTFT target.",
        minimum=0.0,
        maximum=100.0,
    )
    late_lost: float = parameter(
        "number",
        0.01,
        "With `deadline`, they are also sent while at most this share of recent requests became late in a queue.",
        minimum=0.0,
        maximum=1.0,
    )
    late_share: float = parameter(
        "number", 0.02, "With `deadline`, the part of prefill time that late requests get at any load.", minimum=0.0, maximum=1.0
    )
    in_flight_seconds: float = parameter(
        "number",
        0.0,
        "Beyond spec.routing.prefillsInFlight, requests are sent to an instance while all that is in flight there should be computed within this time.",
        minimum=0.0,
        maximum=60.0,
    )
    queue_limit: int = parameter(
        "integer", 1024, "Requests that may wait for one instance; beyond it a request is refused (429).", minimum=1
    )
    queue_timeout_seconds: float = parameter("number", 60.0, "Longest wait in the router before a request is refused (429).", minimum=0.001)
    prefill_estimate: str = parameter(
        "text",
        "configured",
        "Where predicted prefill times come from: `configured` from engine.prefillTokensPerSecond, `linear` or `bilinear` from a fit to "
        "the prefills observed, once there are enough.",
        choices=("configured", "linear", "bilinear"),
    )
    estimate_min_samples: int = parameter(
        "integer", 200, "Prefills to observe before a fit is used; until then the configured speed is.", minimum=10, maximum=1_000_000
    )
