"""Reads which pods use the devices that pools of a namespace share, and which pools take turns on them.

Among the pools of a namespace that take turns, only one at a time reads, decides and acts (`lock`), so that two pools
never take the same device. This is sufficient because only the operator that holds the Lease acts. The remaining memory
of this module only measures three durations: how long a device has been free, how long a sleeping engine has not
confirmed that it left its device, and how long a pool has completed no round. These durations do not decide which pool
may be awake. The danger: a pod of another namespace, or a process outside of Kubernetes, may use the same GPU unseen.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any

from prometheus_client import Gauge

from fairlead.addresses import joined
from fairlead.conditions.facts import ConditionType
from fairlead.conditions.pool_conditions import IDLE, WAITS_FOR_DEVICE
from fairlead.durations import parse_duration
from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL
from fairlead.instances import InstanceState
from fairlead.pools import PoolSpec
from fairlead.reconciling.devices import DeviceUser, SharedDevices, TurnTaker
from fairlead.reconciling.observed import PodHealth
from fairlead.role_specs import TurnsSpec
from fairlead.tables import PoolKey
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.observing.pods import Pod, read_pod
from fairlead_operator.pod_marks import STATE_ANNOTATION
from fairlead_operator.sleepers import Engines
from fairlead_operator.times import parse_time


def turns_spec(spec: PoolSpec | None) -> TurnsSpec | None:
    """Return the section that names the devices on which a pool takes turns; None if the pool takes no turns."""
    return next((role.turns for role in spec.roles if role.turns is not None), None) if spec is not None else None


class DeviceTurns:
    """The devices that the pools of each namespace share. `wake` wakes a pool's worker; `waiting` is the metric of
    waiting instances by pool. A pool that has completed no round for `silence` seconds does not count as waiting,
    because its condition is out of date and it could not take a device.
    """

    def __init__(self, waiting: Gauge | None = None, silence: float = 60.0) -> None:
        self.wake: Callable[[PoolKey], None] = lambda pool: None
        self._waiting = waiting
        self._silence = silence
        self._completed: dict[PoolKey, float] = {}
        """Time of each pool's last completed round or, before the first one, of its first observed wait (Unix seconds).
        """
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._free: dict[tuple[str, str], float] = {}
        self._unsure: dict[tuple[str, str], dict[str, float]] = {}

    def lock(self, namespace: str, spec: PoolSpec | None) -> AbstractAsyncContextManager[None]:
        """Return the lock under which a pool that takes turns reads and acts. For any other pool, the returned lock
        does nothing.
        """
        return self._locks[namespace] if turns_spec(spec) is not None else nullcontext()

    async def look(
        self, cluster: Cluster, engines: Engines, pool: Mapping[str, Any], spec: PoolSpec | None, now: float
    ) -> SharedDevices | None:
        """Return the devices that the pool shares, with the pools that take turns on them, the pods that use them, and
        the time since which each free device has been free. None if the pool takes no turns. Raises ClusterError.
        """
        turns, namespace = turns_spec(spec), str(pool["metadata"]["namespace"])
        if turns is None:
            return None
        own = _told_by(pool, TurnTaker(pool=pool["metadata"]["name"], claims=turns.claims, priority=turns.priority))
        own = replace(own, at_least_seconds=turns.at_least_seconds, least=_least(spec))
        others = [taker for found in await cluster.find(Resource.POOLS, namespace, "") if (taker := _taker(found)) is not None]
        others = [
            self._believed(namespace, taker, now) for taker in others if taker.pool != own.pool and set(taker.claims) & set(own.claims)
        ]
        claims = {claim for taker in (own, *others) for claim in taker.claims}
        pods = await cluster.find(Resource.PODS, namespace, "")
        users = await asyncio.gather(*(_user(engines, claim, pod) for pod in pods for claim in sorted(_claims(pod) & claims)))
        timed = self._timed(namespace, claims, users, now)
        free = {claim: since for claim in claims if (since := self._free.get((namespace, claim))) is not None}
        return SharedDevices(own=own, others=tuple(others), users=timed, free_since=free)

    def note(self, pool: PoolKey, waiting: int | None, now: float) -> None:
        """Record at the end of a round how many instances of a pool wait for a device. `waiting` is None if the pool
        takes no turns.
        """
        if waiting is None:
            self._completed.pop(pool, None)
        else:
            self._completed[pool] = now
        if self._waiting is not None and waiting is not None:
            self._waiting.labels(str(pool)).set(waiting)
        elif self._waiting is not None:
            with suppress(KeyError):
                self._waiting.remove(str(pool))

    def _believed(self, namespace: str, taker: TurnTaker, now: float) -> TurnTaker:
        """Return the pool as given. If it waits for a device but has completed no round for too long, return it as a
        pool that does not wait.
        """
        if taker.waiting_since is None:
            return taker
        completed = self._completed.setdefault(PoolKey(namespace=namespace, name=taker.pool), now)
        return taker if now - completed < self._silence else replace(taker, waiting_since=None)

    def tell(self, namespace: str, devices: SharedDevices | None) -> None:
        """Wake the workers of the pools that share devices with a pool that changed."""
        for other in devices.others if devices is not None else ():
            self.wake(PoolKey(namespace=namespace, name=other.pool))

    def _timed(self, namespace: str, claims: Iterable[str], users: Iterable[DeviceUser], now: float) -> tuple[DeviceUser, ...]:
        """Measure how long the devices have been free, and return the users of the devices. While the engine of a
        sleeping user has not confirmed that it left its device, the user's `unsure_since` is the time since which the
        confirmation is missing; otherwise it is None.
        """
        timed = []
        for claim in claims:
            place, here = (namespace, claim), [user for user in users if user.claim == claim]
            before = self._unsure.get(place, {})
            unsure = {user.pod: before.get(user.pod, now) for user in here if user.state is InstanceState.ASLEEP and not user.off}
            self._unsure[place] = unsure
            timed += [replace(user, unsure_since=unsure.get(user.pod)) for user in here]
            if all(user.off for user in here):
                self._free.setdefault(place, now)
            else:
                self._free.pop(place, None)
        return tuple(timed)


def _least(spec: PoolSpec | None) -> int:
    return next((role.min_replicas for role in spec.roles if role.turns is not None), 0) if spec is not None else 0


def _taker(pool: Mapping[str, Any]) -> TurnTaker | None:
    """Return the pool's claims and priority for taking turns, from its spec in force; None if the pool takes no turns
    or is being deleted.
    """
    kept = ((pool.get("status") or {}).get("specInForce") or {}).get("spec")
    roles = (kept or pool.get("spec") or {}).get("roles") or ()
    role = next((role for role in roles if ((role.get("warm") or {}).get("turns"))), None)
    if role is None or pool["metadata"].get("deletionTimestamp"):
        return None
    turns = role["warm"]["turns"]
    taker = TurnTaker(
        pool=pool["metadata"]["name"],
        claims=tuple(turns.get("claims") or ()),
        priority=int(turns.get("priority") or 0),
        least=int(role.get("minReplicas") or 0),
    )
    with suppress(InvalidInput):
        taker = replace(taker, at_least_seconds=parse_duration(turns.get("atLeast", "60s"), "atLeast"))
    return _told_by(pool, taker)


def _told_by(pool: Mapping[str, Any], taker: TurnTaker) -> TurnTaker:
    """Return the pool with two facts from its status condition: the time since which it waits for a device (None if it
    does not wait), and whether it is idle.
    """
    conditions = (pool.get("status") or {}).get("conditions") or ()
    found: Mapping[str, Any] = next((one for one in conditions if one.get("type") == ConditionType.HAS_DEVICES), {})
    waits = found.get("reason") == WAITS_FOR_DEVICE
    return replace(taker, waiting_since=parse_time(found.get("lastTransitionTime")) if waits else None, idle=found.get("reason") == IDLE)


def _claims(pod: Mapping[str, Any]) -> set[str]:
    return {str(one["resourceClaimName"]) for one in (pod.get("spec") or {}).get("resourceClaims") or () if one.get("resourceClaimName")}


async def _user(engines: Engines, claim: str, document: Mapping[str, Any]) -> DeviceUser:
    pod, metadata = read_pod(document), document["metadata"]
    instance = pod.instance
    is_instance = STATE_ANNOTATION in (metadata.get("annotations") or {}) and POOL_LABEL in (metadata.get("labels") or {})
    ended = instance.health is PodHealth.FAILED
    return DeviceUser(
        claim=claim,
        pod=instance.id,
        pool=metadata["labels"][POOL_LABEL] if is_instance else "",
        state=instance.state if is_instance else None,
        since=instance.state_since,
        leaving=instance.terminating or instance.draining_since is not None,
        off=ended or (is_instance and instance.state is InstanceState.ASLEEP and await _gave_up(engines, pod)),
    )


async def _gave_up(engines: Engines, pod: Pod) -> bool:
    port = pod.shown.own(None)
    address = joined(pod.ip, port) if pod.ip and port is not None else None
    return pod.instance.health is PodHealth.READY and address is not None and await engines.gave_up_memory(address)
