"""Lists and details with tens of thousands of rows: no statement reads more rows than one page may.

Every filter and every pair of filters is tried. Filters are found in the API's own document; one without values here
fails.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest
from benchmarks.history_rows import SMALL, fill
from sqlalchemy import event
from sqlalchemy.engine import Engine

from fairlead.tables import PoolKey
from fairlead_api.infra import paging
from fairlead_api.infra.partitions import partition_day
from fairlead_api.loads.store import windows as load_windows
from fairlead_api.moves import store as moves
from fairlead_api.sessions.store import lists as sessions
from fairlead_testing.running.api import SECRETS, running_api
from fairlead_testing.running.postgres import fresh_database, plain
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.turns import counted_turns

pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).resolve().parents[3]
BOUND = 500
"""Rows that one page, one matrix and so on may read: a fiftieth of the rows here, as 5,000 are of a quarter of a
million.
"""

MOST_ROWS = 10 * BOUND
"""The most rows of any table that a statement may read.

Where a filter matches every third row, Postgres rightly reads three for each row that it returns.
"""

MOST_CALLS = 25_000
"""The most function calls of one step of the event loop; a page of a hundred rows takes 15,000."""

VALUES: dict[str, tuple[str, ...]] = {
    "pool": ("big/p1", "big/none"),
    "instance": ("i7", "nope"),
    "priority_class": ("default", "nope"),
    "source": ("i7", "nope"),
    "target": ("i9", "nope"),
    "trigger": ("drain", "operator"),
    "outcome": ("failed", "refused"),
    "session": ("sess-a87ff679a2f3e71d9181a67b7542122c", "nope"),
    "paid_off": ("false",),
    "instances": ("false",),
    "trace": ("6512bd43d9caa6e02c990b0a82652dca", "nope"),
    "request": ("r11", "nope"),
    "q": ("sess-", "f", "zz", "a87ff679", "no-such-part"),
    "reason": ("slo-overloaded", "random"),
    "kept": ("late", "sample"),
    "actor": ("person-7", "nope", "pers*", "nope*"),
    "action": ("login", "nope", "log*"),
    "object": ("big/p1", "nope", "big*"),
    "from": ((datetime.now(UTC) - timedelta(days=5)).isoformat(),),
    "to": ((datetime.now(UTC) - timedelta(days=1)).isoformat(),),
    "at": ("now",),
    "by": ("key", "session"),
    "schedule": ("p1", "nope"),
    "role": ("prefill", "both"),
    "controller": ("Scaling", "Ratio"),
    "verdict": ("Held", "Advised"),
    "add": ("1",),
    "remove": ("i7",),
    "anchors": ("200",),
    "version": ("2", "77"),
    "ttft": ("2s",),
    "tpot": ("80ms",),
    "percentile": ("95",),
    "kind": ("scale", "slo"),
    "created_by": ("person-7", "nope"),
    "buckets": ("120",),
    "newest": ("7",),
    "webhook": ("nope",),
    "rest_from": ("now-22h",),
    "rest_to": ("now-30m",),
    "lines": ("50",),
    "plan": ("nope",),
    "search": ("error",),
    "container": ("engine",),
    "previous": ("true",),
}
_POOL = "/pools/{namespace}/{name}"
_OF_ALL_POOLS = "requests,attainment,refused,refused_by_cause,ttft_p95,migrations"
VALUES_OF: dict[str, dict[str, tuple[str, ...]]] = {
    "/v1/schedule-runs": {"outcome": ("closed", "open")},
    "/v1/decisions": {"outcome": ("served", "refused")},
    "/v1/audit": {"kind": ("human", "system")},
    "/v1/series": {"metrics": (_OF_ALL_POOLS,)},
    f"/v1{_POOL}/series": {"metrics": (f"{_OF_ALL_POOLS},burn,instances_serving,instances_wanted,instances_recommended,predictor_error",)},
    f"/v1{_POOL}/instances/{{instance}}/series": {"metrics": ("requests,running,ttft_p95",)},
    f"/v1{_POOL}/instances/{{instance}}/explanation": {
        "metric": ("ttft_p95",),
        "from": ((datetime.now(UTC) - timedelta(hours=23)).isoformat(),),
        "to": ((datetime.now(UTC) - timedelta(hours=1)).isoformat(),),
    },
    f"/v1{_POOL}/differences": {"instances": ("i7,i9", "nope"), "from": ("now-23h",), "to": ("now-1m",)},
}
"""Values of filters that have another meaning for one path."""

PLACES = {
    "namespace": "big",
    "pool": "p1",
    "name": "p1",
    "instance": "i7",
    "session": "sess-a87ff679a2f3e71d9181a67b7542122c",
    "entry_id": "77",
    "notice_id": "nope",
}
LEFT_OUT = {
    "/v1/audit/export": "streams its whole range, by chunks, because that is what it is for",
    "/v1/live": "a stream of what the others read",
    "/v1/audit/verification": "walks the whole log, by chunks, because that is what it is for",
    "/v1/pools/{namespace}/{name}/heatmap": "bounded by its grid of columns and instances",
    "/v1/pools/{namespace}/{name}/forecast": "nine weeks of one pool's minutes by the primary key, summed in Postgres",
    "/v1/gateway-keys/{key_id}/usage": "bounded by the minutes of one key in the range, by the primary key",
    "/v1/pools/{namespace}/{name}/simulations/{simulation_id}": "one row, by its primary key",
}

OF_LATELY = (
    "/v1/rejections",
    "/v1/cost",
    "/v1/audit/facets",
    "/v1/trends",
    "/v1/pools/{namespace}/{name}/slo/attainment",
    "/v1/pools/{namespace}/{name}/slo/what-if",
    "/v1/pools/{namespace}/{name}/slo/tasks",
    *(f"/v1{of}/figures" for of in ("", _POOL, f"{_POOL}/instances/{{instance}}")),
    f"/v1{_POOL}/instance-figures",
    *(f"/v1{of}/{what}" for of in ("", _POOL, f"{_POOL}/instances/{{instance}}") for what in ("series", "annotations")),
    f"/v1{_POOL}/instances/{{instance}}/explanation",
    f"/v1{_POOL}/differences",
    f"/v1{_POOL}/shadows",
)
"""Paths whose range begins recently by default, so that a `to` of yesterday lies before it."""

COUNTED_WHOLE = ("count(*) AS bound FROM sessions",)
"""Statements that must read every row of a pool.

