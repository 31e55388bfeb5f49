"""Invariants of the stored record as SQL: each query finds the rows that violate an invariant."""

import psycopg

from fairlead_testing.running.postgres import plain

CONTRADICTIONS = {
    "versions of a session have gaps": (
        "SELECT pool_id, session FROM bindings GROUP BY pool_id, session HAVING count(*) <> max(version) - min(version) + 1"
    ),
    "more than one binding is open": (
        "SELECT pool_id, session FROM bindings WHERE released_at IS NULL GROUP BY pool_id, session HAVING count(*) > 1"
    ),
    "the open binding is not the session's": (
        "SELECT b.session FROM bindings b JOIN sessions s USING (pool_id, session) WHERE b.released_at IS NULL "
        "AND (b.instance, b.version) IS DISTINCT FROM (s.instance, s.version)"
    ),
    "a session is held without an open binding": (
        "SELECT s.session FROM sessions s WHERE s.instance IS NOT NULL AND NOT EXISTS (SELECT 1 FROM bindings b "
        "WHERE b.pool_id = s.pool_id AND b.session = s.session AND b.version = s.version AND b.released_at IS NULL)"
    ),
    "a move without a migration": (
        "SELECT b.session, b.version FROM bindings b JOIN bindings p ON p.pool_id = b.pool_id AND p.session = b.session "
        "AND p.version = b.version - 1 AND p.instance <> b.instance AND p.released_at = b.bound_at "
        "LEFT JOIN migrations m ON m.id = b.migration AND m.pool_id = b.pool_id AND m.session = b.session WHERE m.id IS NULL"
    ),
    "a migration without its binding": (
        "SELECT m.id FROM migrations m LEFT JOIN bindings b ON b.pool_id = m.pool_id AND b.session = m.session AND b.migration = m.id "
        "AND b.instance = m.target WHERE b.migration IS NULL"
    ),
    "a migration from where the session was not": (
        "SELECT m.id FROM migrations m JOIN bindings b ON b.migration = m.id AND b.pool_id = m.pool_id AND b.session = m.session "
        "JOIN bindings p ON p.pool_id = b.pool_id AND p.session = b.session AND p.version = b.version - 1 AND p.released_at = b.bound_at "
        "WHERE p.instance <> m.source"
    ),
    "a session's count of migrations is another": (
        "SELECT s.session FROM sessions s WHERE s.migrations <> (SELECT count(*) FROM bindings b WHERE b.pool_id = s.pool_id "
        "AND b.session = s.session AND b.migration IS NOT NULL)"
    ),
    "history runs backwards": (
        "SELECT b.session FROM bindings b LEFT JOIN bindings p ON p.pool_id = b.pool_id AND p.session = b.session "
        "AND p.version = b.version - 1 WHERE b.released_at < b.bound_at OR p.released_at > b.bound_at OR p.bound_at > b.bound_at"
    ),
}


def contradictions(database_url: str) -> list[str]:
    """Return the violated invariants, each with up to three rows that violate it; empty when the record is
    consistent.
    """
    with psycopg.connect(plain(database_url)) as connection:
        found = {name: connection.execute(query).fetchmany(3) for name, query in CONTRADICTIONS.items()}
    return [f"{name}: {rows}" for name, rows in found.items() if rows]
