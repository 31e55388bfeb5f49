"""Sentences, small charts and YAML that pages show."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reports.bindings import BindingReason
from fairlead_client.resources.instances import InstanceTransition
from fairlead_client.resources.moves import MigrationFlow, MigrationMatrix, MovesEffect, TimelineBucket
from fairlead_testing.examples import examples
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.fakes.public_data.world import World
from fairlead_web.drawing.charts import even_ticks, sparkline, stacked_timeline, time_ticks
from fairlead_web.drawing.differences import yaml_diff
from fairlead_web.frame.assets import STATIC
from fairlead_web.pages.decisions import candidates, term_rows
from fairlead_web.pages.instances import state_band
from fairlead_web.pages.migrations import flow_matrix, times
from fairlead_web.text import formats
from fairlead_web.text.addresses import Here, session_path
from fairlead_web.text.time_ranges import parse_range
from fairlead_web.text.yaml_text import yaml_text

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
WORLD = World(now=NOW)


def test_an_address_keeps_its_filters_and_goes_back_to_the_first_page() -> None:
    here = Here(base="/ops", path="/migrations", params={"pool": CHAT, "cursor": "100"})
    assert here.url(trigger="slo") == "/ops/migrations?pool=default%2Fchat&trigger=slo"
    assert here.url(cursor="200") == "/ops/migrations?pool=default%2Fchat&cursor=200"
    assert here.url(pool=None) == "/ops/migrations"
    assert here.export("csv") == "/ops/migrations.csv?pool=default%2Fchat"


def test_any_name_is_safe_in_a_path() -> None:
    assert session_path(CHAT, "a/b?c#<d>") == "/sessions/default/chat/a%2Fb%3Fc%23%3Cd%3E"


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e9)), max_size=60))
@examples(60)
def test_a_sparkline_stays_in_its_box_and_breaks_at_gaps(values: list[float | None]) -> None:
    line = sparkline(values, "x")
    numbers = [float(part) for part in line.line.replace("M", " ").replace("L", " ").split()]
    assert all(0 <= x <= line.width + 1 for x in numbers[::2])
    assert all(0 <= y <= line.height for y in numbers[1::2])
    runs = "".join("x" if value is not None else " " for value in values).split()
    assert line.line.count("M") == len(runs)


def test_bars_of_a_timeline_stack_to_the_top_and_stay_inside() -> None:
    start = NOW - timedelta(hours=1)
    buckets = [
        TimelineBucket(at=start + timedelta(minutes=n), counts={BindingReason.DRAIN: n % 3, BindingReason.SLO: 2}) for n in range(60)
    ]
    made = stacked_timeline(buckets, start, NOW)
    assert made.names == ("slo", "drain")
    assert made.top == 4
    assert min(bar.y for bar in made.bars) == pytest.approx(4)
    assert all(bar.x >= 0 and bar.x + bar.width <= made.width + 1 for bar in made.bars)


@given(st.sets(st.sampled_from(BindingReason), max_size=8))
@example({BindingReason.HOTSPOT, BindingReason.HOT_MIGRATION})
@examples(100)
def test_no_two_of_up_to_eight_triggers_share_a_colour(shown: set[BindingReason]) -> None:
    start, buckets = NOW - timedelta(hours=1), [TimelineBucket(at=NOW - timedelta(hours=1), counts=dict.fromkeys(shown, 1))]
    assert len({bar.series for bar in stacked_timeline(buckets, start, NOW).bars}) == len(shown)


def test_a_trigger_has_the_same_colour_whatever_occurs_how_often() -> None:
    start = NOW - timedelta(hours=1)
    seen: dict[BindingReason, set[int]] = {trigger: set() for trigger in BindingReason}
    for rare in BindingReason:
        counts = {trigger: 1 if trigger is rare else 5 for trigger in reversed(BindingReason)}
        for bar in stacked_timeline([TimelineBucket(at=start, counts=counts)], start, NOW).bars:
            seen[next(one for one in BindingReason if bar.label.endswith(f" {formats.words(one)}"))].add(bar.series)
    assert len({formats.words(one) for one in BindingReason}) == len(BindingReason), "no two triggers read alike"
    assert all(len(colours) == 1 for colours in seen.values())
    words = ("slo", "hot-migration", "prefix-equal", "prefix-outweighed", "drain", "instance-lost", "ring-change", "operator")
    assert len(set().union(*(seen[BindingReason(word)] for word in words))) == len(words), "kinds of causes differ from each other"
    kinds = [("hotspot", "hot-migration"), ("engine-stalled", "instance-lost"), ("prefix-key", "ring-change"), ("off-ring", "ring-change")]
    assert all(seen[BindingReason(one)] == seen[BindingReason(kind)] for one, kind in kinds)


def test_a_spec_reads_in_the_order_people_write_it_however_it_was_stored() -> None:
    stored = {
        "slo": {"ttft": "5s"},
        "drain": {"timeout": "120s"},
        "model": "m",
        "roles": [{"minReplicas": 1, "name": "both"}],
        "replicas": 2,
    }
    keys = [line.split(":")[0] for line in yaml_text(stored).splitlines() if line[0].isalpha()]
    assert keys == ["model", "replicas", "roles", "slo", "drain"]
    assert yaml_text(stored) == yaml_text(dict(reversed(stored.items())))
    assert "- name: both" in yaml_text(stored)


def test_ticks_are_round_times_in_order() -> None:
    ticks = time_ticks(NOW - timedelta(minutes=62), NOW, 1000)
    assert [tick.words for tick in ticks] == ["09:00", "09:10", "09:20", "09:30", "09:40", "09:50"]
    assert even_ticks(NOW - timedelta(hours=1), NOW, 3) == ("09:00", "09:30", "10:00")


def test_states_are_drawn_only_inside_the_range() -> None:
    steps = [(180, InstanceState.PENDING), (120, InstanceState.SERVING), (30, InstanceState.DRAINING)]
    made = [InstanceTransition(at=NOW - timedelta(minutes=m), before=None, after=s, reason="r") for m, s in steps]
    bars = state_band(made, parse_range("now-1h", "now", NOW))
    assert [(bar.x, bar.width) for bar in bars] == [(0, 540), (540, 540)]
    assert bars[1].label == "Draining for 30 min: r"
    assert [bar.state for bar in bars] == [InstanceState.SERVING, InstanceState.DRAINING]


def test_an_instance_that_was_lost_and_back_in_one_moment_is_drawn_as_it_is() -> None:
    """The API lists the newest transition first, and writes both with the time of the state that showed the restart."""
    at = NOW - timedelta(minutes=30)
    made = [
        InstanceTransition(at=at, before=InstanceState.LOST, after=InstanceState.SERVING, reason="EngineRestarted"),
        InstanceTransition(at=at, before=InstanceState.SERVING, after=InstanceState.LOST, reason="EngineRestarted"),
        InstanceTransition(at=NOW - timedelta(hours=2), before=None, after=InstanceState.SERVING, reason="r"),
    ]
    assert [bar.state for bar in state_band(made, parse_range("now-1h", "now", NOW))] == [InstanceState.SERVING, InstanceState.SERVING]


@pytest.mark.parametrize("state", [one for one in InstanceState if one is not InstanceState.GONE])
def test_every_state_of_a_living_instance_has_its_mark_and_its_colour(state: InstanceState) -> None:
    css = "".join(path.read_text() for path in (STATIC / "css").glob("*.css"))
    assert f".state-{state.lower()}::before" in css and f".band .state-{state.lower()}" in css


@given(st.dictionaries(st.tuples(st.integers(0, 25), st.integers(0, 25)), st.integers(1, 50), max_size=80))
@examples(50)
def test_the_flow_matrix_and_what_it_hides_sum_to_all_moves(counts: dict[tuple[int, int], int]) -> None:
    flows = [MigrationFlow(source=f"i{a}", target=f"i{b}", count=count) for (a, b), count in counts.items()]
    total = sum(counts.values())
    effect = MovesEffect(paid_off=0, not_paid_off=0, unknown=total, compared=0, seconds_won=0.0, tokens_moved=0, tokens_recomputed=0)
    counted = MigrationMatrix(flows=flows, by_trigger={}, timeline=[], total=total, effect=effect)
    made = flow_matrix(counted, Here(base="", path="/migrations", params={}))
    assert made.total + made.hidden == total
    assert sum(row_total for _, _, row_total in made.rows) == sum(made.column_totals) == made.total
    assert len(made.targets) <= 16


def test_the_three_times_of_a_move_share_one_scale() -> None:
    move = replace(WORLD.migrations()[1], predicted_source_ttft_seconds=5.0, predicted_target_ttft_seconds=2.5, actual_ttft_seconds=None)
    assert [(time.seconds, time.length) for time in times(move)] == [(5.0, 100), (2.5, 50), (None, 0)]


def test_a_predicted_loss_is_never_worded_as_a_gain() -> None:
    assert [formats.benefit(value) for value in (4.0, -0.277, 0.0, 0.0001, None)] == [
        "4.00 s faster",
        "277 ms slower",
        "no difference",
        "no difference",
        "not predicted",
    ]


def test_seconds_won_have_a_word_and_no_sign() -> None:
    told = [formats.won(value) for value in (1.2, -0.3, 0.0, 0.0001, None, 1834.8)]
    assert told == ["1.20 s saved", "300 ms lost", "no difference", "no difference", "–", "30 min saved"]


def test_a_decisions_terms_are_shown_with_unit_direction_and_role() -> None:
    decision = WORLD.decisions()[0]
    assert decision.chosen in decision.explanation
    assert decision.runner_up is not None
    assert decision.runner_up in decision.explanation
    ranked = candidates(decision)
    assert [one.role for one in ranked[:2]] == ["chosen", "runner-up"]
    shown = term_rows(decision, [one.term for one in ranked])
    assert [row.words for row in shown[:2]] == ["cost", "held by running decodes"], "what decides comes first, in the order it decides"
    rows = {row.words: row for row in shown}
    assert (rows["cost"].unit, rows["cost"].better, rows["cost"].role, rows["cost"].best) == ("seconds", "lower", "decides", frozenset({0}))
    assert (rows["wait"].role, rows["cached prompt"].better) == ("part of the score", "higher")
    assert all(len(row.values) == len(ranked) for row in rows.values())


def test_where_another_rule_than_the_score_chose_no_term_is_called_part_of_it() -> None:
    decision = WORLD.decisions()[0]
    rows = term_rows(decision, [replace(one.term, total=None) for one in candidates(decision)])
    assert "wait" in {row.words for row in rows}
    assert "part of the score" not in {row.role for row in rows}


def test_a_total_that_is_one_of_the_usual_figures_is_shown_once() -> None:
    decision = WORLD.decisions()[0]
    total = next(term for term in decision.terms if term.name == "total")
    pending = replace(total, name="pending_tokens", words=total.words)
    shown = [replace(one.term, pending_tokens=0, total=0.0) for one in candidates(decision)]
    rows = term_rows(replace(decision, terms=[pending, *(term for term in decision.terms if term.name != "pending_tokens")]), shown)
    assert [row.role for row in rows if row.words == total.words] == ["decides"]


def test_yaml_is_plain_where_it_can_be_and_quoted_where_it_must() -> None:
    document = {
        "replicas": 8,
        "mode": "Off",
        "ttl": "30m",
        "on": True,
        "none": None,
        "roles": [{"name": "both", "max": 4}],
        "empty": {},
        "x": "a: b",
    }
    assert yaml_text(document) == (
        "replicas: 8\nroles:\n- name: both\n  max: 4\nmode: 'Off'\nempty: {}\nnone: null\n'on': true\nttl: 30m\nx: 'a: b'\n"
    )


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-1000, 1000), st.text(max_size=12)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=3)),
        max_leaves=10,
    )
)
@examples(200)
def test_yaml_reads_back_as_the_document(document: object) -> None:
    assert yaml.safe_load(yaml_text(document)) == document


def test_yaml_holds_no_text_that_other_readers_take_for_something_else() -> None:
    assert yaml_text({"n": "y"}) == "'n': 'y'\n", "Kubernetes reads y and n as booleans"
    assert yaml_text({"name": "a\u202eb\nc"}) == 'name: "a\\U0000202eb\\nc"\n', "a character that turns the line's direction is shown"
    shared = {"a": 1}
    assert "&" not in yaml_text({"one": shared, "two": shared})


def test_a_diff_marks_lines_and_equal_documents_have_none() -> None:
    lines = yaml_diff({"a": 1, "b": 2}, {"a": 1, "b": 3})
    assert [(line.kind, line.text) for line in lines] == [("same", " a: 1"), ("removed", "-b: 2"), ("added", "+b: 3")]
    assert yaml_diff({"a": 1}, {"a": 1}) == []
