"""The operator's exchange: mirror, table versions, drains, acknowledgements, deletion and re-creation."""

import asyncio
import random
import string
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from fairlead.capabilities import Source, declared
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import LONGEST_MESSAGE, PoolEvent
from fairlead.reports.batches import Acknowledgement, RouterGone
from fairlead.reports.bindings import BindingReason
from fairlead.reports.engines import KnownCache, LearntFigure, Quantity
from fairlead.reports.loads import InstanceInFlight
from fairlead.tables import PoolKey
from fairlead_client.lines import TableLine
from fairlead_client.outcomes import Refused
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.series import AnnotationKind
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_binding, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.strict_system_api import NotTaken


def acknowledging(name: str, version: int, router: str = "router-0", **content: object) -> object:
    return a_report(name, router, acknowledged=(Acknowledgement(pool=CHAT, version=version),), **content)  # type: ignore[arg-type]  # passes through


async def test_the_same_state_twice_changes_nothing(api: ApiInstance) -> None:
    first = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    again = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    assert first == again
    assert first.table_version == 1
    assert len((await api.viewer.revisions(CHAT)).items) == 1
    assert len((await api.viewer.instance(CHAT, "a")).transitions) == 1


async def test_a_pool_says_when_its_operator_reported_it_last_also_where_nothing_changed(api: ApiInstance) -> None:
    told = []
    for _ in range(2):
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
        told.append((await api.viewer.pool(CHAT)).observed_at)
    assert told[0] is not None and told[1] is not None
    assert told[0] < told[1]


async def test_a_number_beyond_exact_floats_makes_one_revision_and_leaves_the_audit_chain_whole(api: ApiInstance) -> None:
    numbers = {"exact": 3.0, "least": 5e-324, "half": 0.5, "past": 2.0**60, "huge": [1e23, -1e300]}
    spec = {
        **SPEC,
        "roles": [{"name": "both", "template": {"spec": {"containers": [{"name": "engine", "image": "engine", "numbers": numbers}]}}}],
    }
    for version in (1, 2, 3):
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=version, spec=spec))
    assert [one.number for one in (await api.viewer.revisions(CHAT)).items] == [1]
    other = {**spec, "replicas": 3}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=4, generation=2, spec=other))
    newest = (await api.viewer.revisions(CHAT)).items[0]
    assert (newest.number, [step["path"] for step in newest.diff]) == (2, ["/replicas"])
    assert (await api.admin.audit_verification()).intact


