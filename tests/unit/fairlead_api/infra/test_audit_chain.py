"""The hash chain of the audit log."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead_api.infra.audit_chain import AuditDraft, Link, as_stored, chain, first_broken, genesis

START = datetime(2026, 11, 21, 23, 59, tzinfo=UTC)


def log(count: int) -> list[Link]:
    links: list[Link] = []
    previous = genesis(START.date())
    for number in range(1, count + 1):
        at = START + timedelta(seconds=20 * number)
        draft = AuditDraft(
            actor=f"ada{number}", role="admin", source="web", action="x", object="pool", after={"replicas": 2.0, "n": number}
        )
        previous = chain(previous, number, at, draft)
        links.append(Link(id=number, at=at, draft=draft, chain=previous))
    return links


def test_an_untouched_log_over_midnight_is_intact_in_one_walk_or_several() -> None:
    links = log(9)
    assert first_broken(links)[0] is None
    broken, previous, expected = first_broken(links[:4])
    assert broken is None
    assert first_broken(links[4:], previous, expected)[0] is None


def test_numbers_as_the_database_returns_them_hash_alike() -> None:
    links = log(1)
    assert first_broken([replace(links[0], draft=replace(links[0].draft, after={"n": 1, "replicas": 2}))])[0] is None


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.integers(0, 1 << 1000).map(float)))
@example(1e23)
@example(-1e23)
@example(2.0**60)
@example(-0.0)
@example(5e-324)
def test_any_number_hashes_as_the_database_returns_it(number: float) -> None:
    """JSONB keeps a number's decimal digits and gives them back without an exponent."""
    returned = msgspec.json.decode(f"{Decimal(msgspec.json.encode(number).decode()):f}")
    [link] = log(1)
    first, again = (chain("", 1, START, replace(link.draft, after={"n": [one]})) for one in (number, returned))
    assert first == again


@given(st.integers(-(2**53), 2**53))
def test_a_whole_float_that_is_exact_hashes_as_its_integer(number: int) -> None:
    assert as_stored({"n": float(number)}) == {"n": number}, "as it always has: chains of before stay intact"


@given(st.integers(2, 8), st.data())
def test_any_change_removal_or_swap_shows(count: int, data: st.DataObject) -> None:
    links = log(count)
    where = data.draw(st.integers(0, count - 2))
    kind = data.draw(st.sampled_from(["change", "remove", "swap", "renumber"]))
    if kind == "change":
        links[where] = replace(links[where], draft=replace(links[where].draft, reason="none"))
    elif kind == "remove":
        del links[where]
    elif kind == "swap":
        links[where], links[where + 1] = links[where + 1], links[where]
    else:
        links[where] = replace(links[where], id=links[where].id + 100)
    assert first_broken(links)[0] is not None
