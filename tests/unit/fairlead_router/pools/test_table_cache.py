"""The disk cache of tables and bindings."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.capabilities import EngineCapability, Figure, Source
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.engines import EngineMemory
from fairlead.routing.contracts.schedulers import PrefixMemory
from fairlead_router.pools.table_cache import KeptLife, KeptRouters, TableCache
from fairlead_testing.builders.routing_tables import CHAT, routing_table


def _binding(session: str, instance: str | None, version: int) -> Binding:
    return Binding(
        pool=CHAT, session=session, instance=instance, version=version, reason=BindingReason.COLD, bound_at=1.0, migrated_at=None
    )


def test_an_empty_directory_holds_nothing(tmp_path: Path) -> None:
    assert TableCache(tmp_path, time.time).load() == ((), ())


def test_tables_and_the_last_binding_of_each_session_come_back(tmp_path: Path) -> None:
    cache = TableCache(tmp_path, time.time)
    table = routing_table(["127.0.0.1:1"])
    cache.keep_tables([table])
    cache.keep_bindings([_binding("a", "i0", 1), _binding("b", "i0", 1)])
    cache.keep_bindings([_binding("a", "i1", 2), _binding("b", None, 2)])
    tables, bindings = TableCache(tmp_path, time.time).load()
    assert tables == (table,)
    assert bindings == (_binding("a", "i1", 2),)


def test_a_table_kept_by_an_older_router_serves_and_passes_no_credentials_on(tmp_path: Path) -> None:
    table = routing_table(["127.0.0.1:1"], pass_client_credentials=True)
    TableCache(tmp_path, time.time).keep_tables([table])
    path = tmp_path / "tables.json"
    path.write_text(path.read_text().replace(',"pass_client_credentials":true', ""))
    (recalled,), _ = TableCache(tmp_path, time.time).load()
    assert recalled.instances == table.instances
    assert recalled.engine.pass_client_credentials is False


def test_a_snapshot_replaces_what_was_kept_and_a_deleted_pool_is_forgotten(tmp_path: Path) -> None:
    cache = TableCache(tmp_path, time.time)
    cache.keep_bindings([_binding("a", "i0", 1)])
    cache.replace_bindings([_binding("b", "i0", 1)])
    assert TableCache(tmp_path, time.time).load()[1] == (_binding("b", "i0", 1),)
    cache.drop_pool(CHAT)
    assert TableCache(tmp_path, time.time).load()[1] == ()


def test_a_torn_last_line_costs_only_that_line(tmp_path: Path) -> None:
    cache = TableCache(tmp_path, time.time)
    cache.keep_bindings([_binding("a", "i0", 1)])
    cache.keep_bindings([_binding("b", "i0", 1)])
    log = tmp_path / "bindings.ndjson"
    log.write_bytes(log.read_bytes()[:-20])
    again = TableCache(tmp_path, time.time)
    assert again.load()[1] == (_binding("a", "i0", 1),)
    again.keep_bindings([_binding("c", "i0", 1)])
    assert {binding.session for binding in TableCache(tmp_path, time.time).load()[1]} == {"a", "c"}


def test_a_damaged_table_file_counts_as_absent_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tables.json").write_bytes(b"{not json")
    assert TableCache(tmp_path, time.time).load()[0] == ()
    assert "unusable" in caplog.text


def test_the_log_is_compacted_when_it_outgrows_what_is_alive(tmp_path: Path) -> None:
    cache = TableCache(tmp_path, time.time)
    for version in range(1, 60):
        cache.keep_bindings([_binding("a", "i0", version)] * 250)
    assert len((tmp_path / "bindings.ndjson").read_bytes().splitlines()) < 2 * 10_000
    assert TableCache(tmp_path, time.time).load()[1] == (_binding("a", "i0", 59),)


def test_bindings_to_instances_that_left_long_ago_are_forgotten_as_the_log_grows(tmp_path: Path) -> None:
    table = routing_table(["127.0.0.1:1"])
    now = [2.0]
    cache = TableCache(tmp_path, lambda: now[0])
    cache.keep_tables([table])
    cache.keep_bindings([_binding("old", "left", 1), _binding("stays", "i0", 1)])
    now[0] = 2.0 + table.session.ttl_seconds
    young = [replace(_binding(f"s{number}", "left", 1), bound_at=now[0]) for number in range(10_000)]
    cache.keep_bindings(young)
    assert {binding.session for binding in TableCache(tmp_path, time.time).load()[1]} == {"stays", *(binding.session for binding in young)}
    again = TableCache(tmp_path, lambda: now[0] + table.session.ttl_seconds + 1.0)
    again.load()
    again.keep_bindings([_binding("last", "i0", 1)])
    assert {binding.session for binding in TableCache(tmp_path, time.time).load()[1]} == {"stays", "last"}


def test_an_unwritable_directory_is_counted_and_serving_goes_on(tmp_path: Path) -> None:
    cache = TableCache(tmp_path / "gone", time.time)
    cache.keep_tables([])
    cache.keep_bindings([_binding("a", "i0", 1)])
    assert cache.failures == 2


def test_what_instances_hold_comes_back_and_a_damaged_file_counts_as_absent(tmp_path: Path) -> None:
    memory = PrefixMemory(pool=CHAT, uid="u", instance="i0", address="10.0.0.1:8000", block_bytes=2048, kept_at=5.0, blocks=bytes(16))
    cache = TableCache(tmp_path, time.time)
    assert cache.load_prefixes() == ()
    cache.keep_prefixes([memory])
    assert TableCache(tmp_path, time.time).load_prefixes() == (memory,)
    path = tmp_path / "prefixes.msgpack"
    path.write_bytes(path.read_bytes()[:-3])
    assert TableCache(tmp_path, time.time).load_prefixes() == ()


def test_how_many_routers_there_were_comes_back_and_a_damaged_file_counts_as_absent(tmp_path: Path) -> None:
    kept = KeptRouters(live=4, told_at=5.0)
    cache = TableCache(tmp_path, time.time)
    assert cache.load_routers() is None
    cache.keep_routers(kept)
    assert TableCache(tmp_path, time.time).load_routers() == kept
    (tmp_path / "routers.json").write_bytes(b"{")
    assert TableCache(tmp_path, time.time).load_routers() is None


def test_what_was_observed_of_engines_comes_back_and_a_damaged_file_counts_as_absent(tmp_path: Path) -> None:
    speed = Figure(value=9_000.0, source=Source.MEASURED, samples=5, age_seconds=2.0)
    known = EngineCapability(prefill_tokens_per_second=speed)
    memory = EngineMemory(
        pool=CHAT, uid="u", model="m", at=5.0, counted_by=3.5, known=known, decode_fit=(0.01, 0.1, 0.0), revisions=("r1",)
    )
    cache = TableCache(tmp_path, time.time)
    assert cache.load_engines() == ()
    cache.keep_engines([memory])
    assert TableCache(tmp_path, time.time).load_engines() == (memory,)
    (tmp_path / "engines.json").write_bytes(b'[{"known": {"prefill_tokens_per_second": {"value": 1}}}]')
    assert TableCache(tmp_path, time.time).load_engines() == ()


def test_a_process_that_did_not_end_by_itself_is_known_to_the_next(tmp_path: Path) -> None:
    cache, life = TableCache(tmp_path, time.time), KeptLife(memory=7, available=9, at=5.0)
    assert cache.load_life() is None
    cache.keep_life(life)
    assert TableCache(tmp_path, time.time).load_life() == life
    (tmp_path / "running.json").write_text("{")
    assert cache.load_life() == KeptLife(memory=0, available=0, at=0.0), "it was there, and no more is known"
    cache.end_life()
    assert cache.load_life() is None