They count the sessions of each of its instances, with the index of sessions by instance.
"""

RECENT = ("load_samples", "load_rollups", "rejections")
"""Tables read only for a time range, by default the last minutes; the rows read depend on the range, not on all rows.
"""

SUMMED = {path: ("instance_transitions",) for path in OF_LATELY if path.endswith("/series")} | {
    "/v1/audit/facets": ("audit_log",),
    "/v1/cost": ("schedule_runs",),
}
"""Tables that one path sums over its range, by default the last hour."""


@pytest.fixture(scope="module")
def filled(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        fill(plain(url), SMALL)
        with psycopg.connect(plain(url), autocommit=True) as connection:  # newer than the migration that is filled elsewhere
            connection.execute("UPDATE decisions SET trace = md5(substr(request, 2)::int % 5000 || '') WHERE request LIKE 'r%1'")
            connection.execute("VACUUM ANALYZE decisions")
        yield url


def documented() -> dict[str, list[str]]:
    """Return the filters of every path that reads."""
    paths: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    found: dict[str, list[str]] = {}
    for path, methods in paths.items():
        if "get" in methods and path.startswith("/v1/") and path not in LEFT_OUT and not path.endswith((".csv", ".json")):
            names = [one["name"] for one in methods["get"].get("parameters", []) if one["in"] == "query"]
            found[path] = [name for name in names if name not in {"cursor", "limit", "fields", "sort", "last-event-id"}]
    return found


def questions(path: str, filters: list[str], url: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the path with only its required filters, with each filter, and with each two."""
    values = VALUES | VALUES_OF.get(path, {})
    required = {name: values[name][0] for name in required_by(path)}
    return ((named, required | query) for named, query in filtered(path, filters, values, url))


