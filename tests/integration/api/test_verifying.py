"""`fairlead verify` finds contradictions in the public record, and none where all rows agree."""

import asyncio
import re
from dataclasses import replace

import psycopg
import pytest

from fairlead.instances import InstanceState
from fairlead.reports.batches import Report
from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MigrationRecord
from fairlead.reports.units import Unit
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_cli.verify import collect
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.verifying import Verifier
from fairlead_testing.builders.routing import request, table
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain
from fairlead_testing.waiting import PATIENCE_SECONDS


async def reported(api: ApiInstance, policy: str) -> None:
    """Report a scheduler's work with a few sessions under this policy, as a router would; the first instance drains
    meanwhile.
    """
    pool = replace(table(4, policy=policy), pool=CHAT)
    await api.pool_operator.put_pool_state(CHAT, a_state(*(an_instance(one.id) for one in pool.instances)))
    scheduler = PoolScheduler(pool, "router-0", 1, sample_rate=1.0)
    now = api.clock().timestamp() - 40
    for turn in range(4):
        if turn == 2:
            draining = replace(pool.instances[0], state=InstanceState.DRAINING, anchors=0)
            scheduler.update_table(replace(pool, version=2, instances=(draining, *pool.instances[1:])), now)
        for session in range(8):
            name = f"{policy}-{turn}-{session}"
            scheduler.submit(request(name, 4000 * (1 + session % 3), blocks=(session, turn), session=f"{policy}-{session}"), now)
            now += 0.5
            if session % 4:  # the others stay, and keep what comes after them waiting
                scheduler.first_token(name, now)
                scheduler.complete(name, now, 10, None)
    for turn in range(4):
        for session in range(8):
            name = f"{policy}-{turn}-{session}"
            now += 0.2
            scheduler.first_token(name, now)
            scheduler.complete(name, now, 10, None)
    records = scheduler.take_records(now + 1, final=True)
    report: Report = a_report(
        f"report-{policy}",
        bindings=records.bindings,
        migrations=records.migrations,
        migration_outcomes=records.migration_outcomes,
        reroutes=records.reroutes,
        reroute_outcomes=records.reroute_outcomes,
        decisions=records.decisions,
    )
    await api.router.post_report(report)


@pytest.mark.parametrize("policy", ["fairlead", "dualmap", "ear", "mooncake", "heimdall"])
async def test_what_a_router_reports_contradicts_itself_nowhere(api: ApiInstance, policy: str) -> None:
    await reported(api, policy)
    verifier = await collect(api.viewer, None, 500, 500, 500)
    assert verifier.found == []
    assert verifier.looked_at["decisions"] > 15
    assert verifier.looked_at["sessions"] == (8 if policy in ("fairlead", "dualmap", "ear") else 0)
    assert verifier.looked_at["audit entries"] > 0
    assert set(verifier.rules) == {policy}
    assert (verifier.looked_at["migrations"] > 0) == (policy in ("fairlead", "dualmap", "ear"))


async def test_a_pool_that_does_not_exist_passes_nothing(api: ApiInstance) -> None:
    with pytest.raises(ApiProblem, match="default/nope"):
        await collect(api.viewer, "default/nope", 500, 500, 500)


async def test_a_choice_that_its_terms_do_not_give_is_found(api: ApiInstance) -> None:
    await reported(api, "heimdall")
    found: list[RoutingDecision] = (await api.viewer.decisions({"limit": 100})).items
    decision = next(one for one in found if len({candidate.total for candidate in one.candidates}) > 1)
    worst = min(decision.candidates, key=lambda one: one.total or 0.0)
    verifier = Verifier()
    await verifier.decision(replace(decision, chosen=worst.instance))
    assert any("is better than" in line for line in verifier.found)
    assert any("the sentence differs from the one" in line for line in verifier.found)


