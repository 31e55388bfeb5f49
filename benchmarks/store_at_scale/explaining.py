"""Explains every statement that the API sends for the questions. Names the statements that read the whole of a large
table.
"""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
from benchmarks.store_at_scale.questions import Question, bounded_reads
from sqlalchemy import event
from sqlalchemy.engine import Engine

from fairlead_testing.running.api import SECRETS, running_api
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

LARGE_ROWS = 10_000
"""The number of rows above which a table or a partition counts as large."""

WHOLE_BY_DESIGN = ("count(*) AS bound FROM sessions",)
"""Parts of statements that must read every row of a pool; see the test of bounded reads."""


async def sequential_scans(url: str, asked: list[Question]) -> tuple[int, list[str]]:
    """Return the number of different statements, and the statements that scan a large table sequentially. Each is given
    with a question that sends it.
    """
    reads = bounded_reads()
    statements = reads.Statements()
    event.listen(Engine, "before_cursor_execute", statements)
    seen: set[str] = set()
    found: list[str] = []
    try:
        with psycopg.connect(plain(url), autocommit=True, options="-c fairlead.router_live_seconds=10") as connection:
            rows = connection.execute(
                "SELECT relname, reltuples FROM pg_class WHERE relkind = 'r' AND reltuples > %s", (LARGE_ROWS,)
            ).fetchall()
            large: dict[str, float] = dict(rows)
            async with running_api(url) as api:
                headers = {"authorization": f"Bearer {SECRETS['admin']}"}
                transport = StreamingAsgiTransport(api.app)
                async with httpx.AsyncClient(base_url="http://api.test", transport=transport, headers=headers, timeout=120) as http:
                    for question in asked:
                        statements.seen.clear()
                        await http.get(question.path)
                        for statement, parameters in list(statements.seen):
                            if statement in seen or not statement.lstrip().upper().startswith(("SELECT", "WITH")):
                                continue
                            seen.add(statement)
                            if not any(part in statement for part in WHOLE_BY_DESIGN):
                                found += [
                                    f"{one} · {question.path}" for one in _scans(connection, statement, parameters, large, reads.nodes)
                                ]
    finally:
        event.remove(Engine, "before_cursor_execute", statements)
    return len(seen), found


def _scans(connection: psycopg.Connection[Any], statement: str, parameters: Any, large: dict[str, float], nodes: Any) -> list[str]:
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode(), parameters).fetchone()
    plan = row[0][0]["Plan"] if row is not None else {}
    return [
        f"Seq Scan of {node['Relation Name']} ({large[node['Relation Name']]:,.0f} rows): {' '.join(statement.split())[:160]}"
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in large
    ]
