"""Records cut into batches, and what is recalled of them after a restart."""

from dataclasses import replace
from pathlib import Path

import msgspec

from fairlead_router.reporting.batches import BATCH_RECORDS, Record, encode_batches, spooled_changes
from fairlead_router.reporting.spool import Cargo, Spool
from fairlead_testing.builders.reports import a_change, a_migration, a_rejection, batch_ids


def test_records_are_cut_into_batches_with_history_apart_from_samples() -> None:
    changes: list[Record] = [a_change(f"s{number}") for number in range(BATCH_RECORDS + 3)]
    batches = list(encode_batches("router-0", {"bindings": changes, "rejections": [a_rejection(1)], "loads": []}, batch_ids()))
    assert [(batch.cargo, batch.records) for batch in batches] == [(Cargo.HISTORY, BATCH_RECORDS), (Cargo.HISTORY, 4)]
    sessions = [change["session"] for batch in batches for change in msgspec.json.decode(batch.content).get("bindings", [])]
    assert sessions == [f"s{number}" for number in range(BATCH_RECORDS + 3)]


def test_a_migration_never_parts_from_its_binding() -> None:
    changes: list[Record] = [replace(a_change(f"s{number}"), id=f"m{number}") for number in range(BATCH_RECORDS)]
    moves: list[Record] = [a_migration(f"m{number}") for number in range(0, BATCH_RECORDS, 2)]
    batches = [
        msgspec.json.decode(batch.content) for batch in encode_batches("router-0", {"bindings": changes, "migrations": moves}, batch_ids())
    ]
    assert len(batches) == 2
    assert sum(len(batch["migrations"]) for batch in batches) == len(moves)
    for batch in batches:
        assert {move["id"] for move in batch["migrations"]} <= {change["id"] for change in batch["bindings"]}


def test_changes_not_delivered_are_recalled_in_their_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000_000)
    spool.open()
    rounds: list[list[Record]] = [[a_change("a"), a_change("b", "i1")], [a_change("a", "i2", based_on=1)]]
    for changes in rounds:
        (batch,) = encode_batches("router-0", {"bindings": changes}, batch_ids())
        spool.append(batch.cargo, batch.records, batch.content)
    spool.append(Cargo.HISTORY, 1, b"not json")
    assert list(spooled_changes(spool)) == [*rounds[0], *rounds[1]]
