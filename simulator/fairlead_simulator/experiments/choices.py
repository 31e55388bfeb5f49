"""Reads choices from the command line (policies with parameters, rates, early rejection modes), and scaling rules from
a file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from fairlead.errors import InvalidInput, UnknownName
from fairlead.instances import LEAST_WEIGHT, MOST_WEIGHT
from fairlead.scaling.specs import RatioMode
from fairlead.schemas.reading import read
from fairlead_process.policies import installed_policies
from fairlead_process.yaml_documents import complaint, read_yaml
from fairlead_simulator.errors import ScalingInvalid
from fairlead_simulator.simulation.autoscaling import SimulatedScaling

HIGHEST_RATE = 1e6
"""Maximum rate in requests per second. At a higher rate, all requests of a trace would arrive at nearly the same
time.
"""

SLOWEST, FASTEST = 0.01, 100.0
"""Minimum and maximum speed of instances, as multiples of the preset's speed."""

LEAST_BELIEF, MOST_BELIEF = 1.0, 1e9
"""Minimum and maximum prefill speed that routers can be set to assume, in tokens per second, as in
`spec.engine.prefillTokensPerSecond`.
"""

EARLY_REJECTION_MODES = {"disabled": "Disabled", "load": "Load", "predicted": "Predicted", "after-prefill": "AfterPrefill"}
"""Early rejection mode on the command line → the mode's name in a routing table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """A policy with its checked parameters. `name` is the policy's name; `label` is the whole choice as the user wrote
    it.
    """

    label: str
    name: str
    parameters: dict[str, Any]


def parse_policies(text: str) -> tuple[PolicyChoice, ...]:
    """Return the policies in a text such as `dualmap:slo_fraction=0.5;rebalance=false,ear`. A parameter whose value is
    an object is given as the name of a YAML file: `endpoint-picker:config=epp.yaml`. Raises UnknownName and
    InvalidInput.
    """
    choices = tuple(_policy(part.strip()) for part in text.split(",") if part.strip())
    if not choices:
        raise InvalidInput("--policies", text, "write at least one policy")
    _refuse_twice("--policies", [choice.label for choice in choices])
    return choices


def notes_of(choices: Sequence[PolicyChoice]) -> list[str]:
    """Return the policies' notes about parameters that have no effect, one line each."""
    checked = ((one, installed_policies().check_parameters(one.name, one.parameters)) for one in choices)
    return [f"{one.label}: {note}" for one, parameters in checked for note in parameters.notes]


def parse_rates(text: str, saturation: float) -> tuple[float, ...]:
    """Return the rates in a text such as `4,8,1.25x`, in requests per second. With `x`, a number is a multiple of
    `saturation`. Raises InvalidInput.
    """
    rates: list[float] = []
    for part in (part.strip() for part in text.split(",")):
        number = _number(part.removesuffix("x"))
        rate = 0.0 if number is None else number * saturation if part.endswith("x") else number
        if not 0 < rate <= HIGHEST_RATE:
            remedy = (
                f"write numbers above 0, such as 4 (requests per second, at most {HIGHEST_RATE:,.0f}) or 1.25x (of the "
                "estimated saturation)"
            )
            raise InvalidInput("--rates", part, remedy)
        rates.append(rate)
    _refuse_twice("--rates", [f"{rate:.12g}" for rate in rates])
    return tuple(rates)


def parse_belief(text: str, true_speed: float) -> float:
    """Return the prefill speed that routers assume, in tokens per second. The text is this speed, such as `1562`, or a
    multiple of `true_speed`, such as `0.25x`. Raises InvalidInput.
    """
    number = _number(text.strip().removesuffix("x"))
    speed = 0.0 if number is None else number * true_speed if text.strip().endswith("x") else number
    if not LEAST_BELIEF <= speed <= MOST_BELIEF:
        remedy = "write a multiple of the true speed, such as 0.25x, or 1 to 1,000,000,000 tokens per second, such as 6250"
        raise InvalidInput("--believed-speed", text, remedy)
    return speed


def parse_speeds(text: str) -> tuple[float, ...]:
    """Return the speeds of instances in a text such as `1,1,0.5`, as multiples of the preset's speed. Raises
    InvalidInput.
    """
    return _in_turn("--speeds", text, SLOWEST, FASTEST)