def filtered(path: str, filters: list[str], values: dict[str, tuple[str, ...]], url: str) -> Iterator[tuple[str, dict[str, str]]]:
    places = dict(PLACES)
    with psycopg.connect(plain(url)) as connection:
        decided = "scaling_decisions" if "scaling" in path else "decisions"
        for place, table in {"migration_id": "migrations", "reroute_id": "reroutes", "decision_id": decided}.items():
            row = connection.execute(f"SELECT id FROM {table} ORDER BY at LIMIT 1".encode()).fetchone()
            places[place] = row[0] if row else "nope"
    named = path.format_map({name: quote(value, safe="") for name, value in {**places, "plan_id": "nope"}.items()})
    yield named, {}
    yield from ((named, {name: value}) for name in filters for value in values[name])
    for turned in turned_around(path):
        yield named, {"sort": turned}
        yield from ((named, {"sort": turned, name: values[name][0]}) for name in filters)
    for first, second in itertools.combinations(filters, 2):  # of values that occur, and of one that does not among many that do
        yield named, {first: values[first][0], second: values[second][0]}
        yield named, {first: values[first][-1], second: values[second][0]}


def turned_around(path: str) -> list[str]:
    """Return values of `sort` that reverse the list."""
    schemas = [one["schema"] for one in parameters_of(path) if one["name"] == "sort"]
    return [value for schema in schemas for value in schema["enum"] if value != schema["default"]]


def required_by(path: str) -> list[str]:
    """Return query parameters that the path requires."""
    return [one["name"] for one in parameters_of(path) if one["in"] == "query" and one.get("required")]