async def test_what_live_routers_know_of_a_cache_is_told_with_its_instance(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    heard = KnownCache(pool=CHAT, instance="a", state="current", blocks=7, lag_seconds=0.5, answered=3, exact=2)
    other = a_report("r2", "router-1", known_caches=(replace(heard, state="silent", lag_seconds=None),))
    await api.router.post_report(a_report("r1", "router-0", known_caches=(heard,)))
    await api.router.post_report(other)
    told = (await api.viewer.instance(CHAT, "a")).caches
    assert [(one.router, one.state, one.blocks, one.lag_seconds, one.answered, one.exact) for one in told] == [
        ("router-0", "current", 7, 0.5, 3, 2),
        ("router-1", "silent", 7, None, 3, 2),
    ]
    assert (await api.viewer.instance(CHAT, "b")).caches == []
    await api.router.post_report(a_report("r3", "router-0"))
    assert [one.router for one in (await api.viewer.instance(CHAT, "a")).caches] == ["router-1"], "a state replaces the one before"


async def test_what_live_routers_have_learnt_is_told_with_its_instance_and_with_the_pool(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    assert ((await api.viewer.pool(CHAT)).learnt, (await api.viewer.instance(CHAT, "a")).learnt) == ([], [])
    here = LearntFigure(
        pool=CHAT,
        instance="a",
        quantity=Quantity.PREFILL,
        learnt=0.0002,
        declared=0.00016,
        samples=7,
        error=0.06,
        declared_error=0.2,
        in_use=False,
    )
    text = replace(here, instance=None, quantity=Quantity.TEXT, learnt=3.1, declared=4.0, error=None)
    elsewhere = replace(here, pool=replace(CHAT, name="unknown"))
    other = a_report("r1", "router-1", learnt_figures=(replace(here, samples=9), elsewhere))
    own = a_report("r2", "router-0", learnt_figures=(text, here, replace(here, instance=None, in_use=True)))
    await api.router.post_report(other)
    await api.router.post_report(own)
    told = (await api.viewer.instance(CHAT, "a")).learnt
    assert [(one.router, one.quantity, one.learnt, one.declared, one.samples, one.error, one.declared_error) for one in told] == [
        ("router-0", Quantity.PREFILL, 0.0002, 0.00016, 7, 0.06, 0.2),
        ("router-1", Quantity.PREFILL, 0.0002, 0.00016, 9, 0.06, 0.2),
    ]
    assert (await api.viewer.instance(CHAT, "b")).learnt == []
    of_pool = (await api.viewer.pool(CHAT)).learnt
    assert [(one.router, one.quantity, one.learnt, one.error, one.in_use) for one in of_pool] == [
        ("router-0", Quantity.TEXT, 3.1, None, False),
        ("router-0", Quantity.PREFILL, 0.0002, 0.06, True),
    ]
    await api.router.post_report(a_report("r3", "router-0"))
    assert [one.router for one in (await api.viewer.instance(CHAT, "a")).learnt] == ["router-1"], "a state replaces the one before"


async def test_what_an_instance_can_do_is_measured_first_and_remembered_when_no_router_is_left(api: ApiInstance) -> None:
    before = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a", state=InstanceState.STARTING)))
    assert before.capability is not None
    assert before.capability.prefill_tokens_per_second == declared(6250.0)
    assert before.capability.start_seconds.source is Source.UNKNOWN
    measured = LearntFigure(
        pool=CHAT,
        instance=None,
        quantity=Quantity.PREFILL,
        learnt=1 / 20_000,
        declared=1 / 6250,
        samples=50,
        error=None,
        declared_error=None,
        in_use=True,
        value=21_000.0,
        value_samples=41,
        age_seconds=20.0,
        p10=19_000.0,
        p50=21_000.0,
        p90=23_000.0,
    )
    await api.router.post_report(a_report("r1", learnt_figures=(measured, replace(measured, instance="a", value=22_000.0))))
    seen = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=2))
    assert seen.capability is not None
    speed = seen.capability.prefill_tokens_per_second
    assert (speed.value, speed.source, speed.samples) == (21_000.0, Source.MEASURED, 41)
    assert seen.capability.start_seconds.source is Source.MEASURED, "it was seen to start and then to serve"
    assert (await api.viewer.pool(CHAT)).capability.prefill_tokens_per_second.value == 21_000.0
    assert (await api.viewer.instance(CHAT, "a")).capability.prefill_tokens_per_second.value == 22_000.0
    assert await known_to_routers(api) == (21_000.0, Source.MEASURED, 41), "a router that begins goes by it"
    await api.router.post_router_gone(RouterGone(router="router-0", at=datetime.now(UTC).timestamp()))
    alone = await api.pool_operator.put_pool_state(CHAT, a_state(version=3))
    assert await known_to_routers(api) == (21_000.0, Source.MEASURED, 41), "and when no router is left"
    assert alone.capability is not None
    assert alone.capability.prefill_tokens_per_second.value == 21_000.0
    other = {**SPEC, "engine": {**SPEC["engine"], "bytesPerToken": 3}}
    changed = await api.pool_operator.put_pool_state(CHAT, a_state(version=4, generation=2, spec=other))
    assert changed.capability is not None
    assert changed.capability.prefill_tokens_per_second.source is Source.DECLARED, "of other engines it says nothing"
    assert await known_to_routers(api) is None, "and what is only declared is in the table"


async def known_to_routers(api: ApiInstance) -> tuple[float | None, Source, int] | None:
    """Return the speed that a router receives with the pool's table, its source and its samples."""
    async with aclosing(api.router.stream("router-9")) as lines:
        async for line in lines:
            if isinstance(line, TableLine):
                if line.known is None:
                    return None
                speed = line.known.known.prefill_tokens_per_second
                assert speed.age_seconds is not None and speed.age_seconds >= 20.0
                return speed.value, speed.source, speed.samples
    raise AssertionError("the stream ended before the table")


