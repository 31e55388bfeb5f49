"""Only one operator acts at a time, and another one begins soon after it has stopped: several operators with one Lease,
in virtual time.
"""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

from fairlead_operator.cluster import ClusterRefused, ClusterUnavailable, Resource
from fairlead_operator.health import Health
from fairlead_operator.leader_election import FencedCluster, LeaderElection, Lease
from fairlead_operator.settings import LeaseSettings
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.worlds.virtual_time import run_virtually, virtual_now

SETTINGS = LeaseSettings(namespace="default", name="fairlead-operator", seconds=10)


@dataclass(slots=True)
class Operator:
    """An operator that writes its actions into `acts` as (when, name, begins or halts).

    `skew` is the error of its wall clock in seconds.
    """

    name: str
    cluster: FakeCluster
    acts: list[tuple[float, str, bool]]
    skew: float = 0.0
    lease: Lease = field(init=False)
    task: "asyncio.Task[None] | None" = None

    def start(self) -> None:
        self.lease = Lease(SETTINGS, self.name, self.cluster, virtual_now, lambda: 1.8e9 + self.skew + virtual_now())
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Run as standby and as leader alternately, as `main` does."""
        election = LeaderElection(self.lease, SETTINGS.retry_seconds)
        while True:
            await election.win()
            self._note(True)
            await election.lead()
            self._note(False)

    async def kill(self) -> None:
        """End the operator without a last call."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        """End the operator in an orderly way."""
        await self.kill()
        self._note(False)
        await self.lease.release()

    def _note(self, begins: bool) -> None:
        self.acts.append((virtual_now(), self.name, begins))


def holder(cluster: FakeCluster) -> str:
    name: str = cluster.objects[Resource.LEASES, "fairlead-operator"]["spec"]["holderIdentity"]
    return name


def test_of_two_operators_one_acts_and_the_other_waits() -> None:
    async def story() -> None:
        cluster, acts = FakeCluster(), list[tuple[float, str, bool]]()
        one, other = Operator("one", cluster, acts), Operator("other", cluster, acts)
        one.start()
        other.start()
        await asyncio.sleep(120)
        assert acts == [(0.0, "one", True)]
        assert (one.lease.is_held(), other.lease.is_held(), other.lease.holder) == (True, False, "one")
        assert holder(cluster) == "one"
        await one.kill()
        await other.kill()

    run_virtually(story())


def test_a_killed_holder_is_taken_over_within_15_seconds_and_not_before_it_would_have_stopped() -> None:
    async def story(skew: float) -> float:
        cluster, acts = FakeCluster(), list[tuple[float, str, bool]]()
        one, other = Operator("one", cluster, acts), Operator("other", cluster, acts, skew=skew)
        one.start()
        await asyncio.sleep(5.3)
        other.start()
        await asyncio.sleep(20)
        await one.kill()
        killed_at, could_act_until = virtual_now(), virtual_now() + one.lease.seconds_left
        await asyncio.sleep(30)
        await other.kill()
        (taken_at, name, begins) = acts[-1]
        assert (name, begins) == ("other", True)
        assert taken_at > could_act_until
        return taken_at - killed_at

    for skew in (0.0, 86_400.0, -86_400.0):  # nobody's wall clock is trusted
        assert run_virtually(story(skew)) <= 15


def test_a_holder_that_ends_well_is_followed_at_once() -> None:
    async def story() -> None:
        cluster, acts = FakeCluster(), list[tuple[float, str, bool]]()
        one, other = Operator("one", cluster, acts), Operator("other", cluster, acts)
        one.start()
        await asyncio.sleep(0.5)
        other.start()
        await asyncio.sleep(7)
        await one.stop()
        stopped_at = virtual_now()
        await asyncio.sleep(5)
        assert acts[-1][1:] == ("other", True)
        assert acts[-1][0] - stopped_at <= SETTINGS.retry_seconds
        await other.kill()

    run_virtually(story())


def test_a_standby_whose_write_has_no_answer_tries_again_as_soon_as_that_could_give_no_hold() -> None:
    async def story() -> None:
        class Silent(FakeCluster):
            async def create(self, resource: Resource, namespace: str, body: dict[str, object]) -> dict[str, object] | None:
                if virtual_now() < 5:
                    await asyncio.sleep(35)
                return await super().create(resource, namespace, body)

        cluster, acts = Silent(), list[tuple[float, str, bool]]()
        one = Operator("one", cluster, acts)
        one.start()
        await asyncio.sleep(60)
        assert [act[1:] for act in acts] == [("one", True)]
        assert acts[0][0] < 10
        await one.kill()

    run_virtually(story())


def test_a_holder_that_cannot_renew_stops_before_anybody_else_begins() -> None:
    async def story() -> None:
        reachable = {"one": True}
        cluster, acts = FakeCluster(), list[tuple[float, str, bool]]()

        class Cut(FakeCluster):
            """The same cluster over a connection that can be cut: then calls hang until the client's timeout."""

            async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, object] | None:
                if not reachable["one"]:
                    await asyncio.sleep(10)
                    raise ClusterUnavailable("timeout")
                return await cluster.get(resource, namespace, name, subresource=subresource)

        one, other = Operator("one", Cut(cluster.objects), acts), Operator("other", cluster, acts)
        one.start()
        await asyncio.sleep(3)
        other.start()
        await asyncio.sleep(3)
        reachable["one"] = False
        await asyncio.sleep(30)
        reachable["one"] = True
        await asyncio.sleep(30)
        assert [act[1:] for act in acts] == [("one", True), ("one", False), ("other", True)]
        assert all(before[0] < after[0] for before, after in pairwise(acts))
        assert acts[2][0] - acts[1][0] >= 1, "with time to spare"
        await one.kill()
        await other.kill()

    run_virtually(story())


