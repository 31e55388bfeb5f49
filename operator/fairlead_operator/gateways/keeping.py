"""Creates and removes the objects by which gateways find a pool, and reads the statuses that gateways write on them."""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from fairlead.conditions.facts import ConditionType, GatewayFacts, GatewayJudgement, GatewayParent, GatewayProblem, GatewayProblemReason
from fairlead.gateway_specs import GATEWAY_GROUP, GATEWAY_PLURAL
from fairlead.pools import PoolSpec
from fairlead_operator.applying.ownership import apply_owned, delete_others, delete_owned
from fairlead_operator.applying.retrying import ActionRetries, fingerprint
from fairlead_operator.cluster import Cluster, ClusterRefused, Resource
from fairlead_operator.gateways.manifests import MOST_TARGET_PORTS, SERVICE_LABEL, gateway_pool, own_service, picker_service, picker_slices
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.settings import PickerSettings

_NOBODY = ("Status", "default")
"""Kind and name of the status entry that GAIE before 1.0 wrote while no gateway routed to the pool."""


def gateway_parents(document: Mapping[str, Any]) -> tuple[GatewayParent, ...]:
    """Return the gateways that route to the pool, in the order of their status entries.

    A gateway whose status is about an earlier generation is left out, because it has not examined the present
    generation yet.
    """
    metadata = document["metadata"]
    found = []
    for entry in (document.get("status") or {}).get("parents") or ():
        parent = entry.get("parentRef") or {}
        kind, name = parent.get("kind") or "Gateway", str(parent.get("name") or "")
        if (kind, name) == _NOBODY:
            continue
        judgements = tuple(
            GatewayJudgement(
                type=str(one.get("type")),
                status=str(one.get("status")),
                reason=str(one.get("reason")),
                message=str(one.get("message") or ""),
            )
            for one in entry.get("conditions") or ()
            if int(one.get("observedGeneration") or metadata.get("generation") or 0) >= int(metadata.get("generation") or 0)
        )
        found.append(GatewayParent(name=f"{kind} {parent.get('namespace') or metadata['namespace']}/{name}", judgements=judgements))
    return tuple(found)


_NO_PICKER = (
    "The operator does not know the Service by which gateways reach the routers; install the chart with router.picker.enabled, or set "
    "FAIRLEAD_PICKER_SERVICE of the operator"
)
_NO_DEFINITION = (
    f"The cluster has no {GATEWAY_PLURAL}.{GATEWAY_GROUP}; install the CRDs of the Gateway API Inference "
    "Extension: they are noticed within "
    "seconds"
)


class _NotShown(Exception):
    """Raised if a pool cannot be announced to gateways; `facts` gives the reason."""

    def __init__(self, reason: GatewayProblemReason, message: str) -> None:
        self.facts = GatewayFacts(problem=GatewayProblem(reason=reason, message=message))
        super().__init__(message)


