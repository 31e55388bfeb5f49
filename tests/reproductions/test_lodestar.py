from pathlib import Path

from reproductions import lodestar
from reproductions.lodestar_runs import Contender, Outcome, Setting
from reproductions.sections import Context


def outcome(mean: float, p99: float) -> Outcome:
    return Outcome(mean=mean, p50=0.1, p99=p99, hit_rate=0.5, on_fast=0.6)


def test_the_section_has_a_table_per_question(tmp_path: Path) -> None:
    text = lodestar.write(Context(docs=tmp_path, seeds=1, quick=True, say=lambda _: None))
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### Against its heuristic",
        "### Close to saturation",
        "### Its parts",
        "### The K-filter",
        "### Newest samples and replay",
    ]
    assert text.count("| --- |") == 5


def test_a_setting_that_is_lost_by_more_than_a_fiftieth_is_named() -> None:
    runs: dict[tuple[Setting, Contender], list[Outcome]] = {}
    for number, setting in enumerate(lodestar.SETTINGS):
        for contender in (lodestar.H, lodestar.LODESTAR, *lodestar.OTHERS):
            runs[setting, contender] = [outcome(1.0, 2.0)]
        learnt = (outcome(0.5, 1.0), outcome(1.01, 2.0), outcome(0.5, 2.1))[min(number, 2)]
        runs[setting, lodestar.LODESTAR] = [learnt]
    first, second, third = lodestar.verdict(runs, lodestar.SETTINGS, (lodestar.H, lodestar.LODESTAR, *lodestar.OTHERS)).splitlines()[:3]
    assert "better in both" in first and "**" not in first
    assert "within 2 %" in second
    assert "**not better in both**" in third