async def test_a_new_version_comes_only_when_what_routers_act_on_changes(api: ApiInstance) -> None:
    versions = []
    for number, state in enumerate(
        (
            a_state(an_instance("a"), version=1),
            a_state(an_instance("a", reason="other words"), version=2),
            a_state(an_instance("a"), an_instance("b", InstanceState.PENDING, address=None), version=3),
            a_state(an_instance("a"), an_instance("b", InstanceState.WARMING, weight=0.1), version=4),
            a_state(an_instance("a"), an_instance("b", InstanceState.WARMING, weight=0.5), version=5),
            a_state(an_instance("a"), an_instance("b"), version=6, generation=2, spec={**SPEC, "replicas": 3}),
            a_state(an_instance("a"), an_instance("b"), version=7, generation=3, spec={**SPEC, "routing": {"policy": "ear"}}),
        )
    ):
        assert number >= 0
        versions.append((await api.pool_operator.put_pool_state(CHAT, state)).table_version)
    assert versions == [1, 1, 1, 2, 3, 4, 5]
    table = (await api.router.tables())[CHAT]
    assert (table.version, table.routing.policy) == (5, "ear")
    assert [(entry.id, entry.anchors) for entry in table.instances] == [("a", 160), ("b", 160)]


async def test_a_pool_wants_what_its_operator_says_and_else_what_its_spec_says(api: ApiInstance) -> None:
    spec = {**SPEC, "replicas": 1, "roles": [{"name": "prefill", "minReplicas": 2}, {"name": "decode", "replicas": 2}]}
    await api.pool_operator.put_pool_state(CHAT, a_state(version=1, spec=spec))
    declared = await api.viewer.pool(CHAT)
    assert (declared.pool.desired, declared.desired) == (4, {"prefill": 2, "decode": 2})
    await api.pool_operator.put_pool_state(CHAT, a_state(version=2, spec=spec, desired={"prefill": 5, "decode": 2}))
    told = await api.viewer.pool(CHAT)
    assert (told.pool.desired, told.desired) == (7, {"prefill": 5, "decode": 2})
    assert told.pool.state_digest != declared.pool.state_digest, "the page shows the numbers anew"


async def test_living_instances_are_counted_by_role_and_state_also_where_they_are_left_out(api: ApiInstance) -> None:
    states = [InstanceState.SERVING, InstanceState.SERVING, InstanceState.DRAINING, InstanceState.SERVING]
    roles = [Role.PREFILL, Role.PREFILL, Role.PREFILL, Role.DECODE]
    told = [an_instance(name, state, role=role) for name, state, role in zip("abcd", states, roles, strict=True)]
    await api.pool_operator.put_pool_state(CHAT, a_state(*told, an_instance("e", role=Role.DECODE)))
    await api.pool_operator.put_pool_state(CHAT, a_state(*told, version=2))
    without = await api.viewer.pool(CHAT, instances=False)
    assert [(one.role, one.state, one.count) for one in without.counts] == [
        (Role.DECODE, InstanceState.SERVING, 1),
        (Role.PREFILL, InstanceState.DRAINING, 1),
        (Role.PREFILL, InstanceState.SERVING, 2),
    ]
    assert without.instances == []
    whole = await api.viewer.pool(CHAT)
    assert (whole.counts, len(whole.instances)) == (without.counts, 4)


async def test_a_state_of_a_newer_version_is_not_counted_and_hides_no_other(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute("UPDATE instances SET state = 'Sleeping' WHERE id = 'b'")
    found = await api.viewer.pool(CHAT, instances=False)
    assert [(one.state, one.count) for one in found.counts] == [(InstanceState.SERVING, 1)]


async def test_an_older_state_is_a_conflict(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=9, generation=2))
    for outdated in (a_state(version=8, generation=2), a_state(version=9, generation=1)):
        with pytest.raises(NotTaken, match=": 409 "):
            await api.pool_operator.put_pool_state(CHAT, outdated)


