"""The section on the default policy by both targets: its grid, its verdicts, and that a run can be taken up again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reproductions.default_policy_grid import SECTION, describe
from reproductions.default_policy_grid_cells import (
    OURS,
    RIVALS,
    SPANNING,
    WHOLE,
    GridCell,
    GridRow,
    Rows,
    Setting,
    cells_of,
    measure,
    settings_of,
)
from reproductions.default_policy_grid_overview import plot
from reproductions.default_policy_grid_verdicts import verdicts
from reproductions.sections import Context

from fairlead_simulator.errors import SimulatorError

SETTING = Setting(preset="vllm-h100-8b", kind="conversation", mix="impossible", slo=2.0, instances=8, mode="Disabled")
FINE = GridRow(in_time=0.9, goodput=0.8, ttft_p99=5.0, refused=0.0)


def rows(ours: GridRow, theirs: GridRow, rate: float = 0.75, name: str = "ear") -> Rows:
    others = {policy: GridRow(in_time=0.1, goodput=0.1, ttft_p99=1.0, refused=0.0) for policy in RIVALS} | {name: theirs}
    return {GridCell(setting=SETTING, rate=rate, policy=policy, seed=0): row for policy, row in (others | {OURS: ours}).items()}


def test_the_subset_has_each_value_of_each_dimension_beside_each_preset() -> None:
    assert set(SPANNING) <= set(WHOLE)
    for preset in {setting.preset for setting in WHOLE}:
        here = [setting for setting in SPANNING if setting.preset == preset]
        for dimension in ("slo", "kind", "mix", "instances", "mode"):
            assert {getattr(one, dimension) for one in here} == {getattr(one, dimension) for one in WHOLE}, (preset, dimension)


def test_settings_are_chosen_by_words_of_their_names() -> None:
    asked = Context(docs=Path(), whole=True, only=("vllm-h100-8b", "SLO 2 s", "8 instances", "off"))
    assert {(one.preset, one.slo, one.instances, one.mode) for one in settings_of(asked)} == {("vllm-h100-8b", 2.0, 8, "Disabled")}
    assert len(settings_of(asked)) == 4, "two workloads, two mixes"


def test_half_a_point_less_is_a_tie_and_more_is_lost_by_either_target() -> None:
    (tie,) = verdicts(rows(FINE, replace(FINE, in_time=0.905, goodput=0.805)))
    assert (tie.most_in_time, tie.most_goodput, tie.best) == (True, True, "ear")
    (lost,) = verdicts(rows(FINE, replace(FINE, goodput=0.806)))
    assert (lost.most_in_time, lost.most_goodput) == (True, False)


def test_the_mean_over_the_seeds_that_both_have_decides_and_its_spread_is_told() -> None:
    """Of one policy there is a row of the first seed alone; what `fairlead` did in the others says nothing about it."""
    found = rows(FINE, replace(FINE, in_time=0.92))
    for seed, in_time in ((1, 0.898), (2, 0.906)):
        found |= {
            replace(cell, seed=seed): FINE if cell.policy == OURS else replace(FINE, in_time=in_time) for cell in found if not cell.seed
        }
    (lost,) = verdicts(found)
    assert [round(lead, 3) for lead in lost.ttft_leads] == [0.02, -0.002, 0.006]
    assert not lost.most_in_time, "0.8 points in the mean"
    assert "of `ear`, -0.2 to 2.0 points by seed; goodput" in describe(Context(docs=Path()), [SETTING], [lost])
    found |= {cell: replace(row, in_time=0.5) for cell, row in found.items() if cell.policy == OURS and cell.seed}
    (only,) = verdicts(
        {cell: row for cell, row in found.items() if cell.policy in (OURS, "preble") and (cell.policy == OURS or not cell.seed)}
    )
    assert only.most_in_time
    assert only.ttft_leads == (-0.8,)


def test_long_waits_count_up_to_nine_tenths_of_the_saturation() -> None:
    starved = replace(FINE, ttft_p99=6.1)
    assert [verdicts(rows(starved, FINE, rate))[0].nobody_starves for rate in (0.5, 0.9, 1.0)] == [False, False, True]


def test_what_is_lost_is_told() -> None:
    text = describe(Context(docs=Path(), seeds=1), [SETTING], verdicts(rows(replace(FINE, ttft_p99=9.0), replace(FINE, in_time=0.95))))
    assert "more than half a point ahead in 0 of 1 cells" in text
    assert (
        "- Lost by TTFT: vllm-h100-8b, conversation, impossible, SLO 2 s, 8 instances, rejection off, 0.75×: 90.0 % against 95.0 %" in text
    )
    assert "P99 9.0 s" in text
    assert "Lost by goodput" not in text


def test_rows_that_are_there_are_not_run_again(tmp_path: Path) -> None:
    context = Context(docs=tmp_path, seeds=1, quick=True, rows=tmp_path / "rows.jsonl", say=lambda _: None)
    cells = cells_of(context, [SETTING])[:2]
    found = measure(context, cells)
    told: list[str] = []
    again = measure(replace(context, say=told.append), cells)
    assert again == found
    assert told == []


def test_the_section_is_written_from_every_spanning_setting(tmp_path: Path) -> None:
    text = SECTION.write(Context(docs=tmp_path, seeds=1, quick=True, say=lambda _: None))
    assert text.count("| 0.75× |") == len(SPANNING)


def test_words_that_name_no_setting_are_an_error_and_no_empty_section() -> None:
    with pytest.raises(SimulatorError, match="no setting of the grid has all of 'nonsense' in its name"):
        settings_of(Context(docs=Path(), only=("nonsense",)))


def test_a_line_that_a_killed_run_left_half_written_is_named(tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"
    kept.write_text('{"preset": "vllm-h100-8b", "ki')
    with pytest.raises(SimulatorError, match=r"rows.jsonl, line 1: not a row of the grid"):
        measure(Context(docs=tmp_path, rows=kept), [])


def test_the_text_says_what_goodput_stands_against_lost_first_tokens_only_where_some_are() -> None:
    won = describe(Context(docs=Path()), [SETTING], verdicts(rows(FINE, replace(FINE, in_time=0.5, goodput=0.5))))
    assert "lost by first tokens" not in won
    assert "which no policy reaches here" in won
    far = describe(Context(docs=Path()), [SETTING], verdicts(rows(FINE, replace(FINE, in_time=0.95, goodput=0.3))))
    assert "In 1 of the 1 cells that are lost by first tokens it has over 5 points more goodput" in far
    none = describe(Context(docs=Path()), [SETTING], verdicts(rows(FINE, replace(FINE, in_time=0.95, goodput=0.8))))
    assert "In 0 of the 1 cells" in none


def everywhere(rate: float = 0.75) -> Rows:
    """A row of each policy in each setting: `ear` has more first tokens with an SLO of 2 s, and nothing else more."""
    found: Rows = {}
    for setting in WHOLE:
        lost = setting.slo == 2.0
        found |= {
            replace(cell, setting=setting): row
            for cell, row in rows(FINE, replace(FINE, in_time=0.93 if lost else 0.7, goodput=0.4), rate).items()
        }
    return found


def test_the_whole_grid_is_told_at_a_glance_by_what_settings_differ_in() -> None:
    text = describe(Context(docs=Path(), whole=True, seeds=1), WHOLE, verdicts(everywhere()))
    assert "in the 144 settings of the grid" in text
    assert "| SLO 2 s | 48 | 90.0 / 93.0 | 0 | 80.0 / 40.0 | 48 | 48 of 48 |" in text
    assert "| SLO 10 s | 48 | 90.0 / 70.0 | 48 | 80.0 / 40.0 | 48 | 48 of 48 |" in text
    assert "| **all** | 144 | 90.0 / 77.7 | 96 | 80.0 / 40.0 | 144 | 144 of 144 |" in text
    assert "elsewhere it is behind by 3.0 in the mean, 3.0 at most" in text
    assert text.count("- Lost by TTFT: ") == 48


def test_the_picture_has_a_cell_for_each_setting_and_rate() -> None:
    figure = plot(verdicts({**everywhere(0.75), **everywhere(1.5)}))
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in panels[:2]] == ["dualmap-910b4-qwen7b: first tokens in time", "vllm-h100-8b: first tokens in time"]
    first = panels[0].images[0].get_array()
    assert first is not None
    assert first.shape == (48, 6)
    assert [round(float(first[0, place]), 1) for place in (1, 5)] == [-3.0, -3.0]
    assert round(float(first[47, 1]), 1) == 20.0
    assert bool(np.ma.getmaskarray(np.ma.masked_invalid(first))[0, 0]), "a rate that was not run has no colour"


def test_goodput_beyond_the_saturation_is_told() -> None:
    beyond = describe(Context(docs=Path()), [SETTING], verdicts(rows(replace(FINE, goodput=0.95), FINE, rate=1.25)))
    assert "has 90 % of goodput beyond it in 1 of 1 cells" in beyond