class GatewayObjects:
    """Creates and removes the objects by which gateways find one pool. The object remembers its last result only to
    avoid unnecessary calls.
    """

    def __init__(self, cluster: Cluster, retries: ActionRetries, picker: PickerSettings) -> None:
        self._cluster = cluster
        self._retries = retries
        self._picker = picker
        self._is_removed = False
        self._most_ports = MOST_TARGET_PORTS
        """Maximum number of target ports per InferencePool: one if the cluster has the definition of GAIE 1.0."""

    async def keep(
        self, identity: PoolIdentity, spec: PoolSpec | None, status: Mapping[str, Any], ports: Sequence[int]
    ) -> GatewayFacts | None:
        """Create the objects that the spec in force requires, or remove the objects of an earlier spec; return the
        pool's gateway facts.

        `ports` are the ports at which instances listen. Returns None if the spec names no gateway and all gateway
        objects of the pool are removed. Raises ClusterUnavailable.
        """
        if spec is None or spec.gateway is None:
            return await self._removed(identity, status)
        self._is_removed = False
        wanted, found = gateway_pool(identity, spec.gateway, ports[: self._most_ports], self._picker), dict[str, Any]()
        try:
            problem = await self._try("picker", identity, partial(self._lead_to_routers, identity))
            pool = ("pool", fingerprint(wanted))
            problem = problem or await self._try(pool, identity, partial(self._apply_pool, identity, wanted, found))
        except _NotShown as why:
            return why.facts
        return problem or GatewayFacts(parents=gateway_parents(found))

    async def _removed(self, identity: PoolIdentity, status: Mapping[str, Any]) -> GatewayFacts | None:
        """Remove the pool's existing objects for gateways. Return the facts of the failure if that fails; otherwise
        None.

        The objects are removed once, and again in each round in which the status still lists gateways.
        """
        told = any(one.get("type") == ConditionType.GATEWAY_READY for one in status.get("conditions") or ())
        if not told and (self._is_removed or self._picker.service is None):
            return None
        problem = await self._try("removal", identity, partial(self._remove, identity))
        self._is_removed = problem is None
        return problem

    async def _try(self, what: Hashable, identity: PoolIdentity, act: Callable[[], Awaitable[None]]) -> GatewayFacts | None:
        """Call `act`, unless the object `what` was refused and the pause after the refusal still lasts. Return the
        facts of the refusal; None if `act` succeeded.
        """
        await self._retries.attempt(identity, ("gateway", what), act)
        refusal = self._retries.problem_of(("gateway", what))
        return GatewayFacts(problem=GatewayProblem(reason=refusal.reason, message=refusal.message)) if refusal is not None else None

    async def _apply_pool(self, identity: PoolIdentity, wanted: dict[str, Any], found: dict[str, Any]) -> None:
        """Apply the GAIE InferencePool and store the result in `found`. Raises ClusterError, NotOwned, _NotShown."""
        try:
            found.update(await apply_owned(self._cluster, identity, Resource.GATEWAY_POOLS, wanted))
        except ClusterRefused as refused:
            if refused.status == 404:  # an apply creates what is not there
                raise _NotShown(GatewayProblemReason.DEFINITION_MISSING, _NO_DEFINITION) from refused
            if refused.status != 422 or len(wanted["spec"]["targetPorts"]) == 1:
                raise
            self._most_ports = 1
            del wanted["spec"]["targetPorts"][1:]
            await self._apply_pool(identity, wanted, found)

    async def _lead_to_routers(self, identity: PoolIdentity) -> None:
        """Make the pool's own Service route to the routers. Raises ClusterError, NotOwned, _NotShown."""
        place = self._picker.service
        if place is None:
            raise _NotShown(GatewayProblemReason.NO_PICKER, _NO_PICKER)
        is_elsewhere = place.namespace != identity.namespace
        of_routers, told = None, list[dict[str, Any]]()
        if is_elsewhere:
            told = await self._cluster.find(Resource.ENDPOINT_SLICES, place.namespace, f"{SERVICE_LABEL}={place.name}")
        else:
            of_routers = await self._cluster.get(Resource.SERVICES, place.namespace, place.name)
        if of_routers is None and not told:
            message = (
                f"Service {place.namespace}/{place.name}, by which gateways reach the routers, leads nowhere; correct "
                "FAIRLEAD_PICKER_SERVICE"
            )
            raise _NotShown(GatewayProblemReason.NO_PICKER, message)
        await apply_owned(self._cluster, identity, Resource.SERVICES, picker_service(identity, self._picker, of_routers))
        slices = picker_slices(identity, self._picker, told)
        for wanted in slices:
            await apply_owned(self._cluster, identity, Resource.ENDPOINT_SLICES, wanted)
        if is_elsewhere:
            await delete_others(self._cluster, identity, Resource.ENDPOINT_SLICES, slices)
            if not slices:
                message = f"Service {place.namespace}/{place.name}, by which gateways reach the routers, has no router at present"
                raise _NotShown(GatewayProblemReason.NO_PICKER, message)

    async def _remove(self, identity: PoolIdentity) -> None:
        await delete_owned(self._cluster, identity, Resource.GATEWAY_POOLS, identity.name)
        await delete_owned(self._cluster, identity, Resource.SERVICES, own_service(identity.name))
        await delete_others(self._cluster, identity, Resource.ENDPOINT_SLICES, ())