async def test_a_bad_spec_keeps_the_last_good_one_in_force(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    bad = {**SPEC, "routing": {"policy": "dualmap", "parameters": {"nonsense": 1}}}
    await api.pool_operator.put_pool_state(
        CHAT, a_state(an_instance("a"), version=2, generation=2, spec=bad, problem="routing.parameters: unknown")
    )
    assert (await api.router.tables())[CHAT].routing.parameters == {}
    pool = await api.viewer.pool(CHAT)
    assert (pool.pool.ready, pool.pool.ready_message) == (False, "routing.parameters: unknown")
    revisions = (await api.viewer.revisions(CHAT)).items
    assert [revision.number for revision in revisions] == [2, 1]
    with pytest.raises(NotTaken, match=r": 422 .*spec\.replicas") as caught:
        await api.pool_operator.put_pool_state(CHAT, a_state(version=3, generation=3, spec={"model": "tiny", "replicas": "many"}))
    assert isinstance(caught.value.outcome, Refused)


async def test_a_session_leaves_a_draining_instance_with_its_next_request_as_its_router_says(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in "ab")))
    await api.router.post_report(a_report("r1", bindings=tuple(a_binding(name, "a") for name in ("early", "late", "never"))))
    draining = a_state(an_instance("a", InstanceState.DRAINING), an_instance("b"), version=2)
    await api.pool_operator.put_pool_state(CHAT, draining)
    assert (await api.viewer.migrations({})).items == []
    await api.router.post_report(a_report("r2", bindings=(a_binding("early", "b", previous="a", based_on=1, reason=BindingReason.DRAIN),)))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("b"), version=3))
    await api.router.post_report(a_report("r3", bindings=(a_binding("late", "b", previous="a", based_on=1, reason=BindingReason.DRAIN),)))
    moves = (await api.viewer.migrations({"trigger": "drain"})).items
    assert sorted((move.session or "", move.source, move.target) for move in moves) == [("early", "a", "b"), ("late", "a", "b")]
    held = {name: (await api.viewer.session(CHAT, name)) for name in ("early", "late", "never")}
    assert {name: told.session.instance for name, told in held.items()} == {"early": "b", "late": "b", "never": None}
    left, home = sorted(held["late"].history, key=lambda holder: holder.version)
    assert left.released_at is not None
    assert left.released_at <= home.bound_at, "nobody held it in between"
    assert [holder.released_at is not None for holder in held["never"].history] == [True]


async def test_a_session_that_a_gone_instance_is_said_to_hold_stays_unbound(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in "ab")))
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("b"), version=2))
    receipt = await api.router.post_report(a_report("r2", bindings=(a_binding("s", "a", id="late"),)))
    assert receipt.lost == ("late",)
    assert [found.bound_sessions for found in (await api.viewer.instances(CHAT)).items] == [0]


async def test_an_instance_is_acknowledged_when_every_live_router_has_its_table(api: ApiInstance) -> None:
    async def acknowledged(version: int) -> dict[str, bool]:
        state = a_state(an_instance("a"), an_instance("b", InstanceState.DRAINING), version=version)
        return {found.id: found.acknowledged for found in (await api.pool_operator.put_pool_state(CHAT, state)).instances}

    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    assert await acknowledged(2) == {"a": True, "b": True}  # nobody routes
    await api.router.post_report(acknowledging("r1", 1, "router-0"))  # type: ignore[arg-type]  # a Report
    assert await acknowledged(3) == {"a": True, "b": False}
    await api.router.post_report(acknowledging("r3", 2, "router-0"))  # type: ignore[arg-type]  # a Report
    await api.router.post_report(acknowledging("r2", 1, "router-1"))  # type: ignore[arg-type]  # a Report
    assert await acknowledged(4) == {"a": True, "b": False}
    await api.router.post_router_gone(RouterGone(router="router-1", at=datetime.now(UTC).timestamp()))
    assert await acknowledged(5) == {"a": True, "b": True}


