"""The sections of a pool's spec that people change by forms, and their fields as a form has them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.scaling.specs import RatioMethod, RatioMode, ScalingMode
from fairlead.tables import EARLY_REJECTION_MODES, MIGRATIONS_MODES
from fairlead_client.resources.plans import PlanKind
from fairlead_process.yaml_documents import complaint, read_yaml
from fairlead_web.text.typed_text import number

Parse = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A field of the spec's section as a form has it: `parse` makes its value of text, and raises ValueError.

    `name` is the field's path in the section, its parts joined by dots: `zero.idleAfter`.
    """

    name: str
    words: str
    kind: str
    parse: Parse
    remedy: str = ""
    hint: str = ""
    options: tuple[str, ...] = ()
    told: str = "{}"
    """How the closed form shows the value; empty = not at all."""


def _truth(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


def _mapping(text: str) -> dict[str, Any]:
    try:
        found = read_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(complaint(error)) from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("no mapping")  # noqa: TRY004 - every parser raises ValueError
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The inputs of a form, of one section of the spec."""

    title: str
    section: str
    inputs: tuple[Input, ...]


def _number_input(name: str, words: str, example: str, *, hint: str = "", told: str = "{}") -> Input:
    return Input(name=name, words=words, kind="number", parse=number, remedy=f"write a number such as {example}", hint=hint, told=told)


def _duration_input(name: str, words: str, examples: str, *, told: str = "") -> Input:
    return Input(name=name, words=words, kind="text", parse=str, hint=f"such as {examples}", told=told)


def _choice(name: str, words: str, options: Iterable[str], *, told: str = "{}") -> Input:
    return Input(name=name, words=words, kind="choice", parse=str, options=tuple(options), told=told)


SECTIONS: Mapping[PlanKind, Section] = {
    PlanKind.POLICY: Section(
        title="Policy",
        section="routing",
        inputs=(
            Input(name="policy", words="Policy", kind="names", parse=str, options=tuple(sorted(BUILT_IN.names))),
            Input(
                name="parameters",
                words="Parameters",
                kind="yaml",
                parse=_mapping,
                remedy="write one `name: value` per line",
                hint="one “name: value” per line; replaces all",
                told="",
            ),
        ),
    ),
    PlanKind.SLO: Section(
        title="SLO",
        section="slo",
        inputs=(
            _duration_input("ttft", "Time to first token", "5s or 800ms", told="TTFT {}"),
            _duration_input("tpot", "Time per output token", "100ms", told="TPOT {}"),
            _number_input("percentile", "Goal, % in time", "95", told="goal {} %"),
        ),
    ),
    PlanKind.EARLY_REJECTION: Section(
        title="Early rejection",
        section="earlyRejection",
        inputs=(
            _choice("mode", "Mode", EARLY_REJECTION_MODES),
            _number_input("headroom", "Headroom", "1.5", hint="limit as a multiple of the SLO", told="headroom {}"),
        ),
    ),
    PlanKind.MIGRATIONS: Section(
        title="Migrations",
        section="routing",
        inputs=(_choice("migrations", "Sessions move", MIGRATIONS_MODES),),
    ),
    PlanKind.SCALING: Section(
        title="Scaling",
        section="scaling",
        inputs=(
            _choice("mode", "Mode", ScalingMode),
            _number_input("targetLoad", "Target load", "0.8", hint="share of an instance's capacity, 0 to 1", told="target load {}"),
            _duration_input("zero.idleAfter", "Last instances go when idle for", "10m; in mode SLO, with minReplicas 0"),
            _duration_input("zero.holdFor", "Hold a request for", "2m; while no instance serves and one is to come"),
            _number_input("zero.heldRequests", "Requests held at most", "1024", hint="by each router", told=""),
        ),
    ),
    PlanKind.RATIO: Section(
        title="Ratio",
        section="ratio",
        inputs=(
            _choice("mode", "Mode", RatioMode),
            _choice("method", "How an instance changes its role", RatioMethod, told=""),
            _number_input("band", "Band", "0.3", hint="difference of the roles' loads that is left alone", told="band {}"),
            _duration_input("cooldown", "Cooldown", "2m"),
        ),
    ),
    PlanKind.ROLLOUT: Section(
        title="Rollout",
        section="rollout",
        inputs=(
            Input(
                name="paused",
                words="Paused",
                kind="choice",
                parse=_truth,
                remedy="write true or false",
                options=("false", "true"),
                told="paused: {}",
            ),
            Input(
                name="maxSurge",
                words="Instances above the wanted number",
                kind="number",
                parse=number,
                remedy="write a number such as 1",
                told="surge {}",
            ),
            Input(
                name="maxUnavailable",
                words="Instances that may be missing",
                kind="number",
                parse=number,
                remedy="write a number such as 0",
                told="",
            ),
        ),
    ),
    PlanKind.RING: Section(
        title="Ring",
        section="routing",
        inputs=(_number_input("anchorsPerInstance", "Anchors per instance", "160", told="{} anchors per instance"),),
    ),
}
