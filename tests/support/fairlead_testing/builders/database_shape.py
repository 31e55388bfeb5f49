"""The database's shape as data, to compare two releases.

`python -m fairlead_testing.builders.database_shape` records the shape of this release. During a rolling upgrade,
processes of the last release work on the newer shape. Their statements name every column that they know. So they go on
working only if every such column still exists, and if the newer shape requires no value that they do not know.
"""

from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Column, ForeignKeyConstraint, MetaData, PrimaryKeyConstraint, Table, UniqueConstraint
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CheckConstraint

from fairlead_api.infra.upgrading import heads
from fairlead_api.tables import metadata

RECORD = Path(__file__).parents[3] / "contract/skew/last_release_database.json"

Shape = dict[str, dict[str, Any]]


def shape(of: MetaData) -> Shape:
    """Return columns, constraints and partition key of each table, by the table's name."""
    return {table.name: _table(table) for table in of.sorted_tables}


def _table(table: Table) -> dict[str, Any]:
    unique = {_names(one.columns) for one in table.constraints if isinstance(one, PrimaryKeyConstraint | UniqueConstraint)}
    for index in table.indexes:
        where = index.dialect_options["postgresql"].get("where")
        if index.unique:
            unique.add(_names(index.columns) + ("" if where is None else f" WHERE {where}"))
    foreign = {
        f"{_names(one.columns)} -> {one.elements[0].target_fullname}" for one in table.constraints if isinstance(one, ForeignKeyConstraint)
    }
    return {
        "columns": {column.name: _column(column) for column in table.columns},
        "unique": sorted(name for name in unique if name),
        "checks": sorted(str(one.sqltext) for one in table.constraints if isinstance(one, CheckConstraint)),
        "foreign_keys": sorted(foreign),
        "partition_by": table.dialect_options["postgresql"].get("partition_by"),
    }


def _column(column: "Column[Any]") -> dict[str, Any]:
    return {
        "type": str(column.type.compile(dialect=postgresql.dialect())),  # type: ignore[no-untyped-call]
        "null": bool(column.nullable),
        "default": column.server_default is not None or column.identity is not None,
    }


def _names(columns: Any) -> str:
    return ", ".join(column.name for column in columns)


def recorded() -> tuple[str, Shape] | None:
    """Return the newest migration of the last release and the shape of its database; None before the first release."""
    if not RECORD.exists():
        return None
    found = msgspec.json.decode(RECORD.read_bytes())
    return found["revision"], found["tables"]


def record() -> None:
    """Write the shape of this release to the file of the last release's shape."""
    RECORD.write_bytes(msgspec.json.format(msgspec.json.encode({"revision": heads(), "tables": shape(metadata)}), indent=1) + b"\n")


def breaking(then: Shape, now: Shape, retired: "frozenset[tuple[str, str]]" = frozenset()) -> list[str]:
    """Return the differences between the shapes `then` and `now` that processes of `then` cannot work with, a sentence
    each.

    `retired` columns (table, column) are still in the database, though `now` does not have them.
    """
    found: list[str] = []
    for name, old in then.items():
        new = now.get(name)
        if new is None:
            found.append(f"the table {name} is gone")
            continue
        found += _columns(name, old["columns"], new["columns"], retired)
        found += [f"{name} ({names}) is no longer unique, as upserts want it" for names in sorted({*old["unique"]} - {*new["unique"]})]
        found += [f"{name} ({names}) must be unique now" for names in sorted({*new["unique"]} - {*old["unique"]})]
        found += [f"{name} checks {rule}" for rule in sorted({*new["checks"]} - {*old["checks"]})]
        known = [one for one in {*new["foreign_keys"]} - {*old["foreign_keys"]} if one.split(" -> ")[0] in old["columns"]]
        found += [f"{name} has the foreign key {one}" for one in sorted(known)]
        if old["partition_by"] != new["partition_by"]:
            found.append(f"{name} is partitioned by {new['partition_by']}, not by {old['partition_by']}")
    return found


def _columns(table: str, old: dict[str, Any], new: dict[str, Any], retired: "frozenset[tuple[str, str]]") -> list[str]:
    found: list[str] = []
    for name, was in old.items():
        if name not in new:
            if (table, name) not in retired:
                found.append(f"{table}.{name} is gone")
            continue
        one = new[name]
        if one["type"] != was["type"]:
            found.append(f"{table}.{name} is {one['type']}, not {was['type']}")
        if was["null"] and not one["null"]:
            found.append(f"{table}.{name} refuses null, which it took")
        if one["null"] and not was["null"]:
            found.append(f"{table}.{name} may be null, which it never was")
        if was["default"] and not one["default"]:
            found.append(f"{table}.{name} has no default any more")
    asked = [name for name in new.keys() - old.keys() if not (new[name]["null"] or new[name]["default"])]
    return found + [f"{table}.{name} is wanted in every new row: let it be null, or have a default" for name in sorted(asked)]


if __name__ == "__main__":
    record()