def parse_weights(text: str) -> tuple[float, ...]:
    """Return the weights of instances on the hash ring in a text such as `1,1,0.5`. Raises InvalidInput."""
    return _in_turn("--weights", text, LEAST_WEIGHT, MOST_WEIGHT)


def _in_turn(option: str, text: str, least: float, most: float) -> tuple[float, ...]:
    found: list[float] = []
    for part in (part.strip() for part in text.split(",")):
        number = _number(part)
        if number is None or not least <= number <= most:
            raise InvalidInput(option, part, f"write numbers from {least:g} to {most:g}, as 1,1,0.5")
        found.append(number)
    return tuple(found)


def early_rejection_modes(text: str) -> tuple[str, ...]:
    """Return the early rejection modes in a text such as `disabled,load`, by their names in a routing table. Raises
    UnknownName and InvalidInput.
    """
    modes: list[str] = []
    for part in (part.strip().lower() for part in text.split(",")):
        if part not in EARLY_REJECTION_MODES:
            raise UnknownName("early rejection mode", part, tuple(EARLY_REJECTION_MODES))
        modes.append(EARLY_REJECTION_MODES[part])
    _refuse_twice("--early-rejection", [mode.lower() for mode in modes])
    return tuple(modes)


def _policy(text: str) -> PolicyChoice:
    name, _, rest = text.partition(":")
    kinds = {key: shape.kind for key, shape in installed_policies().parameters(name).items()}
    parameters: dict[str, Any] = {}
    for pair in (pair.strip() for pair in rest.split(";")):
        if not pair:
            continue
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not (key and equals):
            raise InvalidInput("--policies", pair, "write parameters as name:key=value;key=value")
        if key in parameters:
            raise InvalidInput("--policies", pair, f"{key} is given twice; write one value")
        parameters[key] = _object(Path(value), f"--policies: {name}: {key}") if kinds.get(key) == "free" else _value(value, kinds.get(key))
    try:
        installed_policies().check_parameters(name, parameters)
    except InvalidInput as error:
        raise InvalidInput(f"--policies: {name}: {parameter_path(error)}", error.value, error.remedy) from None
    return PolicyChoice(label=text, name=name, parameters=parameters)


def parameter_path(error: InvalidInput) -> str:
    """Return the path of the invalid parameter, such as `slo_fraction` or `config.plugins[0].type`."""
    return error.field.removeprefix("spec.routing.parameters.")


def _object(path: Path, place: str) -> Mapping[str, Any]:
    """Return the YAML object in the file. Raises InvalidInput if the file has none; `place` is the name of the option
    in the error.
    """
    try:
        document = read_yaml(path.read_bytes())
    except OSError as error:
        raise InvalidInput(place, str(path), f"it is a file that cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise InvalidInput(place, str(path), f"name a file with one YAML object ({complaint(error)})") from None
    if not isinstance(document, dict):
        raise InvalidInput(place, str(path), f"name a file with one YAML object, not {type(document).__name__}")
    return document


def _refuse_twice(option: str, written: list[str]) -> None:
    """Raise InvalidInput if a value of the option is given twice. Equal values would give two equal runs, and their
    results would be averaged.
    """
    for position, one in enumerate(written):
        if one in written[:position]:
            raise InvalidInput(option, one, "it is named twice; write it once")


def _value(text: str, kind: str | None) -> Any:
    """Return the text converted to the parameter's type `kind`. A text that cannot be converted is returned unchanged,
    so that the later check of parameters refuses it and names the parameter.
    """
    if text.lower() in ("none", "null", ""):
        return None
    if kind == "boolean":
        return {"true": True, "false": False, "on": True, "off": False}.get(text.lower(), text)
    number = _number(text) if kind in ("number", "integer") else None
    return text if number is None else number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_scaling(path: Path, *, split: bool) -> SimulatedScaling:
    """Return the scaling rules in a file. `split` says whether the pool has separate prefill and decode instances.
    Raises ScalingInvalid.
    """
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ScalingInvalid(f"{path}: cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise ScalingInvalid(f"{path}: is not JSON: {error}; write an object, as docs/simulator.md shows") from None
    try:
        rules = read(SimulatedScaling, document, str(path))
    except InvalidInput as error:
        raise ScalingInvalid(str(error)) from None
    if rules.ratio.mode is not RatioMode.FIXED and not split:
        raise ScalingInvalid(
            f"{path}.ratio.mode: {rules.ratio.mode.value!r} needs prefill and decode instances; "
            "give --prefill-instances and --decode-instances"
        )
    return rules