def parameters_of(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"][path]["get"].get("parameters", [])
    return found


class Statements:
    """Records the statements sent to Postgres."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def __call__(self, _connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        self.seen.append((statement, parameters))


@pytest.fixture
def statements() -> Iterator[Statements]:
    found = Statements()
    event.listen(Engine, "before_cursor_execute", found)
    yield found
    event.remove(Engine, "before_cursor_execute", found)


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from nodes(inner)


def faults(connection: "psycopg.Connection[Any]", path: str, statement: str, parameters: Any) -> Iterator[str]:
    if not statement.lstrip().upper().startswith(("SELECT", "WITH")) or any(part in statement for part in COUNTED_WHOLE):
        return
    row = connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}".encode(), parameters).fetchone()
    assert row is not None
    read: Counter[str] = Counter()  # a partitioned table's rows are those of all its partitions
    for node in nodes(row[0][0]["Plan"]):
        relation = node.get("Relation Name", "")
        if relation and not relation.startswith((*RECENT, *SUMMED.get(path, ()))):
            rows = sum(node.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck"))
            read[(partition_day(relation) or (relation,))[0]] += round(rows * node["Actual Loops"])
    for relation, rows in read.items():
        if rows > MOST_ROWS:
            yield f"{rows} rows of {relation}: {' '.join(statement.split())[:300]}"


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "SEARCHED", BOUND)
    monkeypatch.setattr(paging, "COUNTED", BOUND)
    monkeypatch.setattr(sessions, "NAMED", BOUND)
    monkeypatch.setattr(moves, "MATRIX_ROWS", 2 * BOUND)
    monkeypatch.setattr(load_windows, "READ", BOUND)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize(("path", "filters"), documented().items(), ids=lambda given: given if isinstance(given, str) else "")
async def test_no_question_looks_at_more_rows_than_a_page_may(filled: str, statements: Statements, path: str, filters: list[str]) -> None:
    asked = list(questions(path, filters, filled))
    found: dict[str, str] = {}
    with psycopg.connect(plain(filled), autocommit=True, options="-c fairlead.router_live_seconds=10") as connection:
        async with running_api(filled) as api:
            headers = {"authorization": f"Bearer {SECRETS['admin']}"}
            async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app), headers=headers) as http:
                for named, query in asked:
                    statements.seen.clear()
                    answer = await http.get(named, params=query)
                    ends_before_it_begins = path in OF_LATELY and "to" in query and "from" not in query
                    lacks_kubernetes = answer.status_code == 503 and path.endswith(
                        ("/rollout", "/log", "/pod-events", "/metrics")
                    )  # after it has read from Postgres
                    good = answer.status_code in {200, 404} or ends_before_it_begins or lacks_kubernetes
                    assert good, f"{named} {query}: {answer.text}"
                    cursor = answer.json().get("next_cursor") if answer.status_code == 200 else None
                    if cursor:
                        assert (await http.get(named, params={**query, "cursor": cursor})).status_code == 200
                    for fault in itertools.chain.from_iterable(faults(connection, path, *one) for one in list(statements.seen)):
                        found.setdefault(fault, f"{named} {query}")
    assert not found, "\n".join(f"{where}: {fault}" for fault, where in found.items())


async def test_no_read_holds_the_event_loop_however_much_is_stored(filled: str) -> None:
    """Function calls in one step of the loop are counted, for each path after a first request."""
    longest: dict[str, tuple[int, object]] = {}
    async with running_api(filled) as api:
        headers = {"authorization": f"Bearer {SECRETS['admin']}"}
        async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(api.app), headers=headers) as http:
            for path, filters in documented().items():
                named, query = next(questions(path, filters, filled))
                await http.get(named, params=query)
                with counted_turns() as turns:
                    await http.get(named, params=query)
                if turns.longest > MOST_CALLS:
                    longest[path] = (turns.longest, turns.where)
    assert not longest


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize(
    "query", [{"trigger": "drain", "outcome": "failed"}, {"source": "i7", "paid_off": "false"}, {"pool": "big/p2", "trigger": "slo"}]
)
async def test_following_the_cursor_finds_every_row_of_filters_that_have_to_be_looked_for(filled: str, query: dict[str, str]) -> None:
    async with running_api(filled) as api:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await api.viewer.migrations({**query, "limit": 100, "cursor": cursor})
            found += [item.id for item in page.items]
            assert page.total is not None or page.total_at_least is not None
            cursor = page.next_cursor
            if cursor is None:
                break
    conditions = {
        "pool": "pool_id = (SELECT id FROM pools WHERE namespace || '/' || name = %(pool)s)",
        "paid_off": "paid_off = %(paid_off)s::bool",
    }
    where = " AND ".join(conditions.get(name, f"{name} = %({name})s") for name in query)
    with psycopg.connect(plain(filled)) as connection:
        rows = connection.execute(f"SELECT id FROM migrations WHERE {where} ORDER BY at DESC, id DESC".encode(), query).fetchall()
    assert found == [row[0] for row in rows]


async def test_sessions_are_found_by_any_part_of_their_name(filled: str) -> None:
    async with running_api(filled) as api:
        found = await api.viewer.sessions({"q": "f679a2f3e71d"})
        assert [item.session for item in found.items] == ["sess-a87ff679a2f3e71d9181a67b7542122c"]
        assert (found.total, found.next_cursor) == (1, None)
        everybody = await api.viewer.sessions({"q": "sess-", "limit": 10})
        assert (len(everybody.items), everybody.total, everybody.total_at_least) == (10, None, 1000)
        assert (await api.viewer.sessions({"q": "%"})).items == []


@pytest.mark.usefixtures("small_bounds")
async def test_a_matrix_of_more_than_it_counts_says_from_when_on_it_is_whole(filled: str) -> None:
    with psycopg.connect(plain(filled)) as connection:
        row = connection.execute("SELECT at FROM migrations ORDER BY at DESC OFFSET 699 LIMIT 1").fetchone()
    assert row is not None
    async with running_api(filled) as api:
        whole = await api.viewer.migration_matrix({"from": row[0].isoformat()})
        assert (whole.complete, whole.total, whole.counted_from) == (True, 700, row[0])
        cut = await api.viewer.migration_matrix({})
        assert (cut.complete, cut.total, sum(cut.by_trigger.values())) == (False, 2 * BOUND, 2 * BOUND)
        assert cut.counted_from is not None
        assert cut.counted_from < row[0]
        assert sum(sum(bucket.counts.values()) for bucket in cut.timeline) == 2 * BOUND
        assert cut.timeline[0].at == cut.counted_from
        assert sum(flow.count for flow in cut.flows) == 2 * BOUND


@pytest.mark.parametrize("kind", ["migrations", "reroutes"])
async def test_a_matrix_of_a_rare_outcome_is_counted_out_of_a_small_index(filled: str, statements: Statements, kind: str) -> None:
    async with running_api(filled) as api:
        asked = api.viewer.migration_matrix if kind == "migrations" else api.viewer.reroute_matrix
        found = await asked({"pool": "big/p1", "outcome": "failed"})
    scans: list[dict[str, Any]] = []
    with psycopg.connect(plain(filled), autocommit=True) as connection:
        connection.execute(f"VACUUM {kind}".encode())
        connection.execute("SET seq_page_cost = 100; SET random_page_cost = 400")  # as a cold disk has it
        for statement, parameters in statements.seen:
            if kind in statement:
                row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode(), parameters).fetchone()
                assert row is not None
                scans += [node for node in nodes(row[0][0]["Plan"]) if node.get("Relation Name") == kind]
        sure = connection.execute(
            f"SELECT count(*) FROM {kind} m JOIN pools p ON p.id = m.pool_id WHERE p.name = 'p1' AND outcome = 'failed'".encode()
        ).fetchone()
    assert sure == (found.total,) and found.total > 0
    assert ("Index Only Scan", f"ix_{kind}_rare_outcomes") in {(scan["Node Type"], scan.get("Index Name")) for scan in scans}


async def test_what_moves_came_to_is_the_plain_sum_of_them(filled: str) -> None:
    net = "predicted_source_ttft_seconds - actual_ttft_seconds"
    columns = (
        "count(*) FILTER (WHERE paid_off), count(*) FILTER (WHERE NOT paid_off), count(*) FILTER (WHERE paid_off IS NULL), "
        f"count({net}), coalesce(sum({net}), 0), sum(tokens_moved), sum(tokens_recomputed)"
    )
    with psycopg.connect(plain(filled)) as connection:
        row = connection.execute(f"SELECT {columns} FROM migrations WHERE source = 'i7'".encode()).fetchone()
    assert row is not None
    assert 0 < row[3] <= moves.MATRIX_ROWS
    async with running_api(filled) as api:
        found = (await api.viewer.migration_matrix({"source": "i7"})).effect
        assert (await api.viewer.migration_matrix({"source": "nope"})).effect.seconds_won == 0.0
    assert (found.paid_off, found.not_paid_off, found.unknown, found.compared) == row[:4]
    assert found.seconds_won == pytest.approx(row[4])
    assert (found.tokens_moved, found.tokens_recomputed) == row[5:]


async def test_the_sessions_of_an_instance_are_ranked_by_their_context(filled: str) -> None:
    mine = "instance = 'i7' AND pool_id = (SELECT id FROM pools WHERE namespace = 'big' AND name = 'p1')"
    with psycopg.connect(plain(filled)) as connection:
        query = f"SELECT session, context_tokens FROM sessions WHERE {mine} ORDER BY context_tokens DESC, session"
        rows = connection.execute(query.encode()).fetchall()
    async with running_api(filled) as api:
        held = (await api.viewer.instance(PoolKey(namespace="big", name="p1"), "i7")).held
    assert [(one.session, one.context_tokens) for one in held.top] == rows[:10]
    assert (held.counted, held.complete, held.context_tokens) == (len(rows), True, sum(tokens for _, tokens in rows))
    assert rows