async def test_in_flight_sums_live_routers_and_takes_only_their_newest_word(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    now = datetime.now(UTC).timestamp()

    def working(name: str, router: str, at: float, in_flight: int, waiting: int) -> object:
        return a_report(name, router, at, in_flight=(InstanceInFlight(pool=CHAT, instance="a", in_flight=in_flight, waiting=waiting),))

    await api.router.post_report(working("n1", "router-0", now, 3, 1))  # type: ignore[arg-type]  # a Report
    await api.router.post_report(working("n2", "router-1", now, 2, 0))  # type: ignore[arg-type]  # a Report
    await api.router.post_report(working("n0", "router-0", now - 5, 50, 0))  # type: ignore[arg-type]  # a Report
    seen = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    assert (seen.live_routers, seen.instances[0].in_flight) == (2, 5)
    assert (await api.viewer.pool(CHAT)).instances[0].in_flight == 5


async def test_a_router_is_live_for_as_long_after_its_report_as_is_set(database_url: str) -> None:
    async with running_api(database_url, router_live_seconds=30) as api:
        await api.router.post_report(a_report("r1"))
        for silent_seconds, live in ((25, 1), (35, 0)):
            with psycopg.connect(plain(database_url)) as connection:
                connection.execute(f"UPDATE routers SET last_seen_at = now() - interval '{silent_seconds} seconds'")
            assert (await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))).live_routers == live


@pytest.mark.parametrize("serving", [False, True], ids=["every instance's state changes", "nothing changes"])
async def test_a_state_takes_as_many_statements_for_sixty_instances_as_for_two(api: ApiInstance, *, serving: bool) -> None:
    """The operator waits 3 s for the answer; with a statement for each instance, a busy database would be awaited 60
    times.
    """
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    async def counted(pool: PoolKey, number: int) -> int:
        names = [f"chat-{one}" for one in range(number)]
        states = [InstanceState.SERVING if serving else InstanceState.STARTING, InstanceState.SERVING]
        for version, state in enumerate(states, 1):
            sent.clear()
            instances = (an_instance(name, state) for name in names)
            await api.pool_operator.put_pool_state(pool, a_state(*instances, version=version, uid=f"uid-{pool.name}"))
        return len(sent)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        few = await counted(CHAT, 2)
        many = await counted(PoolKey(namespace="default", name="many"), 60)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert 0 < many == few <= 30


async def test_versions_go_on_after_deletion_and_re_creation(api: ApiInstance, start_api: Callable[[], Awaitable[ApiInstance]]) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    await api.pool_operator.delete_pool(CHAT)
    await api.pool_operator.delete_pool(CHAT)
    assert await api.router.tables() == {}
    with pytest.raises(ApiProblem) as caught:
        await api.viewer.pool(CHAT)
    assert caught.value.problem.status == 404
    with pytest.raises(NotTaken, match="pool-deleted"):
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=5))
    restarted = await start_api()
    seen = await restarted.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), uid="uid-2"))
    assert seen.table_version == 2
    assert seen.instances[0].bound_sessions == 0
    with pytest.raises(NotTaken, match="pool-replaced"):
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=99))
    history = (await api.viewer.session(CHAT, "s")).history
    assert [holder.released_at is not None for holder in history] == [True]


async def test_missing_instances_are_gone_and_their_story_stays(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("b"), version=2))
    assert [item.id for item in (await api.viewer.instances(CHAT)).items] == ["b"]
    story = await api.viewer.instance(CHAT, "a")
    assert [(change.before, change.after) for change in story.transitions] == [("Serving", "Gone"), (None, "Serving")]


async def test_an_event_of_any_length_is_stored_and_holds_up_no_other(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state())
    noise = "".join(random.Random(7).choices(string.ascii_letters + "é", k=8000))
    long, short = (PoolEvent(at=api.clock().timestamp(), reason="ActionFailed", message=words) for words in (noise, "brief"))
    await api.pool_operator.post_pool_events(CHAT, (long, short))
    told = {item.message for item in (await api.viewer.events(CHAT)).items}
    assert told >= {"brief", noise.encode()[:LONGEST_MESSAGE].decode(errors="ignore")}
    with pytest.raises(NotTaken) as refused:
        await api.pool_operator.post_pool_events(CHAT, (replace(short, reason=noise),))
    assert (refused.value.status, refused.value.type) == (422, "invalid-input"), "no outage: it will never fit"


