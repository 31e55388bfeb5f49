"""The objects that every pool's reconciliation uses."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead_operator.cluster import Cluster
from fairlead_operator.control_plane import ControlPlane
from fairlead_operator.device_turns import DeviceTurns
from fairlead_operator.events import PostEvent
from fairlead_operator.gateways.watching import GatewayNews
from fairlead_operator.observing.nodes import LeavingNodes
from fairlead_operator.polling import SleepingPools
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.sleepers import Engines, NoEngines


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The objects that every pool's reconciliation uses. `clock` gives Unix seconds; `post_event` posts Kubernetes
    Events.
    """

    settings: OperatorSettings
    cluster: Cluster
    control_plane: ControlPlane
    policies: PolicyCatalogue
    clock: Callable[[], float]
    post_event: PostEvent
    sleeping: SleepingPools = field(default_factory=SleepingPools)
    gateways: GatewayNews = field(default_factory=GatewayNews)
    nodes: LeavingNodes = field(default_factory=LeavingNodes)
    engines: Engines = field(default_factory=NoEngines)
    turns: DeviceTurns = field(default_factory=DeviceTurns)
