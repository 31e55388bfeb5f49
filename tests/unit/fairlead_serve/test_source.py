"""The source of a served pool: the states that it sends to the control API, in virtual time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from fairlead.pool_states import HeldPools, InstanceObservation, PoolEvent, PoolObservations, PoolState, UnheardPools
from fairlead.tables import PoolKey
from fairlead_api.infra.object_marks import FIELD_MANAGER
from fairlead_api.plans.objects import Target
from fairlead_client.outcomes import Cause, Later, Outcome, Taken
from fairlead_process.policies import installed_policies
from fairlead_router.engines.engine_pages import ToldModels
from fairlead_serve.engine_states import UNASKED, Health
from fairlead_serve.file_cluster import FileCluster
from fairlead_serve.source import PoolSource
from fairlead_serve.state_files import StateFiles, own_pool_file

WELL = Health(ready=True)
SILENT = Health(ready=False, reason="NoConnection", words="it does not accept connections")
A, B = "a:8000", "b:8000"


@dataclass
class Api:
    """Takes every state, with one live router that has it at once; does not answer while `is_away`."""

    states: list[PoolState] = field(default_factory=list)
    events: list[PoolEvent] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    is_away: bool = False

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        if self.is_away:
            return Later(cause=Cause.UNAVAILABLE, problem="it is away")
        self.states.append(state)
        seen = tuple(
            InstanceObservation(id=one.id, in_flight=0, bound_sessions=0, cache_tokens=0, acknowledged=True) for one in state.instances
        )
        return Taken(
            answer=PoolObservations(
                table_version=1, table_acknowledged=True, live_routers=1, ttft_attainment=None, requests_per_second=0.0, instances=seen
            )
        )

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> Outcome[None]:
        self.events += events
        return Taken(answer=None)

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        self.deleted.append(str(pool))
        return Taken(answer=None)

    async def held_pools(self) -> Outcome[HeldPools]:
        return Taken(answer=HeldPools(pools=()))

    async def unheard_pools(self, seconds: float) -> Outcome[UnheardPools]:
        return Taken(answer=UnheardPools(pools=()))


@dataclass
class Engines:
    """The health of engines, by address."""

    known: dict[str, Health] = field(default_factory=dict)
    models: Mapping[str, ToldModels] = field(default_factory=dict)
    watched: set[str] = field(default_factory=set)

    def watch(self, addresses: Iterable[str]) -> None:
        self.watched = set(addresses)

    def health(self, address: str, model: str) -> Health:
        return self.known.get(address, UNASKED)


class World:
    """A source on the files of a folder; `rounds` lets seconds pass."""

    def __init__(self, root: Path, **document: object) -> None:
        self.files = StateFiles(root=root, pool_file=own_pool_file(root))
        self.api, self.engines, self.now = Api(), Engines(), 1000.0
        self.write(**document)
        self.restart()

    def write(self, **document: object) -> None:
        engines = {"engines": [{"url": f"http://{address}"} for address in (A, B)], "routing": {"warming": {"duration": "0s"}}}
        self.files.pool_file.write_text(yaml.safe_dump({**engines, **document}))

    def restart(self) -> None:
        self.source = PoolSource(self.files, self.api, self.engines, installed_policies(), lambda: self.now)

    async def rounds(self, seconds: int = 5) -> dict[str, str]:
        for _ in range(seconds):
            self.now += 1
            await self.source.step()
        return {one.id: one.state.value for one in self.newest.instances}

    @property
    def newest(self) -> PoolState:
        return self.api.states[-1]


async def serving(root: Path, **document: object) -> World:
    world = World(root, **document)
    world.engines.known = {A: WELL, B: WELL}
    world.engines.models = {A: ToldModels(names=("m",)), B: ToldModels(names=("m", "n"))}
    assert await world.rounds() == {"a-8000": "Serving", "b-8000": "Serving"}
    return world


async def test_there_is_no_pool_before_its_model_is_known(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(3):
        await world.source.step()
    assert not world.api.states
    assert world.source.waiting_words == "no engine answers yet, and the file names no model"
    world.engines.known, world.engines.models = {B: WELL}, {B: ToldModels(names=("n",))}
    assert await world.rounds() == {"a-8000": "Starting", "b-8000": "Serving"}
    assert (world.newest.spec["model"], world.newest.spec["engine"]["type"]) == ("n", "vllm")


@pytest.mark.parametrize(("engine", "found"), [({}, "sglang"), ({"type": "vllm"}, "vllm")])
async def test_a_pool_is_of_the_engine_that_the_first_one_says_it_is_unless_the_file_does(
    engine: dict[str, str], found: str, tmp_path: Path
) -> None:
    world = World(tmp_path, engine=engine)
    world.engines.known = {A: WELL}
    world.engines.models = {A: ToldModels(names=("m",), engine_type="sglang")}
    await world.rounds()
    assert world.newest.spec["engine"]["type"] == found


DIVIDED = [{"url": f"http://{A}", "role": "prefill"}, {"url": f"http://{B}", "role": "decode"}]


async def test_engines_have_the_roles_of_the_file_which_a_running_pool_keeps(tmp_path: Path) -> None:
    world = await serving(tmp_path, engines=DIVIDED, engine={"type": "vllm"})
    assert {one.id: one.role.value for one in world.newest.instances} == {"a-8000": "prefill", "b-8000": "decode"}
    assert world.newest.desired == {"decode": 1, "prefill": 1}
    conditions = {one["type"]: one for one in world.newest.conditions}
    assert conditions["InstancesReady"]["status"] == "True"
    first = world.newest.uid
    world.write()
    await world.rounds()
    assert world.newest.problem is not None
    assert world.newest.problem.startswith("engines[].role")
    world.restart()
    await world.rounds()
    assert not world.newest.problem
    assert world.newest.desired == {"both": 2}
    assert world.newest.uid != first, "another pool: its sessions would all have to move at once"


async def test_engines_change_their_roles_as_new_engines(tmp_path: Path) -> None:
    world = await serving(tmp_path, engines=DIVIDED, engine={"type": "vllm"})
    world.write(engines=[{**one, "role": role} for one, role in zip(DIVIDED, ("decode", "prefill"), strict=True)], engine={"type": "vllm"})
    assert await world.rounds() == {"a-8000": "Serving", "b-8000": "Serving"}
    assert {one.id: one.role.value for one in world.newest.instances} == {"a-8000": "decode", "b-8000": "prefill"}


async def test_an_engine_that_is_lost_is_told_with_its_reason(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    world.engines.known[B] = SILENT
    assert await world.rounds() == {"a-8000": "Serving", "b-8000": "Lost"}
    conditions = {one["type"]: one for one in world.newest.conditions}
    assert conditions["Ready"]["message"] == "1 of 2 instances serve, 1 lost"
    assert conditions["Degraded"]["message"] == "b-8000: NoConnection (it does not accept connections)"
    assert "ScalingActive" not in conditions
    assert [event.reason for event in world.api.events] == ["EngineAdded", "EngineAdded", "EngineLost"]


async def test_nothing_is_told_twice_in_a_second_while_nothing_changes(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    await world.rounds(20)
    before = len(world.api.states)
    await world.rounds(20)
    assert len(world.api.states) - before <= 4, "every five seconds, so that it stays known"


async def test_a_change_of_the_file_is_a_new_generation_and_one_that_cannot_be_used_is_none(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    world.write(slo={"ttft": "1s"})
    await world.rounds()
    assert (world.newest.generation, world.newest.spec["slo"]["ttft"], world.newest.changed_by) == (2, "1s", "file")
    world.write(slo={"ttft": "soon"})
    await world.rounds()
    assert world.newest.problem is not None
    assert "slo.ttft: 'soon' cannot be used" in world.newest.problem
    assert (world.newest.generation, world.newest.spec["slo"]["ttft"]) == (2, "1s")
    world.write(slo={"ttft": "1s"})
    await world.rounds()
    assert world.newest.problem is None


async def test_a_running_pool_keeps_its_name_and_model(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    for changes in ({"name": "other"}, {"model": "other"}):
        world.write(**changes)
        await world.rounds()
        assert world.newest.problem is not None
        assert "start it again" in world.newest.problem


async def test_a_plan_is_told_with_who_made_it(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    cluster, target = FileCluster(world.files, installed_policies()), Target.of_pool(PoolKey(namespace="default", name="engines"))
    found = await cluster.read(target)
    await cluster.patch(target, {"slo": {"ttft": "2s"}}, found.resource_version, {"fairlead.dev/changed-by": "ada"}, dry_run=False)
    await world.rounds()
    assert (world.newest.changed_by, world.newest.annotations["fairlead.dev/changed-by"]) == (FIELD_MANAGER, "ada")


async def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    before, told = world.newest, len(world.api.events)
    world.restart()
    assert await world.rounds() == {"a-8000": "Serving", "b-8000": "Serving"}
    assert (world.newest.uid, world.newest.generation) == (before.uid, before.generation)
    assert int(world.newest.resource_version) > int(before.resource_version)
    assert len(world.api.events) == told


async def test_another_name_after_a_restart_is_another_pool_and_the_old_one_ends(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    before = world.newest.uid
    world.write(name="other")
    world.restart()
    await world.rounds()
    assert world.api.deleted == ["default/engines"]
    assert world.newest.uid != before


async def test_while_the_control_api_is_away_no_engine_leaves_as_drained(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    world.api.is_away = True
    world.write(engines=[{"url": f"http://{A}"}])
    await world.rounds(20)
    assert B in world.engines.watched
    world.api.is_away = False
    assert await world.rounds(40) == {"a-8000": "Serving"}
    assert "EngineRemoved" in {event.reason for event in world.api.events}


async def test_rounds_reports_and_a_refused_file_are_counted(tmp_path: Path) -> None:
    world = await serving(tmp_path)
    metrics = world.source.metrics

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    await world.rounds()
    assert value("fairlead_source_engines", state="Serving") == 2.0
    assert (value("fairlead_source_file_refused"), value("fairlead_source_reports_failed_total")) == (0.0, 0.0)
    world.write(policy={"name": "nonsense"})
    world.api.is_away = True
    await world.rounds()
    assert value("fairlead_source_file_refused") == 1.0
    assert (value("fairlead_source_reports_failed_total") or 0.0) > 0


@pytest.mark.parametrize("successor", [{"url": f"http://{A}", "name": "gpu"}, {"url": "http://c:8000", "name": "gpu"}])
async def test_the_marks_of_an_engine_do_not_outlive_it(successor: dict[str, str], tmp_path: Path) -> None:
    engine, other = {"url": f"http://{A}", "name": "gpu"}, {"url": f"http://{B}"}
    world = World(tmp_path, engines=[engine, other])
    world.engines.known = {A: WELL, B: WELL, "c:8000": WELL}
    world.engines.models = {A: ToldModels(names=("m",))}
    await world.rounds()
    cluster = FileCluster(world.files, installed_policies())
    for name in ("gpu", "b-8000"):
        target = Target.of_instance(PoolKey(namespace="default", name="engines"), name)
        found = await cluster.read(target)
        await cluster.patch(target, {"fairlead.dev/drain": "true"}, found.resource_version, {}, dry_run=False)
    assert await world.rounds() == {"gpu": "Draining", "b-8000": "Draining"}
    if successor == engine:
        world.write(engines=[other])
        assert await world.rounds(60) == {"b-8000": "Draining"}
    world.write(engines=[successor, other])
    assert await world.rounds() == {"gpu": "Serving", "b-8000": "Draining"}


async def test_engines_that_tell_no_model_without_a_key_are_named_as_the_reason_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    for known in ({}, {A: WELL, B: WELL}, {A: WELL, B: WELL}):
        world.engines.known = known
        await world.source.step()
    words = f"no engine lists its model without an API key: write `model` into {world.files.pool_file}"
    assert world.source.waiting_words == words
    logged = [record.__dict__["error"] for record in caplog.records if record.levelname == "WARNING"]
    assert logged == ["no engine answers yet, and the file names no model", words]
