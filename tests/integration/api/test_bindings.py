"""Bindings from reports on a real database: which report wins, which rows are recorded, and that none doubles."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from fairlead.reports.batches import Report
from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import CacheFate, CacheTransfer, MigrationOutcome, MigrationRecord, MoveOutcome, ReRouteRecord
from fairlead_client.lines import BindingsLine, StreamLine, SyncedLine
from fairlead_testing.examples import examples
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain
from fairlead_testing.waiting import PATIENCE_SECONDS


async def with_instances(api: ApiInstance, *names: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in names)))


async def test_a_cold_binding_is_stored_with_version_one(api: ApiInstance) -> None:
    await with_instances(api, "a", "b")
    receipt = await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    assert not receipt.duplicate
    assert receipt.conflicts == ()
    found = await api.viewer.session(CHAT, "s")
    assert (found.session.instance, found.session.version, found.session.reason) == ("a", 1, "cold")
    assert [(holder.instance, holder.released_at) for holder in found.history] == [("a", None)]


async def test_a_name_found_to_be_shared_is_held_by_nobody_and_says_since_when(api: ApiInstance) -> None:
    await with_instances(api, "a", "b")
    first = a_binding("everybody", "a", at=time.time() - 700)
    found = replace(first, id="", previous="a", at=first.at + 2, based_on=1, shared=True)
    late = a_binding("everybody", "b", at=first.at + 3, based_on=1)
    await api.router.post_report(a_report("r1", bindings=(first, a_binding("own", "b"))))
    await api.router.post_report(a_report("r2", bindings=(found,)))
    shown = await api.viewer.session(CHAT, "everybody")
    assert (shown.session.instance, shown.session.version) == (None, 1)
    assert shown.session.shared_at is not None and abs(shown.session.shared_at.timestamp() - found.at) < 0.01
    assert [holder.released_at for holder in shown.history] == [shown.session.shared_at]
    assert (await api.viewer.session(CHAT, "own")).session.shared_at is None
    await api.router.post_report(a_report("r3", bindings=(late,)))
    shown = await api.viewer.session(CHAT, "everybody")
    assert shown.session.shared_at is not None, "a router that had not heard of it"
    again = a_binding("everybody", "a", at=first.at + 600, based_on=2)
    await api.router.post_report(a_report("r4", bindings=(again,)))
    shown = await api.viewer.session(CHAT, "everybody")
    assert (shown.session.instance, shown.session.shared_at) == ("a", None)


async def test_a_name_found_to_be_shared_in_the_report_that_bound_it_has_its_history(api: ApiInstance) -> None:
    await with_instances(api, "a")
    first = a_binding("everybody", "a")
    found = replace(first, id="", previous="a", at=first.at + 1, shared=True)
    never = replace(found, session="never bound")
    await api.router.post_report(a_report("r1", bindings=(first, found, never)))
    shown = await api.viewer.session(CHAT, "everybody")
    assert shown.session.instance is None and shown.session.shared_at is not None
    assert [holder.released_at is not None for holder in shown.history] == [True]
    assert [item.session for item in (await api.viewer.sessions()).items] == ["everybody"]


async def test_an_instance_that_goes_while_a_session_is_bound_to_it_keeps_none(api: ApiInstance, database_url: str) -> None:
    await with_instances(api, "a")
    with psycopg.connect(plain(database_url)) as going, psycopg.connect(plain(database_url), autocommit=True) as watching:
        going.execute("SELECT FROM pools FOR UPDATE")  # as who takes the operator's word for a pool
        going.execute("UPDATE instances SET state = 'Gone', gone_at = now() WHERE id = 'a'")
        posting = asyncio.ensure_future(api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),))))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not posting.done() and not watching.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
                await asyncio.sleep(0.01)
    receipt = await posting
    assert [(one.session, one.instance) for one in receipt.conflicts] == [("s", None)]
    assert (await api.viewer.sessions()).items == []


async def test_a_pool_with_more_sessions_than_a_statement_has_parameters_loses_an_instance_and_is_deleted(
    api: ApiInstance, database_url: str
) -> None:
    sessions = 70_000  # a statement takes 65,535 parameters
    await with_instances(api, "a", "b")
    held = (
        "INSERT INTO {} (pool_id, session, instance, version, reason, router, bound_at{}) SELECT p.id, 's' || n, "
        "CASE WHEN mod(n, 100) = 0 THEN 'b' ELSE 'a' END, 1, 'cold', 'router-0', now(){} FROM pools p, generate_series(1, %s) n"
    )
    with psycopg.connect(plain(database_url)) as filling:
        filling.execute(held.format("sessions", ", last_seen_at, migrations, context_tokens", ", now(), 0, 0"), (sessions,))
        filling.execute(held.format("bindings", "", ""), (sessions,))
    with psycopg.connect(plain(database_url), autocommit=True) as watching:

        def bound() -> list[tuple[str, int]]:
            count = "SELECT instance, count(*) FROM {} GROUP BY 1 ORDER BY 1"
            kept = watching.execute(count.format("sessions WHERE instance IS NOT NULL")).fetchall()
            assert kept == watching.execute(count.format("bindings WHERE released_at IS NULL")).fetchall()
            return [(str(instance), int(number)) for instance, number in kept]

        await with_instances(api, "b")
        assert bound() == [("b", sessions // 100)]
        await api.pool_operator.delete_pool(CHAT)
        assert bound() == []


async def test_the_same_report_twice_gives_the_same_receipt_and_stores_once(api: ApiInstance) -> None:
    await with_instances(api, "a", "b")
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    losing = a_report("r2", router="router-1", bindings=(a_binding("s", "b"),))
    first = await api.router.post_report(losing)
    again = await api.router.post_report(losing)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert first.conflicts == again.conflicts
    assert [(conflict.session, conflict.instance, conflict.version) for conflict in first.conflicts] == [("s", "a", 1)]


async def test_a_move_writes_binding_history_and_migration_together(api: ApiInstance) -> None:
    await with_instances(api, "a", "b")
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    move = a_binding("s", "b", id="m1", previous="a", reason=BindingReason.HOT_MIGRATION, based_on=1)
    record = MigrationRecord(
        id="m1",
        pool=CHAT,
        session="s",
        request="q",
        source="a",
        target="b",
        trigger=BindingReason.HOT_MIGRATION,
        at=move.at,
        predicted_source_ttft_seconds=4.0,
        predicted_target_ttft_seconds=1.0,
        benefit_seconds=3.0,
        actual_ttft_seconds=1.5,
    )
    await api.router.post_report(a_report("r2", bindings=(move,), migrations=(record,)))
    found = await api.viewer.session(CHAT, "s")
    assert (found.session.instance, found.session.version, found.session.migrations) == ("b", 2, 1)
    assert [(holder.instance, holder.migration) for holder in found.history] == [("b", "m1"), ("a", None)]
    assert found.history[1].released_at is not None
    migration = await api.viewer.migration("m1")
    assert migration.paid_off is True


@pytest.mark.parametrize(
    ("stay", "benefit", "actual", "paid_off"),
    [
        (4.0, 3.0, 1.5, True),
        (4.0, 3.0, 4.0, False),
        (4.0, -46.0, 1.5, None),
        (4.0, -46.0, 9.0, False),
        (4.0, 3.0, None, None),
        (None, None, 1.0, None),
    ],
)
async def test_a_move_paid_off_only_if_the_actual_shows_a_promised_gain(
    api: ApiInstance, stay: float | None, benefit: float | None, actual: float | None, paid_off: bool | None
) -> None:
    await with_instances(api, "a", "b")
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    move = a_binding("s", "b", id="m1", previous="a", reason=BindingReason.HOT_MIGRATION, based_on=1)
    record = MigrationRecord(
        id="m1",
        pool=CHAT,
        session="s",
        request="q",
        source="a",
        target="b",
        trigger=BindingReason.HOT_MIGRATION,
        at=move.at,
        predicted_source_ttft_seconds=stay,
        predicted_target_ttft_seconds=None if stay is None or benefit is None else stay - benefit,
        benefit_seconds=benefit,
        actual_ttft_seconds=actual,
    )
    await api.router.post_report(a_report("r2", bindings=(move,), migrations=(record,)))
    assert (await api.viewer.migration("m1")).paid_off is paid_off


async def test_a_reroute_is_stored_listed_and_counted_apart_from_migrations(api: ApiInstance) -> None:
    await with_instances(api, "a", "b")
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    at = a_binding("s", "a").at
    record = ReRouteRecord(
        id="q1",
        pool=CHAT,
        session="s",
        request="q",
        source="a",
        target="b",
        trigger=BindingReason.HOTSPOT,
        at=at,
        predicted_source_ttft_seconds=4.0,
        predicted_target_ttft_seconds=1.0,
        benefit_seconds=3.0,
    )
    await api.router.post_report(a_report("r2", reroutes=(record,)))
    assert (await api.viewer.reroute("q1")).outcome == "underway"
    late = MigrationOutcome(id="q1", pool=CHAT, actual_ttft_seconds=6.5, outcome=MoveOutcome.COMPLETED)
    await api.router.post_report(a_report("r3", reroute_outcomes=(late,)))
    found = await api.viewer.reroute("q1")
    assert (found.session, found.request, found.source, found.target, found.outcome) == ("s", "q", "a", "b", "completed")
    assert found.paid_off is False
    assert [item.id for item in (await api.viewer.reroutes({"paid_off": False})).items] == ["q1"]
    assert (await api.viewer.reroutes({"paid_off": True})).items == []
    assert (await api.viewer.reroute_matrix({})).total == 1
    assert (await api.viewer.migrations({})).items == []
    assert (await api.viewer.migration_matrix({})).total == 0
    summary = (await api.viewer.pool(CHAT)).pool
    assert (summary.sessions_moved, summary.requests_rerouted > 0) == (0, True)
    session = await api.viewer.session(CHAT, "s")
    assert (session.session.instance, session.session.migrations) == ("a", 0)


async def test_what_became_of_a_moves_cache_is_stored_with_its_outcome(api: ApiInstance) -> None:
    await with_instances(api, "a", "b")
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"), a_binding("t", "a"), a_binding("u", "a"))))
    moves = {name: a_binding(name, "b", id=f"m-{name}", previous="a", reason=BindingReason.DRAIN, based_on=1) for name in "stu"}
    records = [
        MigrationRecord(
            id=move.id, pool=CHAT, session=name, request="q", source="a", target="b", trigger=BindingReason.DRAIN, at=move.at,
            predicted_source_ttft_seconds=None, predicted_target_ttft_seconds=1.0, benefit_seconds=None, tokens_moved=4000,
            handed_over=name == "s",
        )
        for name, move in moves.items()
    ]  # fmt: skip
    await api.router.post_report(a_report("r2", bindings=tuple(moves.values()), migrations=tuple(records)))
    came = CacheTransfer(fate=CacheFate.MOVED, seconds=0.4, tokens=3968, bytes=227_000_000, predicted_seconds=0.3)
    transfers = {"s": came, "t": CacheTransfer(fate=CacheFate.LATE, seconds=2.0), "u": None}
    outcomes = [
        MigrationOutcome(id=moves[name].id, pool=CHAT, actual_ttft_seconds=0.7, outcome=MoveOutcome.COMPLETED, transfer=transfer)
        for name, transfer in transfers.items()
    ]
    await api.router.post_report(a_report("r3", migration_outcomes=tuple(outcomes)))
    found = {name: await api.viewer.migration(move.id) for name, move in moves.items()}
    told = {name: (one.cache, one.tokens_moved, one.tokens_recomputed, one.transfer_seconds) for name, one in found.items()}
    assert told == {
        "s": (CacheFate.MOVED, 3968, 32, 0.4),
        "t": (CacheFate.LATE, 0, 4000, 2.0),
        "u": (None, 4000, 0, None),
    }
    assert {name for name, one in found.items() if one.handed_over} == {"s"}
    assert (found["s"].transfer_bytes, found["s"].predicted_transfer_seconds) == (227_000_000, 0.3)
    assert "Its KV cache, 3,968 tokens, 227.0 MB, was transferred after 400 ms (300 ms predicted)." in found["s"].explanation
    assert "Its KV cache was not transferred: it took too long. This was known after 2.00 s, and b computed it." in found["t"].explanation


async def test_a_move_without_its_record_still_leaves_a_migration(api: ApiInstance) -> None:
    await with_instances(api, "a", "b")
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    await api.router.post_report(a_report("r2", bindings=(a_binding("s", "b", previous="a", reason=BindingReason.SLO, based_on=1),)))
    page = await api.viewer.migrations({"session": "s"})
    assert [(m.source, m.target, m.trigger, m.paid_off) for m in page.items] == [("a", "b", "slo", None)]
    assert [(m.predicted_source_ttft_seconds, m.benefit_seconds, m.request) for m in page.items] == [(None, None, None)]


async def test_a_binding_to_an_unknown_instance_is_refused_and_its_router_told(api: ApiInstance) -> None:
    await with_instances(api, "a")
    receipt = await api.router.post_report(a_report("r1", bindings=(a_binding("s", "nowhere", id="one"), a_binding("t", "a"))))
    assert receipt.lost == ("one",)
    assert [(binding.session, binding.instance, binding.version) for binding in receipt.conflicts] == [("s", None, 0)]
    page = await api.viewer.sessions({})
    assert [item.session for item in page.items] == ["t"]


async def test_two_routers_binding_one_session_at_once_agree_on_one_home(
    api: ApiInstance, start_api: Callable[[], Awaitable[ApiInstance]]
) -> None:
    await with_instances(api, "a", "b")
    other = await start_api()
    for round_number in range(10):
        session = f"s{round_number}"
        one, two = await asyncio.gather(
            api.router.post_report(a_report(f"x{round_number}", bindings=(a_binding(session, "a"),))),
            other.router.post_report(a_report(f"y{round_number}", router="router-1", bindings=(a_binding(session, "b"),))),
        )
        losers = [*one.conflicts, *two.conflicts]
        assert len(losers) == 1
        found = await api.viewer.session(CHAT, session)
        assert found.session.instance == losers[0].instance
        assert len(found.history) == 1


@examples(12, suppress=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["s", "t"]), st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=8
    ),
    order=st.randoms(use_true_random=False),
    repeats=st.integers(0, 4),
)
async def test_whatever_arrives_in_whatever_order_history_and_present_agree(
    api: ApiInstance, steps: list[tuple[str, str, int, int]], order: object, repeats: int
) -> None:
    await with_instances(api, "a", "b", "c")
    shuffle = order.shuffle  # type: ignore[attr-defined]  # hypothesis types its Random as object here
    run = f"{id(steps)}-{len(steps)}-{repeats}"
    reports: list[Report] = [
        a_report(
            f"{run}-{number}",
            router=f"router-{router}",
            bindings=(a_binding(f"{run}{session}", instance, previous="a", based_on=based_on),),
        )
        for number, (session, instance, based_on, router) in enumerate(steps)
    ]
    sent = [*reports, *reports[:repeats]]
    shuffle(sent)
    await asyncio.gather(*(api.router.post_report(report) for report in sent))
    for name in {f"{run}{session}" for session, *_ in steps}:
        found = await api.viewer.session(CHAT, name)
        open_holders = [holder for holder in found.history if holder.released_at is None]
        assert [(holder.instance, holder.version) for holder in open_holders] == [(found.session.instance, found.session.version)]
        versions = [holder.version for holder in found.history]
        assert versions == list(range(versions[0], versions[-1] - 1, -1))
        moves = (await api.viewer.migrations({"session": name})).items
        assert len(moves) == found.session.migrations == len([holder for holder in found.history if holder.migration])


async def read_until_synced(lines: "asyncio.Queue[StreamLine]") -> list[StreamLine]:
    found: list[StreamLine] = []
    while True:
        line = await asyncio.wait_for(lines.get(), PATIENCE_SECONDS)
        found.append(line)
        if isinstance(line, SyncedLine):
            return found


async def test_a_binding_committed_at_one_replica_reaches_routers_at_the_other(
    api: ApiInstance, start_api: Callable[[], Awaitable[ApiInstance]]
) -> None:
    await with_instances(api, "a", "b")
    await api.router.post_report(a_report("r1", bindings=(a_binding("old", "a"),)))
    other = await start_api()
    lines: asyncio.Queue[StreamLine] = asyncio.Queue()

    async def read() -> None:
        async for line in other.router.stream("router-9"):
            await lines.put(line)

    reader = asyncio.create_task(read())
    snapshot = await read_until_synced(lines)
    bindings = [binding.session for line in snapshot if isinstance(line, BindingsLine) for binding in line.bindings]
    assert bindings == ["old"]
    await api.router.post_report(a_report("r2", bindings=(a_binding("new", "b"),)))
    while not isinstance(line := await asyncio.wait_for(lines.get(), PATIENCE_SECONDS), BindingsLine):
        pass
    assert [(binding.session, binding.instance) for binding in line.bindings] == [("new", "b")]
    reader.cancel()
    await asyncio.wait([reader])
