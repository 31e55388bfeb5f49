"""Numbers are formatted for people."""

from datetime import UTC, datetime, timedelta

import pytest

from fairlead_web.text import formats

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (formats.count(None), "–"),
        (formats.count(12345.5), "12,346"),
        (formats.compact(950), "950"),
        (formats.compact(999.4), "999"),
        (formats.compact(999.7), "1.0 k"),
        (formats.compact(12345), "12.3 k"),
        (formats.compact(999_960), "1.0 M"),
        (formats.share(0.8344), "83.4 %"),
        (formats.share(1.0), "100.0 %"),
        (formats.share(0.0), "0.0 %"),
        (formats.share(0.9996), "99.96 %"),
        (formats.share(1 - 1 / 30_000), "99.997 %"),
        (formats.share(0.0003), "0.03 %"),
        (formats.share(1 - 1e-7), "> 99.999 %"),
        (formats.share(1e-7), "< 0.001 %"),
        (formats.share(1 - 1e-16), "100.0 %"),
        (formats.seconds(0.0421), "42 ms"),
        (formats.seconds(0.9996), "1.00 s"),
        (formats.seconds(9.996), "10.0 s"),
        (formats.rate(99.96), "100"),
        (formats.rate(0.04), "0.04"),
        (formats.rate(0.0333), "0.033"),
        (formats.rate(0.0004), "< 0.001"),
        (formats.rate(0.0), "0.0"),
        (formats.rate(0.0996), "0.1"),
        (formats.score(0.000123456), "0.0001235"),
        (formats.score(12345.6), "12,346"),
        (formats.span(0), "0 s"),
        (formats.span(95), "1 min 35 s"),
        (formats.span(4325), "1 h 12 min"),
        (formats.span(90000), "1 d 1 h"),
        (formats.words("hot-migration"), "hot instance"),
        (formats.words("hotspot"), "overloaded queue"),
        (formats.words("no-room"), "no room"),
        (formats.deed("operator.InstanceCreated"), "instance created"),
        (formats.deed("operator.SLOChanged"), "SLO changed"),
        (formats.deed("pool.spec-changed"), "pool spec changed"),
        (formats.deed("plan.applied"), "plan applied"),
    ],
)
def test_numbers_read_well(made: str, text: str) -> None:
    assert made == text


@pytest.mark.parametrize(
    ("gone", "text"),
    [(-10_800, "in 3 h"), (-3, "now"), (0, "now"), (12, "12 s ago"), (95, "1 min ago"), (3599, "59 min ago"), (7260, "2 h 1 min ago")],
)
def test_times_gone_by_are_said_shortly(gone: int, text: str) -> None:
    assert formats.ago(NOW - timedelta(seconds=gone), NOW) == text


def test_a_value_is_shown_in_the_unit_its_name_ends_with() -> None:
    shown = {"queued_seconds": 0.25, "output_tokens": 12345, "hit_rate": 0.834, "policy": "ear", "served_by": None, "warm": True}
    assert [formats.by_unit(name, value) for name, value in shown.items()] == ["250 ms", "12,345", "83.4 %", "ear", "–", "True"]


@pytest.mark.parametrize(
    ("detail", "field", "shown"),
    [
        ("name: 'x y' has a space", "name", "Name: 'x y' has a space"),
        ("spec.name 'x' is taken", "spec.name", "Name 'x' is taken"),
        ("namespace 'x' does not exist", "name", "namespace 'x' does not exist"),
        ("<b>: too long", "<b>", "<b>: too long"),
        ("it is late", None, "it is late"),
    ],
)
def test_a_field_is_named_as_on_its_form_where_the_error_begins_with_it(detail: str, field: str | None, shown: str) -> None:
    assert formats.labelled(detail, field, {"name": "Name"}) == shown


@pytest.mark.parametrize(
    ("detail", "remedy", "sentences"),
    [
        ("cron: '9' cannot be used", "write five fields", "cron: '9' cannot be used. Write five fields."),
        ("It is gone.", None, "It is gone."),
        ("It is gone; reload the page", "reload the page.", "It is gone; reload the page."),
    ],
)
def test_what_is_wrong_and_its_remedy_are_sentences(detail: str, remedy: str | None, sentences: str) -> None:
    assert formats.told(detail, remedy) == sentences
