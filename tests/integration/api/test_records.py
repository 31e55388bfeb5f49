"""The record is true: on a real database, whatever routers send, whenever they send it, and whatever their clocks
show.
"""

import asyncio
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from fairlead.reports.batches import Report, ReportReceipt
from fairlead.reports.bindings import Binding, BindingChange, BindingReason
from fairlead.reports.decisions import DecisionReason, DecisionRecord, Weighing
from fairlead.reports.moves import MigrationRecord
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.routing.knowledge.bindings import SessionBindings
from fairlead_api.http import listing
from fairlead_api.infra.spans import Span
from fairlead_api.sessions.store.lists import PostgresSessions, SessionFilter
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.pages import Page
from fairlead_client.resources.sessions import SessionSummary
from fairlead_testing.builders.record_facts import contradictions
from fairlead_testing.running.api import CHAT, SECRETS, ApiInstance, a_binding, a_load, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

HOSTS = ("a", "b", "c", "d")
DAY = 86_400.0


def a_move(change: BindingChange, **changes: Any) -> MigrationRecord:
    values: dict[str, Any] = {
        "id": change.id,
        "pool": CHAT,
        "session": change.session,
        "request": "q",
        "source": change.previous,
        "target": change.instance,
        "trigger": change.reason,
        "at": change.at,
        "predicted_source_ttft_seconds": 2.0,
        "predicted_target_ttft_seconds": 1.0,
        "benefit_seconds": 1.0,
        **changes,
    }
    return MigrationRecord(**values)


def moving(session: str, instance: str, **changes: Any) -> BindingChange:
    return a_binding(session, instance, **{"id": uuid.uuid4().hex, "reason": BindingReason.SLO, **changes})


@pytest.fixture
async def hosts(api: ApiInstance) -> ApiInstance:
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(name) for name in HOSTS)))
    return api


async def post(api: ApiInstance, content: bytes) -> httpx.Response:
    transport = StreamingAsgiTransport(api.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
        headers = {"authorization": f"Bearer {SECRETS['system-router']}", "content-type": "application/json"}
        return await client.post("/internal/v1/reports", content=content, headers=headers)


async def post_all(api: ApiInstance, *reports: Report) -> list[ReportReceipt]:
    answer = await post(api, msgspec.json.encode(reports))
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=list[ReportReceipt])


async def history(api: ApiInstance, session: str) -> list[tuple[int, str, str]]:
    found = await api.viewer.session(CHAT, session)
    return [(holder.version, holder.instance, holder.router) for holder in reversed(found.history)]


async def test_a_router_that_moved_twice_on_old_news_loses_to_the_first_writer(hosts: ApiInstance, database_url: str) -> None:
    await hosts.router.post_report(a_report("1", bindings=(a_binding("s", "a"),)))
    await hosts.router.post_report(a_report("2", bindings=(moving("s", "b", previous="a", based_on=1),)))
    first = moving("s", "c", previous="a", based_on=1)
    second = moving("s", "d", previous="c", based_on=1, after=first.id)
    third = moving("s", "a", previous="d", based_on=1, after=second.id)
    receipt = await hosts.router.post_report(
        a_report("3", "router-1", bindings=(first, second), migrations=(a_move(first), a_move(second)))
    )
    assert receipt.lost == (first.id, second.id)
    later = await hosts.router.post_report(a_report("4", "router-1", bindings=(third,), migrations=(a_move(third),)))
    assert later.lost == (third.id,)
    assert await history(hosts, "s") == [(1, "a", "router-0"), (2, "b", "router-0")]
    assert [move.target for move in (await hosts.viewer.migrations({"session": "s"})).items] == ["b"]
    assert contradictions(database_url) == []


async def test_naming_the_holder_on_old_news_opens_no_way_past_it(hosts: ApiInstance) -> None:
    await hosts.router.post_report(a_report("1", bindings=(a_binding("s", "a"), moving("s", "b", previous="a", based_on=1))))
    first = moving("s", "c", previous="a", based_on=1)
    second = moving("s", "b", previous="c", based_on=1, after=first.id)
    third = moving("s", "d", previous="b", based_on=1, after=second.id)
    await hosts.router.post_report(a_report("2", "router-1", bindings=(first, second, third)))
    assert await history(hosts, "s") == [(1, "a", "router-0"), (2, "b", "router-0")]


