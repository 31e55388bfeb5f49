"""All tabs of a page are rendered in the same rounds, however unevenly events reach them."""

import gc

import pytest

from fairlead_web.live.paces import GAP_SECONDS, TICK_SECONDS, Pace, Paces, ticks


def test_an_event_is_shown_by_one_round_whichever_tab_hears_it_first() -> None:
    pace = Pace()
    first = pace.hear(("pools", "1"), {"totals"})
    assert first > pace.round, "it has not begun"
    pace.begin(100.0)
    assert pace.round == first
    assert pace.names == {"totals"}
    assert pace.hear(("pools", "1"), {"totals"}) == first, "a tab that hears it later takes part in the same round"
    later = pace.hear(("pools", "2"), {"totals"})
    assert later > first
    assert pace.next_at == 100.0 + GAP_SECONDS
    pace.hear(("migrations", "3"), {"moves"})
    pace.begin(101.0)
    assert pace.names == {"totals", "moves"}, "what became due meanwhile comes together"


def test_the_first_event_of_a_page_waits_for_nothing() -> None:
    assert Pace().next_at < 0


def test_a_page_that_takes_long_to_render_is_rendered_less_often_but_shows_within_two_seconds_what_happened() -> None:
    found = []
    for seconds in (0.02, 0.3, 0.4, 0.5, 9.0):
        pace = Pace()
        pace.took(seconds)
        found.append(pace.gap)
    assert found == pytest.approx([0.9, 0.9, 1.2, 1.5, 1.5])


def test_tabs_of_the_same_page_have_one_pace_until_the_last_is_closed() -> None:
    paces = Paces()
    one, other = paces.of("/"), paces.of("/")
    assert one is other
    assert paces.of("/pools") is not one
    last = one.hear("event", {"totals"})
    del one, other
    gc.collect()
    assert paces.of("/").hear("event", {"totals"}) > last, "no number comes twice, so no old rendering is taken for a new one"


def test_a_page_ticks_every_ten_seconds_and_other_pages_at_other_times() -> None:
    at = ticks("/")
    number, rest = at(1_000_000.0)
    assert 0 < rest <= TICK_SECONDS
    assert at(1_000_000.0 + rest + 0.001)[0] == number + 1
    assert ticks("/")(1_000_000.0) == (number, rest), "all tabs of a page together"
    assert len({round(ticks(path)(0.0)[1], 1) for path in ("/", "/pools", "/sessions", "/decisions")}) == 4
