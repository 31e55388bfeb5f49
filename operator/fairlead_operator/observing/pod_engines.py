"""Finds the port and the engine facts (type, metrics, speed and KV cache size) of a pod's own engine, from the spec
from which the pod was created. Pure.

For a pod with the present template, the spec in force counts, so that a corrected fact applies at once. For an earlier
template, the newest revision with that template counts. If no such revision is left, or the pod belongs to a workload,
the port is read from the pod's containers, and all other facts are taken from the present spec.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.instance_marks import engine_container_of
from fairlead.pools import PoolSpec
from fairlead.tables import InstanceEngine
from fairlead_operator.pod_templates import PORT_NAME, SELECTED_HASH, spec_hash

_PROBES = ("readinessProbe", "startupProbe", "livenessProbe")
_HANDLERS = ("httpGet", "tcpSocket", "grpc")
_ASKED_OF_A_SIDECAR = "/app-health/"
"""The beginning of the paths of probes that Istio redirects to a port of its side-car. Such probes show nothing about
the engine.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPorts:
    """The ports that a pod's manifest shows: `declared` by its engine's container, `probed` by its probes, and `named`:
    the port named `PORT_NAME`, by which a Service finds it.
    """

    declared: frozenset[int] = frozenset()
    probed: frozenset[int] = frozenset()
    named: int | None = None
    elsewhere: frozenset[int] = frozenset()
    """The ports that all containers of the pod declare, including side-cars."""

    def own(self, wanted: int | None) -> int | None:
        """Return the port at which the pod's engine listens, according to its manifest; None if the manifest does not
        show it.

        `wanted` is the port of the spec in force. If the manifest contains `wanted` anywhere, the result is `wanted`.
        Otherwise it is the only port that the engine's container declares and a probe uses, else the declared port with
        the usual name, else the only probed port.
        """
        if wanted in self.declared | self.probed | self.elsewhere:
            return wanted
        both = self.declared & self.probed
        for found in (both, self.declared & {self.named}, self.probed):
            if len(found) == 1:
                return next(iter(found))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEngine:
    """The known facts about a pod's engine. `engine` has the facts in which the pod's engine differs from the spec in
    force, None if that spec's facts apply. If neither a revision nor the pod shows the port, `port` is the port of the
    spec in force, and `is_assumed` is True.
    """

    port: int | None
    engine: InstanceEngine | None = None
    is_assumed: bool = False


NO_PORTS = ShownPorts()
UNKNOWN_ENGINE = PodEngine(port=None)


def shown_ports(spec: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> ShownPorts:
    """Return the ports that the `spec` of a pod with these annotations shows."""
    containers: list[Mapping[str, Any]] = spec.get("containers") or []
    if not containers:
        return NO_PORTS
    name = engine_container_of([str(one.get("name")) for one in containers], annotations)
    engine = next(one for one in containers if str(one.get("name")) == name)
    numbers = {one.get("name"): int(one["containerPort"]) for one in engine.get("ports") or [] if _is_tcp(one)}
    handlers = [(engine.get(probe) or {}).get(handler) or {} for probe in _PROBES for handler in _HANDLERS]
    ports = [one["port"] for one in handlers if "port" in one and not str(one.get("path")).startswith(_ASKED_OF_A_SIDECAR)]
    return ShownPorts(
        declared=frozenset(int(one["containerPort"]) for one in engine.get("ports") or [] if _is_tcp(one)),
        probed=frozenset(numbers[port] if port in numbers else int(port) for port in ports if port in numbers or str(port).isdecimal()),
        named=next((number for number in _named(containers)), None),
        elsewhere=frozenset(int(one["containerPort"]) for item in containers for one in item.get("ports") or [] if _is_tcp(one)),
    )


def pod_engine(template: str, shown: ShownPorts, present: PoolSpec | None, made_from: Mapping[str, PoolSpec]) -> PodEngine:
    """Return the engine of a pod that was made from the template with the hash `template`. `made_from` has, by template
    hash, the newest spec with that template; `present` is the spec in force.
    """
    wanted = present.engine.port if present is not None else None
    spec = made_from.get(template)
    if template == SELECTED_HASH or spec is None:
        own = shown.own(wanted)
        return PodEngine(port=own or wanted, is_assumed=own is None and template != SELECTED_HASH)
    own_facts = spec.facts().engine.of_instance()
    is_other = present is None or own_facts != present.facts().engine.of_instance()
    return PodEngine(port=spec.engine.port, engine=own_facts if is_other else None)


def by_template(spec: PoolSpec | None) -> Mapping[str, PoolSpec]:
    """Return a mapping from the hash of each role's template to the given spec; empty without a spec."""
    return {spec_hash(spec, role.name): spec for role in spec.roles} if spec is not None else {}


def _named(containers: Iterable[Mapping[str, Any]]) -> Iterable[int]:
    """Return the port that a Service finds by name: the first one, in the order of the containers."""
    return (
        int(one["containerPort"]) for item in containers for one in item.get("ports") or [] if one.get("name") == PORT_NAME and _is_tcp(one)
    )


def _is_tcp(port: Mapping[str, Any]) -> bool:
    return port.get("protocol", "TCP") == "TCP" and "containerPort" in port
