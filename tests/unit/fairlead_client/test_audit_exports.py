"""An export of the audit log is verified without the API, and every change of it is detected."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.audit.routes import Signer, export_lines
from fairlead_api.infra.audit_chain import AuditDraft, Link, chain, genesis, hashed
from fairlead_cli.audit import _is_signed
from fairlead_client.audit_exports import ExportVerdict, chained, verified
from fairlead_testing.examples import examples

SEED = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
AT = datetime(2026, 11, 30, tzinfo=UTC)


def links(count: int) -> list[Link]:
    found: list[Link] = []
    previous = genesis(AT.date())
    for number in range(1, count + 1):
        after: dict[str, Any] = {"price": 2.5, "whole": 3.0, "name": "zoé\u2028", "big": 1e23}
        draft = AuditDraft(actor=f"person-{number}", role="operator", source="web", action="login", object="default/chat", after=after)
        at = AT + timedelta(hours=number)
        previous = chain(previous, number, at, draft)
        found.append(Link(id=number, at=at, draft=draft, chain=previous))
    return found


async def an_export(count: int = 5, skipped: int = 0, seed: str | None = SEED) -> list[bytes]:
    made = links(count)

    async def chunks() -> Any:
        yield [{"previous": made[skipped - 1].chain if skipped else None}]
        if made[skipped:]:
            yield [hashed(link) for link in made[skipped:]]

    content = b"".join([line async for line in export_lines(chunks(), Signer(seed), AT, AT + timedelta(days=1))])
    return content.splitlines(keepends=True)


def check(lines: Sequence[bytes], key: str | None = None) -> ExportVerdict:
    return verified(lines, _is_signed, key)


@pytest.mark.parametrize(("count", "skipped"), [(5, 0), (5, 2), (1, 0), (0, 0), (3, 3)])
async def test_an_export_of_any_range_holds(count: int, skipped: int) -> None:
    found = check(await an_export(count, skipped), Signer(SEED).public_key)
    assert (found.fault, found.entries) == (None, count - skipped)
    assert found.first == (skipped + 1 if count > skipped else None)


async def test_an_export_of_another_signer_or_of_none_is_not_taken_for_the_owners() -> None:
    mine, other = Signer(SEED).public_key, Signer("//////////////////////////////////////////8=")
    assert "not by" in str(check(await an_export(seed=None), mine).fault)
    assert check(await an_export(seed=None)).fault is None
    lines = await an_export()
    forged = [lines[0].replace(str(mine).encode(), str(other.public_key).encode()), *lines[1:]]
    assert check(forged).fault == "its signature is not that of its key"


async def test_a_made_up_log_under_the_owners_key_needs_the_owners_signature() -> None:
    mine, forged = Signer(SEED).public_key, await an_export(seed=None)
    forged[0] = forged[0].replace(b'"key":null', f'"key":"{mine}"'.encode())
    assert check(forged, mine).fault == check(forged).fault == f"it names the key {mine}, and has no signature"


@pytest.mark.parametrize("number", ["2", None, True, 2.0, [2]])
async def test_an_entry_without_a_whole_number_is_a_fault_and_no_crash(number: Any) -> None:
    lines = await an_export(2, seed=None)
    first, second = (json.loads(line) for line in lines[1:3])
    del second["chain"]
    second["id"] = number
    second["chain"] = chained(first["chain"], second)
    lines[2] = json.dumps(second).encode()
    assert check(lines).fault == f"entry {number} was changed, added or moved"


async def test_a_line_that_is_nested_too_deeply_is_a_fault_and_no_crash() -> None:
    lines = await an_export(1, seed=None)
    assert "not JSON" in str(check([*lines[:2], b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"]).fault)


@given(st.data())
@examples(100)
async def test_whatever_is_changed_removed_or_moved_shows(data: st.DataObject) -> None:
    lines = await an_export(6, data.draw(st.integers(0, 3)))
    place = data.draw(st.integers(0, len(lines) - 1))
    match data.draw(st.sampled_from(["removed", "doubled", "swapped", "field", "cut"])):
        case "removed":
            changed = lines[:place] + lines[place + 1 :]
        case "doubled":
            changed = [*lines[:place], lines[place], *lines[place:]]
        case "swapped":
            other = data.draw(st.integers(0, len(lines) - 1).filter(lambda one: one != place))
            changed = list(lines)
            changed[place], changed[other] = changed[other], changed[place]
        case "cut":
            changed = lines[:place]
        case _:
            document = json.loads(lines[place])
            name = data.draw(st.sampled_from(sorted(document)))
            document[name] = data.draw(st.sampled_from([None, "x", 7, {"a": 1}]).filter(lambda value: value != document[name]))
            changed = [*lines[:place], json.dumps(document).encode() + b"\n", *lines[place + 1 :]]
    found = check(changed, Signer(SEED).public_key)
    assert found.fault is not None


def test_a_key_of_another_form_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidInput, match="openssl rand -base64 32"):
        Signer("short")