async def test_own_moves_follow_each_other_before_the_api_has_answered(hosts: ApiInstance, database_url: str) -> None:
    cold = moving("s", "a")
    first = moving("s", "b", previous="a", after=cold.id)
    second = moving("s", "c", previous="b", after=first.id)
    await hosts.router.post_report(a_report("1", bindings=(cold, first), migrations=(a_move(first),)))
    receipt = await hosts.router.post_report(a_report("2", bindings=(second,), migrations=(a_move(second),)))
    assert receipt.lost == ()
    assert await history(hosts, "s") == [(1, "a", "router-0"), (2, "b", "router-0"), (3, "c", "router-0")]
    assert {move.id for move in (await hosts.viewer.migrations({"session": "s"})).items} == {first.id, second.id}
    assert contradictions(database_url) == []


async def test_a_version_nobody_gave_is_not_believed(hosts: ApiInstance) -> None:
    await hosts.router.post_report(a_report("1", bindings=(a_binding("s", "a"),)))
    receipt = await hosts.router.post_report(a_report("2", "router-1", bindings=(moving("s", "b", based_on=2**52),)))
    assert len(receipt.lost) == 1
    assert await history(hosts, "s") == [(1, "a", "router-0")]


async def test_after_a_restore_sessions_go_on_from_the_version_their_routers_know(hosts: ApiInstance, database_url: str) -> None:
    move = moving("s", "b", previous="a", based_on=7)
    await hosts.router.post_report(a_report("1", bindings=(move,), migrations=(a_move(move),)))
    await hosts.router.post_report(a_report("2", bindings=(moving("s", "c", previous="b", based_on=7, after=move.id),)))
    assert [version for version, *_ in await history(hosts, "s")] == [8, 9]
    assert contradictions(database_url) == []


async def test_a_report_id_belongs_to_its_router(hosts: ApiInstance) -> None:
    one = await hosts.router.post_report(a_report("same", bindings=(a_binding("s", "a"),)))
    other = await hosts.router.post_report(a_report("same", "router-1", bindings=(a_binding("t", "b"),)))
    assert (one.duplicate, other.duplicate) == (False, False)
    assert await history(hosts, "t") == [(1, "b", "router-1")]


async def test_reports_merged_in_one_post_are_each_stored_once_however_they_are_cut_again(hosts: ApiInstance) -> None:
    reports = [a_report(f"r{number}", bindings=(moving(f"s{number}", "a"),)) for number in range(6)]
    first = await post_all(hosts, *reports[:4])
    again = await post_all(hosts, *reports[2:])
    assert [receipt.duplicate for receipt in (*first, *again)] == [False] * 4 + [True] * 2 + [False] * 2
    assert [receipt.id for receipt in again] == ["r2", "r3", "r4", "r5"]
    page = await hosts.viewer.sessions({})
    assert sorted(item.session for item in page.items) == [f"s{number}" for number in range(6)]


async def test_each_merged_report_is_told_of_its_own_lost_changes_and_again_when_repeated(hosts: ApiInstance) -> None:
    await hosts.router.post_report(a_report("1", bindings=(a_binding("s", "a"), a_binding("t", "a"))))
    changes = [moving("s", "b"), moving("u", "b"), moving("t", "b")]
    reports = [a_report(f"m{number}", "router-1", bindings=(change,)) for number, change in enumerate(changes)]
    first, again = await post_all(hosts, *reports), await post_all(hosts, *reports)
    assert [receipt.lost for receipt in first] == [(changes[0].id,), (), (changes[2].id,)]
    assert [(receipt.lost, receipt.conflicts) for receipt in again] == [(receipt.lost, receipt.conflicts) for receipt in first]