async def test_a_migration_whose_numbers_or_history_do_not_fit_is_found(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    await api.router.post_report(a_report("r1", bindings=(a_binding("s", "a"),)))
    move = a_binding("s", "b", id="m1", previous="a", reason=BindingReason.SLO, based_on=1)
    record = MigrationRecord(
        id="m1",
        pool=CHAT,
        session="s",
        request="q",
        source="a",
        target="b",
        trigger=BindingReason.SLO,
        at=move.at,
        predicted_source_ttft_seconds=4.0,
        predicted_target_ttft_seconds=1.0,
        benefit_seconds=3.0,
        crossed=4.0,
        threshold=3.5,
        crossed_unit=Unit.SECONDS,
        source_hit_tokens=512,
        target_hit_tokens=0,
        least_gain_seconds=0.05,
    )
    await api.router.post_report(a_report("r2", bindings=(move,), migrations=(record,)))
    (stored,) = (await api.viewer.migrations({})).items
    assert (stored.crossed, stored.threshold, stored.crossed_unit, stored.least_gain_seconds) == (4.0, 3.5, Unit.SECONDS, 0.05)
    assert "staying was predicted to miss the TTFT target (4.00 s to the first token; the target is 3.50 s)" in stored.explanation
    for wrong, line in (
        (replace(stored, target="a"), "it has no destination"),
        (replace(stored, benefit_seconds=9.0), "its benefit 9.0 is not 4.0 - 1.0"),
        (replace(stored, paid_off=True), "recorded as faster than staying"),
        (replace(stored, trigger=BindingReason.DRAIN), "its session moved as slo, not as drain"),
        (replace(stored, crossed=4.0, threshold=5.0), "4.0 crossed 5.0"),
        (replace(stored, crossed=6.0, threshold=5.0), "staying was predicted to be in time: 4.0 against 5.0"),
        (replace(stored, crossed=None), "the figure that decided is not recorded"),
        (replace(stored, trigger=BindingReason.PREFIX_EQUAL), "the old instance held 512 tokens of its prompt and the new one 0"),
        (replace(stored, least_gain_seconds=3.5), "predicted to gain 3.0 s, but 3.5 s is the least"),
    ):
        verifier = Verifier()
        await asyncio.wait_for(verifier.migration(wrong, api.viewer), PATIENCE_SECONDS)
        assert any(line in problem for problem in verifier.found), verifier.found
    verifier = Verifier()
    await verifier.migration(replace(stored, id="m2"), api.viewer)
    assert not verifier.found, "retention deleted it after it was listed, and its step goes with it"
    verifier = Verifier()
    await verifier.migration(stored, api.viewer)
    assert verifier.found == []
    await verifier.migration(replace(stored, source=stored.target, source_rank=0, target_rank=1), api.viewer)
    assert not any("no destination" in problem for problem in verifier.found), "a session may move between ranks"


OTHER = "md5(random()::text)"
CAUSE = "CASE {0} WHEN 'cold' THEN 'drain' ELSE 'cold' END"
CHANGES = (
    ("sessions", "instance", OTHER, "true"),
    ("sessions", "version", "version + 1", "true"),
    ("sessions", "reason", CAUSE.format("reason"), "true"),
    ("sessions", "bound_at", "bound_at - interval '1 second'", "true"),
    ("sessions", "migrations", "migrations + 1", "true"),
    ("bindings", "instance", OTHER, "true"),
    ("bindings", "version", "version + 100", "true"),
    ("bindings", "reason", CAUSE.format("reason"), "migration IS NOT NULL OR released_at IS NULL"),
    ("bindings", "bound_at", "bound_at - interval '1 day'", "version > 1 OR released_at IS NULL"),
    ("bindings", "released_at", "now()", "released_at IS NULL"),
    ("bindings", "released_at", "NULL", "released_at IS NOT NULL"),
    ("bindings", "released_at", "released_at + interval '1 day'", "released_at IS NOT NULL"),
    ("bindings", "migration", "'none'", "migration IS NULL"),
    ("bindings", "migration", "NULL", "migration IS NOT NULL"),
    ("bindings", "router", OTHER, "migration IS NOT NULL"),
    ("migrations", "session", OTHER, "true"),
    ("migrations", "source", OTHER, "true"),
    ("migrations", "target", OTHER, "true"),
    ("migrations", "router", OTHER, "true"),
    ("migrations", "trigger", CAUSE.format("trigger"), "true"),
    ("migrations", "target_rank", "coalesce(target_rank, 0) + 1", "true"),
    ("migrations", "benefit_seconds", "coalesce(benefit_seconds, 0) + 1", "true"),
    ("migrations", "predicted_target_ttft_seconds", "coalesce(predicted_target_ttft_seconds, 0) + 1", "benefit_seconds IS NOT NULL"),
)
"""Changes that leave a row readable: table, column, new value, and the rows in which it contradicts something."""


@pytest.mark.parametrize("policy", ["fairlead", "ear"])
async def test_a_row_of_the_record_that_was_changed_is_found(api: ApiInstance, database_url: str, policy: str) -> None:
    await reported(api, policy)
    unseen: list[tuple[str, str, str]] = []
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        for table, name, value, where in CHANGES:
            rows = connection.execute(f"SELECT ctid, {name} FROM {table} WHERE {where} ORDER BY random() LIMIT 3").fetchall()
            assert rows, (table, name, where)
            for place, before in rows:
                changed = connection.execute(f"UPDATE {table} SET {name} = {value} WHERE ctid = %s RETURNING ctid", [place]).fetchone()
                assert changed is not None
                if not (await collect(api.viewer, None, 0, 500, 500)).found:
                    unseen.append((table, name, value))
                connection.execute(f"UPDATE {table} SET {name} = %s WHERE ctid = %s", [before, changed[0]])
        assert unseen == []
        assert (await collect(api.viewer, None, 0, 500, 500)).found == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("DELETE FROM bindings WHERE released_at IS NULL", "and has no holder|its last holder had ended"),
        ("DELETE FROM sessions", "its session cannot be read"),
        ("DELETE FROM migrations", "that brought it to its instance cannot be read"),
        ("DELETE FROM audit_log WHERE id = 1", "was changed, added or removed"),
    ],
)
async def test_rows_that_were_deleted_are_missed(api: ApiInstance, database_url: str, query: str, words: str) -> None:
    await reported(api, "ear")
    with psycopg.connect(plain(database_url)) as connection:
        connection.execute("ALTER TABLE audit_log DISABLE TRIGGER USER")
        connection.execute(query.encode())
    assert any(re.search(words, line) for line in (await collect(api.viewer, None, 0, 500, 500)).found)