def test_a_restarted_operator_of_the_same_identity_goes_on_at_once() -> None:
    async def story() -> None:
        cluster, acts = FakeCluster(), list[tuple[float, str, bool]]()
        for _ in range(2):
            operator = Operator("fairlead-operator-0", cluster, acts)
            operator.start()
            await asyncio.sleep(0.1)
            await operator.kill()
        assert [at for at, _, _ in acts] == [0.0, 0.1]

    run_virtually(story())


async def test_of_two_that_take_it_at_the_same_moment_one_has_it() -> None:
    cluster, now = FakeCluster(), 0.0
    leases = [Lease(SETTINGS, name, cluster, lambda: now, lambda: 1.8e9) for name in ("one", "other")]
    assert await leases[0].hold()
    await leases[0].release()
    both = cluster.objects[Resource.LEASES, "fairlead-operator"]
    version = both["metadata"]["resourceVersion"]
    assert await leases[0].hold()
    both = cluster.objects[Resource.LEASES, "fairlead-operator"]
    assert both["metadata"]["resourceVersion"] != version
    assert not await leases[1].hold(), "it was taken between its look and its write, or before"


async def test_without_the_lease_nothing_can_be_changed() -> None:
    cluster, now = FakeCluster(), 0.0
    lease = Lease(SETTINGS, "one", cluster, lambda: now, lambda: 1.8e9)
    held = FencedCluster(cluster, lease)
    body = {"metadata": {"name": "s"}}
    await lease.hold()
    assert await held.create(Resource.SERVICES, "default", body)
    now = 7.0  # stopped for a while; nothing noticed it yet
    for write in (
        held.create(Resource.SERVICES, "default", {"metadata": {"name": "t"}}),
        held.patch(Resource.SERVICES, "default", "s", {}),
        held.delete(Resource.SERVICES, "default", "s"),
    ):
        try:
            await write
        except ClusterUnavailable as error:
            assert "Lease" in str(error)  # noqa: PT017 - all three are looked at
        else:
            raise AssertionError("written without the lease")
    assert await held.get(Resource.SERVICES, "default", "s") is not None


def test_a_standby_that_could_not_lead_is_not_ready_and_says_why() -> None:
    async def story() -> None:
        cluster, acts = FakeCluster(), list[tuple[float, str, bool]]()
        cluster.refuse = lambda verb, resource, name: ClusterRefused(403, "Forbidden", "leases is forbidden") if verb == "create" else None
        operator, health = Operator("one", cluster, acts), Health()
        assert not health.is_ready()
        operator.start()
        health.waiting_for = ""
        health.watch(operator.lease, ())
        await asyncio.sleep(60)
        assert acts == []
        assert health.document() == {"state": "standby", "holder": "", "pools": 0, "problem": "leases is forbidden"}
        assert not health.is_ready()
        cluster.refuse = lambda verb, resource, name: None
        await asyncio.sleep(2)
        assert health.document() == {"state": "leading", "holder": "one", "pools": 0}
        assert health.is_ready()
        await operator.kill()

    run_virtually(story())
