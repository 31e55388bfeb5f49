"""The internal protocol as data, to compare two releases.

`python -m fairlead_testing.builders.protocol_schema` records the protocol of this release: for each message its schema
by msgspec, with which both sides encode and decode.
"""

from pathlib import Path
from typing import Any

import msgspec

from fairlead.pool_states import HeldPools, PoolEvents, PoolObservations, PoolState, UnheardPools
from fairlead.reports.batches import Report, ReportReceipt, RouterGone
from fairlead.reports.predictors import SharedModel, TrainedModel
from fairlead_client.lines import StreamLine

TO_API: tuple[Any, ...] = (PoolState, PoolEvents, Report, RouterGone, TrainedModel)
FROM_API: tuple[Any, ...] = (PoolObservations, HeldPools, UnheardPools, StreamLine, ReportReceipt, SharedModel)
RECORD = Path(__file__).parents[3] / "contract/skew/last_release.json"

Schema = dict[str, Any]


def schemas(messages: tuple[Any, ...]) -> Schema:
    """Return the schema of each class of which these messages consist, by the name of the class."""
    _, components = msgspec.json.schema_components(messages)
    return {name: _bare(found) for name, found in sorted(components.items())}


def _bare(schema: Any) -> Any:
    """Return the schema without titles, descriptions and defaults."""
    if isinstance(schema, dict):
        return {name: _bare(value) for name, value in schema.items() if name not in {"title", "description", "default"}}
    return [_bare(item) for item in schema] if isinstance(schema, list) else schema


def recorded() -> dict[str, Schema] | None:
    """Return the protocol of the last release: messages to the API and messages from it; None before the first
    release.
    """
    if not RECORD.exists():
        return None
    found: dict[str, Schema] = msgspec.json.decode(RECORD.read_bytes())
    return found


def record() -> None:
    """Write the protocol of this release to the file of the last release's protocol."""
    RECORD.write_bytes(
        msgspec.json.format(msgspec.json.encode({"to_api": schemas(TO_API), "from_api": schemas(FROM_API)}), indent=1) + b"\n"
    )


def unreadable(sent: Schema, read: Schema) -> list[str]:
    """Return what a reader with the schemas `read` cannot decode from a sender with the schemas `sent`, a line each.

    The reader skips a member that it does not know. A member that it does not require may be missing.
    """
    found: list[str] = []
    for name, wanted in read.items():
        given = sent.get(name)
        if given is None:
            continue  # a class that the sender has not: what refers to it is told there
        if "enum" in wanted:
            found += [f"{name}: the word {word!r} is not known" for word in given.get("enum", ()) if word not in wanted["enum"]]
            continue
        known, members = wanted.get("properties", {}), given.get("properties", {})
        found += [f"{name}.{member} is missing" for member in wanted.get("required", ()) if member not in members]
        found += [
            f"{name}.{member} is {members[member]}, not {kind}"
            for member, kind in known.items()
            if member in members and not _fits(members[member], kind)
        ]
    return found


def _fits(given: Any, wanted: Any) -> bool:
    """Return whether every value of the schema `given` is also a value of the schema `wanted`."""
    if given == wanted or wanted == {}:
        return True
    one, other = given.get("anyOf", [given]), wanted.get("anyOf", [wanted])
    if len(one) > 1 or len(other) > 1:
        return all(any(_fits(part, choice) for choice in other) for part in one)
    if given.get("type") == "integer" and wanted.get("type") == "number":
        return True
    if given.get("type") == wanted.get("type") == "array" and "items" in given and "items" in wanted:
        return _fits(given["items"], wanted["items"])
    return False


if __name__ == "__main__":
    record()
