"""Reads timelines from JSON files. A timeline is a list of events, each with `at` (seconds) and a `kind`: scale, fail,
override, restart-routers or part-routers. Errors name the event and the field.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from fairlead.errors import InvalidInput, UnknownName
from fairlead.instances import Role
from fairlead_process.policies import installed_policies
from fairlead_simulator.errors import TimelineInvalid
from fairlead_simulator.experiments.choices import EARLY_REJECTION_MODES, parameter_path
from fairlead_simulator.simulation.timeline import Fail, Override, PartRouters, RestartRouters, ScaleTo, TimelineEvent

LARGEST_POOL = 10_000
"""Maximum number of instances of one role in a timeline."""
LATEST_SECONDS = 1e9


def read_timeline(path: Path) -> tuple[TimelineEvent, ...]:
    """Return the timeline events in a file. Raises TimelineInvalid."""
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise TimelineInvalid(f"{path}: cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise TimelineInvalid(f"{path}: is not JSON: {error}; write a list of events, as docs/simulator.md shows") from None
    if not isinstance(document, list):
        raise TimelineInvalid(f"{path}: must be a list of events, as docs/simulator.md shows, not {type(document).__name__}")
    return tuple(_event(one, f"{path}: event {number}") for number, one in enumerate(document, start=1))


def _event(document: Any, place: str) -> TimelineEvent:
    if not isinstance(document, dict):
        raise TimelineInvalid(f"{place}: must be an object, not {type(document).__name__}")
    fields = _Fields(document, place)
    kind = fields.text("kind", ("scale", "fail", "override", "restart-routers", "part-routers"))
    at = fields.number("at", 0.0)
    event: TimelineEvent
    if kind == "scale":
        role = Role(fields.text("role", tuple(Role), default=Role.BOTH.value))
        event = ScaleTo(
            at=at,
            instances=fields.whole("instances", 1, LARGEST_POOL),
            role=role,
            startup_seconds=fields.number("startup_seconds", 0.0, 0.0),
        )
    elif kind == "fail":
        event = Fail(
            at=at,
            instance=fields.whole("instance", 0, LARGEST_POOL),
            detected_after_seconds=fields.number("detected_after_seconds", 0.0, 2.0),
            recovered_after_seconds=fields.number("recovered_after_seconds", 0.0) if "recovered_after_seconds" in document else None,
        )
    elif kind == "restart-routers":
        event = RestartRouters(at=at, remember=fields.truth("remember", default=True))
    elif kind == "part-routers":
        event = PartRouters(
            at=at,
            for_seconds=fields.number("for_seconds", 0.0),
            noticed_after_seconds=fields.number("noticed_after_seconds", 0.0, 0.25),
        )
    else:
        event = _override(fields, at, place)
    fields.refuse_others()
    return event


def _override(fields: "_Fields", at: float, place: str) -> Override:
    document = fields.document
    rejection = fields.text("early_rejection", tuple(EARLY_REJECTION_MODES), default="") or None
    policy = fields.text("policy", None, default="") or None
    parameters = fields.take("parameters", {})
    if not isinstance(parameters, dict):
        raise TimelineInvalid(f"{place}: parameters: {parameters!r} cannot be used; write an object of names and values")
    if policy is not None:
        try:
            installed_policies().check_parameters(policy, parameters)
        except UnknownName as error:
            raise TimelineInvalid(f"{place}: {error}") from None
        except InvalidInput as error:
            raise TimelineInvalid(f"{place}: parameters.{parameter_path(error)}: {error.value!r} cannot be used; {error.remedy}") from None
    if not {"slo_ttft_seconds", "early_rejection", "policy", "parameters"} & set(fields.document):
        raise TimelineInvalid(f"{place}: changes nothing; write slo_ttft_seconds, early_rejection, policy or parameters")
    return Override(
        at=at,
        slo_ttft_seconds=fields.number("slo_ttft_seconds", 0.001) if "slo_ttft_seconds" in document else None,
        early_rejection=EARLY_REJECTION_MODES[rejection] if rejection else None,
        policy=policy,
        parameters=parameters,
    )


class _Fields:
    """The fields of an event. Reading a field removes it, so that only unknown fields remain at the end."""

    def __init__(self, document: dict[str, Any], place: str) -> None:
        self.document = document
        self._place = place
        self._taken: set[str] = set()

    def take(self, name: str, default: Any = None) -> Any:
        self._taken.add(name)
        return self.document.get(name, default)

    def text(self, name: str, known: tuple[str, ...] | None, default: str | None = None) -> str:
        value = self.take(name, default)
        listed = "text" if known is None else "one of " + ", ".join(known)
        if not isinstance(value, str) or (known is not None and value not in known and value != default):
            raise self._wrong(name, value, listed)
        return value

    def number(self, name: str, least: float, default: float | None = None) -> float:
        value = self.take(name, default)
        return float(self._checked(name, value, (least, LATEST_SECONDS), lambda one: isinstance(one, int | float), "a number"))

    def whole(self, name: str, least: int, most: int) -> int:
        return int(self._checked(name, self.take(name), (least, most), lambda one: isinstance(one, int), "a whole number"))

    def truth(self, name: str, *, default: bool) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def refuse_others(self) -> None:
        for name in self.document:
            if name not in self._taken:
                raise TimelineInvalid(f"{self._place}: {name}: is not a field of this kind; it has: {', '.join(sorted(self._taken))}")

    def _checked(self, name: str, value: Any, bounds: tuple[float, float], fits: Callable[[Any], bool], wanted: str) -> Any:
        least, most = bounds
        if isinstance(value, bool) or not fits(value) or not least <= value <= most:
            raise self._wrong(name, value, f"{wanted} from {least:g} to {most:,.0f}")
        return value

    def _wrong(self, name: str, value: Any, wanted: str) -> TimelineInvalid:
        if name not in self.document:
            return TimelineInvalid(f"{self._place}: {name}: is missing; write {wanted}")
        return TimelineInvalid(f"{self._place}: {name}: {value!r} cannot be used; write {wanted}")
