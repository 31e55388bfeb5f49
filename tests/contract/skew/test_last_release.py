"""Processes of this release with processes of the release before: each reads the other's messages.

`last_release.json` is the protocol as the last release recorded it (CONTRIBUTING.md, "Release"); before the first
release there is none to compare with. A change that fails here would break routers or operators while a release is
rolled out: add the new form beside the old one, and remove the old one a release later.
"""

from pathlib import Path

import pytest

from fairlead.reports.bindings import TOLD_AS, BindingReason, told_reason
from fairlead_client import protocol
from fairlead_testing.builders import protocol_schema
from fairlead_testing.builders.protocol_schema import FROM_API, TO_API, Schema, recorded, schemas, unreadable


@pytest.fixture
def last_release() -> dict[str, Schema]:
    found = recorded()
    return found if found is not None else pytest.skip("nothing is released yet")


def test_the_api_reads_what_routers_and_operators_of_the_last_release_send(last_release: dict[str, Schema]) -> None:
    assert unreadable(sent=last_release["to_api"], read=schemas(TO_API)) == []


def test_an_api_of_the_last_release_reads_what_routers_and_operators_send(last_release: dict[str, Schema]) -> None:
    """New words in rows of reports are exempt, as they only cost their row: the API is upgraded first."""
    found = unreadable(sent=schemas(TO_API), read=last_release["to_api"])
    assert [problem for problem in found if "the word" not in problem] == []


def test_routers_and_operators_read_what_an_api_of_the_last_release_sends(last_release: dict[str, Schema]) -> None:
    assert unreadable(sent=last_release["from_api"], read=schemas(FROM_API)) == []


def test_routers_and_operators_of_the_last_release_read_what_the_api_sends(last_release: dict[str, Schema]) -> None:
    """Words that the API sends to no router are exempt."""
    unreported = {f"BindingReason: the word {reason.value!r} is not known" for reason in TOLD_AS}
    assert set(unreadable(sent=schemas(FROM_API), read=last_release["from_api"])) - unreported == set()


def test_every_reason_is_told_to_routers_in_a_word_of_the_last_release(last_release: dict[str, Schema]) -> None:
    assert {told_reason(reason.value) for reason in BindingReason} <= {*last_release["from_api"]["BindingReason"]["enum"]}


def test_a_release_that_is_recorded_reads_what_itself_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_schema, "RECORD", tmp_path / "last_release.json")
    assert recorded() is None
    protocol_schema.record()
    found = recorded()
    assert found is not None
    assert found["to_api"].keys() >= {"PoolState", "Report"}
    assert unreadable(sent=found["to_api"], read=schemas(TO_API)) == []
    assert unreadable(sent=schemas(FROM_API), read=found["from_api"]) == []


SHAPE: Schema = {
    "Row": {"properties": {"at": {"type": "number"}, "why": {"$ref": "#/$defs/Why"}, "who": {"type": "string"}}, "required": ["at", "why"]},
    "Why": {"enum": ["a", "b"]},
}


def changed(**members: object) -> Schema:
    return SHAPE | {"Row": {"properties": SHAPE["Row"]["properties"] | members, "required": ["at", "why"]}}


@pytest.mark.parametrize(
    ("sent", "problems"),
    [
        (SHAPE, []),
        (changed(later={"type": "string"}), []),
        (changed(at={"type": "integer"}), []),
        (changed(at={"type": "string"}), ["Row.at is {'type': 'string'}, not {'type': 'number'}"]),
        (changed(who={"anyOf": [{"type": "string"}, {"type": "null"}]}), ["Row.who is"]),
        (SHAPE | {"Row": {"properties": {"why": SHAPE["Row"]["properties"]["why"]}}}, ["Row.at is missing"]),
        (SHAPE | {"Why": {"enum": ["a", "b", "c"]}}, ["Why: the word 'c' is not known"]),
        (SHAPE | {"Why": {"enum": ["a"]}}, []),
    ],
)
def test_what_an_older_reader_cannot_read_is_found(sent: Schema, problems: list[str]) -> None:
    found = unreadable(sent=sent, read=SHAPE)
    assert len(found) == len(problems)
    assert all(one.startswith(problem) for one, problem in zip(found, problems, strict=True))


@pytest.mark.parametrize(("said", "ours", "understood"), [(None, 1, True), (None, 2, True), ("1", 2, True), ("3", 2, True), ("2", 2, True)])
def test_a_release_apart_is_understood(said: str | None, ours: int, *, understood: bool) -> None:
    assert (protocol.too_far(said, ours) is None) is understood


@pytest.mark.parametrize(
    ("said", "ours", "remedy"),
    [
        (None, 3, "upgrade the caller"),
        ("1", 3, "upgrade the caller"),
        ("4", 2, "upgrade the control API"),
        ("x", 1, "whole number"),
        ("", 1, "whole number"),
    ],
)
def test_who_is_further_apart_is_told_who_has_to_be_upgraded(said: str | None, ours: int, remedy: str) -> None:
    assert remedy in (protocol.too_far(said, ours) or "")
