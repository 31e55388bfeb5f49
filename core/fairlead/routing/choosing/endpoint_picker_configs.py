"""Reads an `EndpointPickerConfig` (`llm-d.ai/v1alpha1`) into a profile.

Fairlead carries out each part of the file, or refuses the part in one line that names it. A note mentions each part
that Fairlead carries out in another way.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fairlead.errors import InvalidInput
from fairlead.routing.choosing.endpoint_picker_plugins import (
    NOT_OFFERED,
    PLUGIN_TYPES,
    ApproximateMatches,
    Part,
    PluginType,
    PreciseMatches,
)
from fairlead.routing.choosing.pickers import MaxScorePicker, Picker
from fairlead.routing.choosing.profiles import Profile, WeightedScorer
from fairlead.routing.choosing.scorers.placements import SessionAffinity
from fairlead.schemas.reading import read
from fairlead.schemas.shapes import REQUIRED, document_name, free, listing, nested, number, text, truth

MOST = 64
DEFAULT_PRODUCER = "approx-prefix-cache-producer"
API_VERSIONS = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSpec:
    """A plugin that the configuration file declares."""

    type: str = text("Type of the plugin.", max_length=253)
    name: str = text("Name that profiles refer to; default: the type.", "", max_length=253)
    parameters: dict[str, Any] = free("Parameters of the plugin.")

    @property
    def reference(self) -> str:
        """The name by which other parts of the configuration refer to the plugin."""
        return self.name or self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePlugin:
    """A plugin that a scheduling profile uses."""

    plugin_ref: str = text("Name of a plugin.", max_length=253)
    weight: float | None = number("Weight of a scorer; default: 1.", None, minimum=-1e6, maximum=1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingProfile:
    """A scheduling profile of the configuration file."""

    name: str = text("Name of the profile.", max_length=253)
    plugins: tuple[ProfilePlugin, ...] = listing(ProfilePlugin, "Its plugins.", REQUIRED, key="plugin_ref", max_items=MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReference:
    """A reference to a plugin by its name."""

    plugin_ref: str = text("Name of a plugin.", max_length=253)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """A data source of the configuration file, and the plugins that read it."""

    plugin_ref: str = text("Name of a plugin.", max_length=253)
    extractors: tuple[PluginReference, ...] = listing(
        PluginReference, "Plugins that read the source.", (), key="plugin_ref", max_items=MOST
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLayer:
    """The section of the configuration file that says where llm-d's plugins get their data."""

    inject_defaults: bool = truth("Whether the usual metrics are read.", True)
    sources: tuple[DataSource, ...] = listing(DataSource, "Sources.", (), key="plugin_ref", max_items=MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPickerDocument:
    """The whole `EndpointPickerConfig` document."""

    api_version: str = text("Version `llm-d.ai/v1alpha1`.", enum=API_VERSIONS)
    kind: str = text("Kind `EndpointPickerConfig`.", enum=("EndpointPickerConfig",))
    plugins: tuple[PluginSpec, ...] = listing(PluginSpec, "Plugins.", REQUIRED, key="reference", max_items=MOST)
    scheduling_profiles: tuple[SchedulingProfile, ...] = listing(SchedulingProfile, "Profiles.", (), key="name", max_items=MOST)
    data_layer: DataLayer | None = nested(DataLayer, "Sources of data.", optional=True)


ELSEWHERE: Mapping[str, str] = {
    "featureGates": "Fairlead has no feature gates",
    "flowControl": (
        "spec.routing.prefillsInFlight and the policy's queue parameters decide how requests wait, and spec.earlyRejection which requests are refused"
    ),
    "saturationDetector": "spec.earlyRejection decides which requests are refused",
    "requestHandler": "docs/gateway.md says which paths are read and how",
    "parser": "docs/gateway.md says which paths are read and how",
}
"""Sections of llm-d's configuration that are not read → what to use instead, such as a field of the pool's spec."""

DEFAULT_CONFIG: Mapping[str, Any] = {
    "apiVersion": API_VERSIONS[0],
    "kind": "EndpointPickerConfig",
    "plugins": [{"type": name} for name in ("queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer")],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "queue-scorer", "weight": 2},
                {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
                {"pluginRef": "prefix-cache-scorer", "weight": 3},
            ],
        }
    ],
}
"""The configuration that llm-d's endpoint picker uses when no file is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPickerPlan:
    """Fairlead's plan for carrying out a configuration file."""

    profile: Profile
    keeps_homes: bool
    """Whether a plugin needs the session's home, the instance that served its earlier requests."""
    expected_seconds: float
    """Seconds for which a prompt's blocks are assumed to be cached before KV events confirm them; 0 = blocks without a
    KV event do not count.
    """
    notes: tuple[str, ...]
    """A line for each plugin that Fairlead implements differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugin:
    spec: PluginSpec
    type: PluginType
    parameters: Any
    path: str


def read_endpoint_picker_config(document: Mapping[str, Any], path: str) -> EndpointPickerPlan:
    """Return the plan for a configuration document. `path` is the document's path within the spec, for error messages.

    Each call creates new plugins, which share no state with the plugins of other calls. Raises InvalidInput, naming the
    field, the value and the remedy, for anything that is unknown, missing or not supported.
    """
    for section in document:
        if section in ELSEWHERE:
            raise InvalidInput(f"{path}.{section}", document[section], f"remove it; {ELSEWHERE[section]}")
    given = read(EndpointPickerDocument, document, path)
    notes: list[str] = []
    plugins = {spec.reference: _plugin(spec, f"{path}.plugins[{index}]", notes) for index, spec in enumerate(given.plugins)}
    _check_producers(plugins)
    _check_sources(given.data_layer, plugins, f"{path}.dataLayer")
    profiles = given.scheduling_profiles
    if len(profiles) > 1:
        remedy = (
            "write one profile; it chooses the instance that computes the prompt, and the pool's roles determine the instance that decodes"
        )
        raise InvalidInput(f"{path}.schedulingProfiles", [one.name for one in profiles], remedy)
    if profiles:
        named = _named(profiles[0].plugins, plugins, f"{path}.schedulingProfiles[0].plugins")
        _check_used(named, plugins)
    else:
        named = [(one, None) for one in plugins.values() if one.type.part in (Part.FILTER, Part.SCORER, Part.PICKER)]
    return EndpointPickerPlan(
        profile=Profile(
            filters=[_built(one, plugins) for one, _ in named if one.type.part is Part.FILTER],
            scorers=[
                WeightedScorer(scorer=_built(one, plugins), weight=1.0 if weight is None else weight)
                for one, weight in named
                if one.type.part is Part.SCORER
            ],
            picker=_picker(named, plugins, path),
        ),
        expected_seconds=max(
            [one.parameters.expected_seconds for one in plugins.values() if isinstance(one.parameters, PreciseMatches)], default=0.0
        ),
        keeps_homes=any(isinstance(one.parameters, SessionAffinity) for one, _ in named),
        notes=tuple(notes),
    )


def _plugin(spec: PluginSpec, path: str, notes: list[str]) -> _Plugin:
    found = PLUGIN_TYPES.get(spec.type)
    if found is None:
        why = NOT_OFFERED.get(spec.type)
        remedy = f"Fairlead does not support it: {why}" if why else f"the types of plugins are {', '.join(PLUGIN_TYPES)}"
        raise InvalidInput(f"{path}.type", spec.type, remedy)
    for name, value in spec.parameters.items():
        if name in found.otherwise:
            raise InvalidInput(f"{path}.parameters.{name}", value, f"remove it; {found.otherwise[name]}")
        if name in found.unneeded:
            notes.append(f"{path}.parameters.{name} is not needed: {found.unneeded[name]}")
    left = {name: value for name, value in spec.parameters.items() if name not in found.unneeded}
    known = [document_name(item) for item in fields(found.parameters)]
    for name, value in left.items():
        if name not in known:
            told = f"its parameters are {', '.join(known)}" if known else "it has none"
            raise InvalidInput(f"{path}.parameters.{name}", value, f"remove it; {spec.type}: {told}")
    return _Plugin(spec=spec, type=found, parameters=read(found.parameters, left, f"{path}.parameters"), path=path)


def _check_producers(plugins: Mapping[str, _Plugin]) -> None:
    for one in plugins.values():
        name = _producer(one)
        if name and name not in plugins and name != DEFAULT_PRODUCER:
            raise InvalidInput(
                f"{one.path}.parameters.prefixMatchInfoProducerName", name, f"name a plugin of this file: {', '.join(plugins)}"
            )


def _check_sources(layer: DataLayer | None, plugins: Mapping[str, _Plugin], path: str) -> None:
    for index, source in enumerate(() if layer is None else layer.sources):
        places = [(f"{path}.sources[{index}].pluginRef", source.plugin_ref)]
        places += [
            (f"{path}.sources[{index}].extractors[{number}].pluginRef", one.plugin_ref) for number, one in enumerate(source.extractors)
        ]
        for place, reference in places:
            _look_up(reference, plugins, place)


def _look_up(reference: str, plugins: Mapping[str, _Plugin], path: str) -> _Plugin:
    found = plugins.get(reference)
    if found is None:
        raise InvalidInput(path, reference, f"name a plugin of this file: {', '.join(plugins)}")
    return found


def _named(given: Sequence[ProfilePlugin], plugins: Mapping[str, _Plugin], path: str) -> list[tuple[_Plugin, float | None]]:
    named: list[tuple[_Plugin, float | None]] = []
    for index, one in enumerate(given):
        plugin = _look_up(one.plugin_ref, plugins, f"{path}[{index}].pluginRef")
        if plugin.type.part not in (Part.FILTER, Part.SCORER, Part.PICKER):
            raise InvalidInput(f"{path}[{index}].pluginRef", one.plugin_ref, "remove it; a profile names filters, scorers and one picker")
        if one.weight is not None and plugin.type.part is not Part.SCORER:
            raise InvalidInput(f"{path}[{index}].weight", one.weight, f"remove it; {plugin.spec.type} is a {plugin.type.part}")
        named.append((plugin, one.weight))
    return named


def _check_used(named: Sequence[tuple[_Plugin, float | None]], plugins: Mapping[str, _Plugin]) -> None:
    used = {one.spec.reference for one, _ in named}
    for one in plugins.values():
        if one.type.part in (Part.FILTER, Part.SCORER) and one.spec.reference not in used:
            raise InvalidInput(one.path, one.spec.reference, "no profile uses it; name it in schedulingProfiles or remove it")


def _picker(named: Sequence[tuple[_Plugin, float | None]], plugins: Mapping[str, _Plugin], path: str) -> Picker:
    """Return the picker that the profile names. If the profile names no picker, return the only picker in the file, as
    llm-d does, or a max-score picker.
    """
    pickers = [one for one, _ in named if one.type.part is Part.PICKER] or [one for one in plugins.values() if one.type.part is Part.PICKER]
    if len(pickers) > 1:
        raise InvalidInput(f"{path}.schedulingProfiles", [one.spec.reference for one in pickers], "name one picker in the profile")
    return pickers[0].parameters if pickers else MaxScorePicker()


def _built(one: _Plugin, plugins: Mapping[str, _Plugin]) -> Any:
    return one.type.build(one.parameters, _most_tokens(_producer(one), plugins))


def _producer(one: _Plugin) -> str:
    return str(getattr(one.parameters, "prefix_match_info_producer_name", ""))


def _most_tokens(producer: str, plugins: Mapping[str, _Plugin]) -> int:
    """Return the number of leading prompt tokens to compare, from the parameters of `producer`, the plugin that
    computes the prefix matches; 0 = all tokens.
    """
    found = plugins.get(producer or DEFAULT_PRODUCER)
    parameters = ApproximateMatches() if found is None else found.parameters
    return parameters.max_prefix_tokens_to_match if isinstance(parameters, ApproximateMatches) else 0