class RacingRouter:
    """A router that sends bindings over the real API and hears its answers late."""

    def __init__(self, name: str, api: ApiInstance) -> None:
        self.name = name
        self.bindings = SessionBindings(CHAT, 1e9, {})
        self.api = api
        self.numbers = iter(range(10**6))
        self.made: list[BindingChange] = []
        self.moves: list[MigrationRecord] = []

    def move(self, session: str, instance: str) -> None:
        known = self.bindings.get(session)
        if known is not None and known.instance == instance:
            return
        at = self.api.clock().timestamp()
        change = self.bindings.bind(session, instance, BindingReason.SLO, at, 10, f"{self.name}-{next(self.numbers)}")
        self.made.append(change)
        if change.previous is not None:
            self.moves.append(a_move(change))

    async def report(self, parts: int) -> None:
        made, self.made = self.made, []
        moves, self.moves = {move.id: move for move in self.moves}, []
        if not made:
            return
        size = -(-len(made) // parts)
        cuts = [made[start : start + size] for start in range(0, len(made), size)]
        reports = [
            a_report(f"{next(self.numbers)}", self.name, bindings=tuple(cut), migrations=tuple(moves[c.id] for c in cut if c.id in moves))
            for cut in cuts
        ]
        for receipt in await post_all(self.api, *reports):
            for binding in receipt.conflicts:
                self.bindings.apply(binding, 0.0, receipt.lost)

    def hear(self, session: str, found: Any) -> None:
        told = Binding(
            pool=CHAT,
            session=session,
            instance=found.session.instance,
            version=found.session.version,
            reason=BindingReason.SLO,
            bound_at=0.0,
            migrated_at=None,
        )
        self.bindings.apply(told, 0.0)


async def test_after_routers_raced_no_move_lacks_its_migration_and_no_migration_its_binding(hosts: ApiInstance, database_url: str) -> None:
    draw = random.Random(7)
    routers = [RacingRouter(f"router-{number}", hosts) for number in range(3)]
    sessions = [f"s{number}" for number in range(15)]
    for round_number in range(12):
        for router in routers:
            for _ in range(draw.randrange(25)):
                router.move(draw.choice(sessions), draw.choice(HOSTS))
        await asyncio.gather(*(router.report(draw.randint(1, 4)) for router in routers))
        if round_number % 3 == 2:
            for session in draw.sample(sessions, 5):
                found = await hosts.viewer.session(CHAT, session)
                draw.choice(routers).hear(session, found)
    assert contradictions(database_url) == []
    metrics = await exposition(hosts)
    (told,) = [line for line in metrics.splitlines() if line.startswith('fairlead_api_lost_moves_total{pool="default/chat"}')]
    assert float(told.split()[-1]) > 0
    assert (await hosts.viewer.pool(CHAT)).pool.lost_moves > 0


async def exposition(api: ApiInstance) -> str:
    async with httpx.AsyncClient(transport=StreamingAsgiTransport(api.app), base_url="http://api.test") as client:
        return (await client.get("/metrics", headers={"authorization": f"Bearer {SECRETS['viewer']}"})).text


async def test_history_is_stored_however_old_it_is(hosts: ApiInstance) -> None:
    old = hosts.clock().timestamp() - 40 * DAY
    move = moving("s", "b", previous="a", at=old, based_on=1)
    cold = a_binding("s", "a", at=old - 60)
    await hosts.router.post_report(a_report("1", bindings=(cold, move), migrations=(a_move(move),), loads=(a_load("a", int(old)),)))
    assert [instance for _, instance, _ in await history(hosts, "s")] == ["a", "b"]
    assert (await hosts.viewer.migration(move.id)).at.timestamp() == pytest.approx(old)
    assert 'rows_ignored_total{reason="time"} 1.0' in await exposition(hosts)


@pytest.mark.parametrize("wrong_by", [-7200.0, 7200.0, 40 * DAY])
async def test_the_times_of_a_router_whose_clock_is_wrong_are_put_right(hosts: ApiInstance, wrong_by: float) -> None:
    hosts.clock.stop()
    now = hosts.clock().timestamp()
    sample = a_load("a", int(now + wrong_by) - 3, requests=1)
    await hosts.router.post_report(
        a_report("1", at=now + wrong_by, bindings=(a_binding("s", "a", at=now + wrong_by - 5),), loads=(sample,))
    )
    found = (await hosts.viewer.session(CHAT, "s")).history[0]
    assert found.bound_at.timestamp() == pytest.approx(now - 5, abs=1.5)
    assert 'reason="time"' not in await exposition(hosts)


async def test_history_never_runs_backwards_over_routers_whose_clocks_differ(hosts: ApiInstance, database_url: str) -> None:
    now = hosts.clock().timestamp()
    await hosts.router.post_report(a_report("1", bindings=(a_binding("s", "a", at=now),)))
    await hosts.router.post_report(a_report("2", "router-1", bindings=(moving("s", "b", previous="a", based_on=1, at=now - 25),)))
    holders = (await hosts.viewer.session(CHAT, "s")).history
    assert holders[0].bound_at == holders[1].released_at == holders[1].bound_at
    assert contradictions(database_url) == []


def a_rejection(second: int, reason: RejectionReason) -> RejectionRecord:
    return RejectionRecord(
        pool=CHAT, second=second, reason=reason, count=1, status=429, sample_request="r", sample_prompt_tokens=1, retry_after_seconds=1.0
    )


def bad_rows() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield one row for each reason by which rows are counted as not storable."""
    second = 1
    load = msgspec.to_builtins(a_load("a", second))
    binding = msgspec.to_builtins(a_binding("bad", "a"))
    rejection = a_rejection(second, RejectionReason.QUEUE_FULL)
    decision = DecisionRecord(
        id="d",
        pool=CHAT,
        request="r",
        session=None,
        at=0.0,
        policy="p",
        table_version=1,
        chosen="a",
        runner_up=None,
        reason=DecisionReason.BEST_SCORE,
        prompt_tokens=1,
        weighing=Weighing(rule="r", candidates=(), considered=1),
    )
    yield "loads", {**load, "running": 2**63}, "number"
    yield "loads", {**load, "output_tokens": 9_223_372_036_854_775_808}, "number"
    yield "loads", {**load, "waiting": -1}, "number"
    yield "loads", {**load, "kv_usage": 1e300}, "number"
    yield "loads", {**load, "ttft_seconds": [1.0] * 5000}, "number"
    yield "loads", {**load, "running": "many"}, "unreadable"
    yield "bindings", {**binding, "based_on": 2**63 - 1}, "number"
    yield "bindings", {**binding, "based_on": -5}, "number"
    yield "bindings", {**binding, "context_tokens": 2**63}, "number"
    yield "bindings", {**binding, "session": "x" * 5000}, "name"
    yield "bindings", {**binding, "reason": "whim"}, "unreadable"
    yield "rejections", {**msgspec.to_builtins(rejection), "status": 2**40}, "number"
    yield "decisions", {**msgspec.to_builtins(decision), "policy": "p\0"}, "name"
    yield "decisions", {**msgspec.to_builtins(decision), "weighing": {"rule": 1}}, "unreadable"
    yield "migration_outcomes", {"id": "q", "pool": binding["pool"], "actual_ttft_seconds": 1e308, "outcome": "completed"}, "number"
    yield "acknowledged", {"pool": binding["pool"], "version": 2**70}, "number"
    yield "in_flight", {"pool": binding["pool"], "instance": "a", "in_flight": -5, "waiting": 0}, "number"


@pytest.mark.parametrize(("kind", "row", "reason"), list(bad_rows()))
async def test_a_row_that_cannot_be_stored_costs_itself_alone(hosts: ApiInstance, kind: str, row: dict[str, Any], reason: str) -> None:
    now = hosts.clock().timestamp()
    row = {name: now if name == "at" else int(now) if name == "second" else value for name, value in row.items()}
    good = [moving("s", "a"), moving("t", "b")]
    document = msgspec.to_builtins(a_report("1", bindings=tuple(good), loads=(a_load("a", int(now)),)))
    document[kind] = [row, *document[kind], row]
    answer = await post(hosts, msgspec.json.encode(document))
    assert answer.status_code == 200, answer.text
    assert {item.session for item in (await hosts.viewer.sessions({})).items} == {"s", "t"}
    assert f'rows_ignored_total{{reason="{reason}"}} 2.0' in await exposition(hosts)


async def test_a_stored_row_with_a_word_of_a_newer_version_costs_itself_alone(hosts: ApiInstance, database_url: str) -> None:
    now = hosts.clock().timestamp()
    moves = [moving("s", "b", previous="a", based_on=1), moving("t", "b", previous="a", based_on=1)]
    bindings = (a_binding("s", "a"), a_binding("t", "a"), *moves)
    causes = (RejectionReason.QUEUE_FULL, RejectionReason.PREDICTED_TTFT)
    refused = tuple(a_rejection(int(now), cause) for cause in causes)
    await hosts.router.post_report(a_report("1", bindings=bindings, migrations=tuple(map(a_move, moves)), rejections=refused))
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        for table in ("sessions", "bindings", "migrations"):
            column = "trigger" if table == "migrations" else "reason"
            connection.execute(f"UPDATE {table} SET {column} = 'whim' WHERE session = 's'")
        connection.execute("UPDATE rejections SET reason = 'whim' WHERE reason = 'rejected-queue-full'")
    assert [item.session for item in (await hosts.viewer.sessions({})).items] == ["t"]
    assert [item.session for item in (await hosts.viewer.migrations({})).items] == ["t"]
    assert (await hosts.viewer.migration_matrix({})).total == 1
    found = await hosts.viewer.rejections({})
    assert ([group.reason for group in found.groups], found.total) == ([RejectionReason.PREDICTED_TTFT], 1)
    for missing in (hosts.viewer.session(CHAT, "s"), hosts.viewer.migration(moves[0].id)):
        with pytest.raises(ApiProblem, match="Not found"):
            await missing


async def test_refusals_are_told_by_priority_class(hosts: ApiInstance) -> None:
    one = a_rejection(int(hosts.clock().timestamp()), RejectionReason.QUEUE_FULL)
    await hosts.router.post_report(a_report("1", rejections=(one, replace(one, priority_class="batch", count=3))))
    found = await hosts.viewer.rejections({})
    assert [(group.priority_class, group.count) for group in found.groups] == [("batch", 3), ("default", 1)]
    found = await hosts.viewer.rejections({"priority_class": "batch"})
    assert [(group.priority_class, group.count) for group in found.groups] == [("batch", 3)]
    assert found.total == 3


async def test_a_rare_cause_shows_its_newest_requests_among_many_refusals_of_others(hosts: ApiInstance) -> None:
    now = int(hosts.clock().timestamp())
    often = [a_rejection(now - age, RejectionReason.QUEUE_FULL) for age in range(60)]
    rare = [
        replace(a_rejection(now - age, RejectionReason.PREDICTED_TTFT), sample_request=f"rare-{age}") for age in (50, 40, 30, 20, 10, 5, 55)
    ]
    await hosts.router.post_report(a_report("1", rejections=(*often, *rare)))
    found = {group.reason: group for group in (await hosts.viewer.rejections({})).groups}
    assert [one.request for one in found[RejectionReason.PREDICTED_TTFT].samples] == [f"rare-{age}" for age in (5, 10, 20, 30, 40)]
    assert [round(now - one.at.timestamp()) for one in found[RejectionReason.QUEUE_FULL].samples] == [0, 1, 2, 3, 4]
    earlier = await hosts.viewer.rejections({"to": datetime.fromtimestamp(now - 25, UTC).isoformat()})
    shown = next(group for group in earlier.groups if group.reason is RejectionReason.PREDICTED_TTFT)
    assert [one.request for one in shown.samples] == ["rare-30", "rare-40", "rare-50", "rare-55"]


async def test_half_a_surrogate_pair_is_not_json(hosts: ApiInstance) -> None:
    document = msgspec.json.encode(a_report("1", bindings=(moving("s", "a"), moving("BAD", "a"))))
    answer = await post(hosts, document.replace(b"BAD", b"\\ud800"))
    assert (answer.status_code, answer.json()["type"]) == (400, "malformed-json")


async def test_what_only_the_database_refuses_costs_its_row_alone(hosts: ApiInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_api.reports.plausibility.MAX_COUNT", 2**70)
    now = int(hosts.clock().timestamp())
    move = moving("s", "b", previous="a", based_on=1)
    bindings = (a_binding("s", "a"), move, moving("bad", "a", context_tokens=2**63), *(moving(f"t{n}", "a") for n in range(9)))
    loads = tuple(a_load("a", now - n, running=2**63 if n == 3 else 1) for n in range(8))
    await hosts.router.post_report(a_report("1", bindings=bindings, migrations=(a_move(move),), loads=loads))
    assert {item.session for item in (await hosts.viewer.sessions({})).items} == {"s", *(f"t{n}" for n in range(9))}
    assert (await hosts.viewer.migration(move.id)).target == "b"
    assert 'rows_ignored_total{reason="unstorable"} 2.0' in await exposition(hosts)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (b'{"id": "1", "router": "router-0", "sent_at": 1e300}', "sent_at"),
        (b'{"id": "1", "router": "router-0", "sent_at": -1}', "sent_at"),
        (b'{"id": "", "router": "router-0", "sent_at": 1700000000}', "id"),
        (b'{"id": "1", "router": 5, "sent_at": 1700000000}', "router"),
        (b'{"id": "1", "router": "router-0", "sent_at": 1700000000, "loads": 7}', "loads"),
        (b'[{"id": "1", "router": "router-0", "sent_at": 1700000000}, {"id": "2", "router": "router-1", "sent_at": 1700000000}]', "router"),
        (b'[{"id": "1", "router": "router-0", "sent_at": 1700000000}, {"id": "1", "router": "router-0", "sent_at": 1700000000}]', "id"),
        (b"[]", "reports"),
        (b'{"id": "1", "router": "router-0", "sent_at": 1700000000, "loads": ' + b"[" * 5000 + b"]" * 5000 + b"}", "body"),
    ],
)
async def test_a_report_that_cannot_be_taken_is_refused_by_the_field(hosts: ApiInstance, document: bytes, field: str) -> None:
    answer = await post(hosts, document)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


@pytest.mark.parametrize("at", [b"1e300", b"-1e300", b"-1"])
async def test_times_no_clock_can_show_are_refused_by_the_field_in_goodbyes_and_events(hosts: ApiInstance, at: bytes) -> None:
    async with httpx.AsyncClient(transport=StreamingAsgiTransport(hosts.app), base_url="http://api.test") as client:

        async def told(role: str, path: str, content: bytes) -> httpx.Response:
            headers = {"authorization": f"Bearer {SECRETS[role]}", "content-type": "application/json"}
            return await client.post(path, content=content, headers=headers)

        gone = await told("system-router", "/internal/v1/routers/gone", b'{"router": "router-0", "at": ' + at + b"}")
        events = b'{"events": [{"at": ' + at + b', "reason": "r", "message": "m"}]}'
        event = await told("system-operator", "/internal/v1/pools/default/chat/events", events)
    assert (gone.status_code, gone.json()["field"]) == (422, "at")
    assert (event.status_code, event.json()["field"]) == (422, "events[0].at")


async def test_a_session_that_is_busy_while_sessions_are_exported_is_told_once_all_the_same(
    hosts: ApiInstance, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(7)]
    now = hosts.clock().timestamp()
    bound = (a_binding(name, HOSTS[number % 2], at=now - 60 + number) for number, name in enumerate(names))
    await hosts.router.post_report(a_report("1", bindings=tuple(bound)))
    read = PostgresSessions.sessions

    async def read_while_all_are_busy(self: PostgresSessions, wanted: SessionFilter, span: Span) -> Page[SessionSummary]:
        """Return a page; afterwards the session that was idle for longest becomes the newest."""
        found = await read(self, wanted, span)
        with psycopg.connect(plain(database_url), autocommit=True) as connection:
            oldest = "SELECT session FROM sessions ORDER BY last_seen_at LIMIT 1"
            connection.execute(f"UPDATE sessions SET last_seen_at = clock_timestamp() WHERE session = ({oldest})")
        return found

    monkeypatch.setattr(PostgresSessions, "sessions", read_while_all_are_busy)
    monkeypatch.setattr(listing, "EXPORT_PAGE", 2)
    for filters in ({}, {"pool": str(CHAT)}):
        document = b"".join([chunk async for chunk in hosts.viewer.export("/v1/sessions.json", filters)])
        assert [item["session"] for item in msgspec.json.decode(document)["items"]] == names
        table = b"".join([chunk async for chunk in hosts.viewer.export("/v1/sessions.csv", {**filters, "fields": "session"})])
        assert table.decode().split() == ["session", *names]
    held = b"".join([chunk async for chunk in hosts.viewer.export("/v1/sessions.csv", {"instance": "a", "fields": "session"})])
    assert held.decode().split() == ["session", *names[::2]]