async def test_spec_changes_and_events_are_audited_with_their_actor_once(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    marks = {"fairlead.dev/changed-by": "ada", "fairlead.dev/change-reason": "more load"}
    changed = a_state(an_instance("a"), version=2, generation=2, spec={**SPEC, "replicas": 5}, changed_by="fairlead-api", annotations=marks)
    await api.pool_operator.put_pool_state(CHAT, changed)
    event = PoolEvent(at=1_700_000_000.0, reason="ScaledUp", message="from 2 to 5", before={"replicas": 2}, after={"replicas": 5})
    await api.pool_operator.post_pool_events(CHAT, (event,))
    await api.pool_operator.post_pool_events(CHAT, (event,))
    entries = (await api.viewer.audit({})).items
    assert [(entry.actor, entry.action, entry.reason) for entry in entries] == [
        ("operator", "operator.ScaledUp", "from 2 to 5"),
        ("ada", "pool.spec-changed", "more load"),
        ("kubectl", "pool.created", None),
    ]
    assert entries[1].before == {"/replicas": 2}
    assert entries[1].after == {"/replicas": 5}
    assert [item.message for item in (await api.viewer.events(CHAT)).items] == ["from 2 to 5"]


async def test_an_slo_change_opens_a_new_version(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=2, generation=2, spec={**SPEC, "slo": {"ttft": "2s"}}))
    versions = (await api.viewer.slo_versions(CHAT)).items
    assert [(item.version, item.ttft_seconds, item.active_until is None) for item in versions] == [(2, 2.0, True), (1, 5.0, False)]


async def test_states_of_many_pools_at_once_keep_the_audit_chain(api: ApiInstance) -> None:
    from fairlead.tables import PoolKey

    keys = [PoolKey(namespace="default", name=f"p{number}") for number in range(12)]
    await asyncio.gather(*(api.pool_operator.put_pool_state(key, a_state(an_instance("a"), uid=f"uid-{key.name}")) for key in keys))
    found = await api.admin.audit_verification()
    assert (found.intact, found.entries) == (True, 12)
    page = await api.viewer.pools(limit=5)
    assert (len(page.items), page.total) == (5, 12)
    rest = await api.viewer.pools(cursor=page.next_cursor, limit=100)
    assert len({item.name for item in (*page.items, *rest.items)}) == 12


@pytest.mark.parametrize("back", [InstanceState.WARMING, InstanceState.SERVING])
async def test_an_engine_that_ended_and_serves_again_between_two_states_was_lost(api: ApiInstance, back: InstanceState) -> None:
    """A loss of seconds that no state showed, as the API did not answer then, is an event, a mark and a notice."""
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    again = replace(an_instance("a", back), restarts=1)
    for version in (2, 3):
        await api.pool_operator.put_pool_state(CHAT, a_state(again, an_instance("b"), version=version))
    changes = (await api.viewer.instance(CHAT, "a")).transitions
    assert [(one.before, one.after, one.reason) for one in changes[:2]] == [
        ("Lost", back.value, "EngineRestarted"),
        ("Serving", "Lost", "EngineRestarted"),
    ]
    assert len(changes) == 3
    marks = (await api.viewer.annotations(CHAT, start="now-10m")).items
    assert [one.words for one in marks if one.kind is AnnotationKind.FAILURE] == ["a lost: EngineRestarted", f"a back: {back.value}"]
    found = await api.viewer.load_explanation(CHAT, "a")
    assert [one.words for one in found.changes if one.kind == "state"][-2:] == [
        "it became Lost (EngineRestarted)",
        f"it became {back.value} (EngineRestarted)",
    ]


async def test_a_loss_that_a_state_showed_counts_once(api: ApiInstance) -> None:
    lost = an_instance("a", InstanceState.LOST, reason="EngineKilled")
    back = replace(an_instance("a", InstanceState.WARMING, reason="EngineRestarted"), restarts=1)
    for version, one in enumerate((an_instance("a"), lost, back, replace(back, state=InstanceState.SERVING)), 1):
        await api.pool_operator.put_pool_state(CHAT, a_state(one, version=version))
    changes = (await api.viewer.instance(CHAT, "a")).transitions
    assert [one.after for one in changes] == ["Serving", "Warming", "Lost", "Serving"]
